#include "quantize/convert_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "arch/families.h"
#include "formats/entry_memory.h"
#include "formats/json_meta.h"
#include "formats/text_file.h"

namespace carat {
namespace {

constexpr std::uint64_t kLongestCard = 4 << 20;
constexpr std::uint64_t kLongestNotes = 1 << 20;

bool is_folder(const ModelFile& source) { return !source.meta.contains("general.architecture"); }

std::string in_folder(const ModelFile& source, std::string_view name) {
  return (std::filesystem::path(source.path) / name).string();
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kAround = " \t\r\"'";
  const std::size_t begin = text.find_first_not_of(kAround);
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kAround) - begin + 1);
}

/// The scalars of a model card's YAML head that GGUF has keys for.
void read_card(std::string_view text, MetaMap& general) {
  constexpr std::pair<std::string_view, std::string_view> kKeys[] = {{"license", "general.license"},
                                                                     {"license_name", "general.license.name"},
                                                                     {"license_link", "general.license.link"},
                                                                     {"model_name", "general.name"}};
  if (!text.starts_with("---")) return;
  for (bool first = true; !text.empty(); first = false) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with("---") && !first) return;
    for (const auto& [theirs, ours] : kKeys) {
      const std::string_view value = line.starts_with(theirs) && line.substr(theirs.size()).starts_with(':')
                                         ? trimmed(line.substr(theirs.size() + 1))
                                         : std::string_view();
      if (!value.empty() && !general.contains(ours)) general.set_string(std::string(ours), std::string(value));
    }
  }
}

bool is_metadata(std::string_view path) { return path == "metadata" || path.starts_with("metadata.general."); }

Status read_notes(const std::string& path, Budget& budget, MetaMap& general) {
  constexpr std::string_view kPrefix = "metadata.";
  CARAT_ASSIGN(const TextFile file, read_text_file(path, budget, kLongestNotes));
  auto all = std::make_shared<MetaMap>();
  auto held = std::make_shared<std::vector<Reservation>>();
  EntryMemory memory(budget, *held);
  Status status = add_json(file.text, "", budget, memory, *all, is_metadata);
  if (!status.ok()) return std::move(status).with_context(path);
  for (const auto& [key, value] : all->values()) {
    if (key.starts_with(kPrefix)) general.set(key.substr(kPrefix.size()), value);
  }
  general.keep_alive(all);
  general.keep_alive(held);
  return ok_status();
}

/// Of this file alone, so that another file gets its own.
bool is_of_the_file(std::string_view key) {
  return key == "general.file_type" || key == "general.quantization_version" || key == "general.alignment" ||
         key == "general.architecture" || key == "general.type" || key.starts_with("split.") ||
         key == "carat.source_sha256";
}

}  // namespace

Result<MetaMap> general_keys(const ModelFile& source, Budget& budget) {
  MetaMap general;
  if (!is_folder(source)) {
    for (const auto& [key, value] : source.meta.values()) {
      if (key.starts_with("general.") && !is_of_the_file(key)) general.set(key, value);
    }
    return general;
  }
  const std::string notes = in_folder(source, kNotesFile);
  if (exists(notes)) CARAT_TRY(read_notes(notes, budget, general));
  const std::string card = in_folder(source, "README.md");
  if (exists(card)) {
    CARAT_ASSIGN(const TextFile file, read_text_file(card, budget, kLongestCard));
    read_card(file.text, general);
  }
  if (!general.contains("general.name")) {
    std::filesystem::path path = std::filesystem::path(source.path).lexically_normal();
    if (path.filename().empty()) path = path.parent_path();
    if (!path.filename().empty()) general.set_string("general.name", path.filename().string());
  }
  return general;
}

namespace {

/// Real keys are float32 in GGUF.
MetaValue real(double value) { return static_cast<double>(static_cast<float>(value)); }
MetaValue count(std::uint64_t value) { return static_cast<std::int64_t>(value); }

std::int64_t file_type(DType matrices) {
  switch (matrices) {
    case DType::f32: return 0;
    case DType::f16: return 1;
    case DType::q8_0: return 7;
    case DType::bf16: return 32;
    default: return 1024;  // "guessed": a mixture that llama.cpp has no name for
  }
}

const LayerSpec* first_layer(const ModelConfig& config, AttentionKind kind) {
  for (const LayerSpec& layer : config.layers) {
    if (layer.attention == kind) return &layer;
  }
  return nullptr;
}

/// Which layers are local, where that is not what the architecture has: a number, or a list of one boolean a layer.
void add_pattern(const ModelConfig& config, const Family& family, const std::string& key, MetaMap& keys) {
  const auto period = global_period(family, config);
  if (period == family.global_every) return;
  if (period) return keys.set(key, count(*period));
  auto list = std::make_shared<std::vector<std::byte>>();
  for (const LayerSpec& layer : config.layers) list->push_back(std::byte{layer.attention == AttentionKind::local});
  keys.set(key, NumberList(NumberType::boolean, *list));
  keys.keep_alive(std::move(list));
}

void add_rope_keys(const ModelConfig& config, const Family& family, const Preset* preset, const std::string& prefix,
                   MetaMap& keys) {
  const LayerSpec* global = first_layer(config, AttentionKind::global);
  const LayerSpec* local = first_layer(config, AttentionKind::local);
  const RopeSpec& rope = (global != nullptr ? global : local)->rope;
  // The converters of the first two Gemmas leave out the base, which is never another.
  const bool understood = family.offset_norms && family.local_rope_base == 0 && rope.base == family.rope_base;
  if (!understood) keys.set(prefix + "rope.freq_base", real(rope.base));
  if (rope.factor != 1) {
    keys.set_string(prefix + "rope.scaling.type", "linear");
    keys.set(prefix + "rope.scaling.factor", real(rope.factor));
  } else if (preset != nullptr && preset->global_rope_factor != 1) {
    keys.set_string(prefix + "rope.scaling.type", "none");  // or readers take the preset's
  }
  if (family.local_rope_base > 0 && local != nullptr && local->rope.base != family.local_rope_base) {
    keys.set(prefix + "rope.freq_base_swa", real(local->rope.base));
  }
}

void add_model_keys(const ModelConfig& config, MetaMap& keys) {
  const Family& family = *find_family(config.architecture);
  const std::string prefix = config.architecture + ".";
  const auto layer_count = static_cast<std::uint32_t>(config.layers.size());
  const Preset* preset = preset_like(config, layer_count);
  keys.set(prefix + "block_count", count(layer_count));
  keys.set(prefix + "context_length", count(config.context));
  keys.set(prefix + "embedding_length", count(config.width));
  keys.set(prefix + "feed_forward_length", count(config.ffn));
  keys.set(prefix + "attention.head_count", count(config.heads));
  keys.set(prefix + "attention.head_count_kv", count(config.kv_heads));
  keys.set(prefix + "attention.key_length", count(config.head_dim));
  keys.set(prefix + "attention.value_length", count(config.head_dim));
  keys.set(prefix + "attention.layer_norm_rms_epsilon", real(config.norm_eps));
  if (family.architecture == "llama") {
    keys.set(prefix + "vocab_size", count(config.vocab));
    keys.set(prefix + "rope.dimension_count", count(config.head_dim));
  }
  if (family.global_every != 0) {
    const LayerSpec* local = first_layer(config, AttentionKind::local);
    if (local != nullptr) keys.set(prefix + "attention.sliding_window", count(local->window));
    add_pattern(config, family, prefix + "attention.sliding_window_pattern", keys);
  }
  if (config.attn_softcap > 0) keys.set(prefix + "attn_logit_softcapping", real(config.attn_softcap));
  if (config.final_softcap > 0) keys.set(prefix + "final_logit_softcapping", real(config.final_softcap));
  // Not among the converter's keys; a file with an unusual scale must say so.
  const bool usual_scale = config.query_scale == static_cast<float>(1 / std::sqrt(double{1} * config.head_dim));
  if (!usual_scale || (preset != nullptr && preset->query_scale > 0)) {
    keys.set(prefix + "attention.scale", real(config.query_scale));
  }
  add_rope_keys(config, family, preset, prefix, keys);
}

Status set_id(MetaMap& keys, const std::string& key, const MetaMap& meta, std::string_view text_key,
              std::string_view id_key) {
  if (keys.contains(key)) return ok_status();
  CARAT_ASSIGN(const auto text, meta.string(text_key));
  std::optional<std::int64_t> id;
  if (text) {
    CARAT_ASSIGN(id, piece_id(meta, *text));
  }
  for (const std::string_view prefix : {"config.", "config.text_config."}) {
    if (id || id_key.empty()) break;
    CARAT_ASSIGN(id, meta.integer(std::string(prefix) + std::string(id_key)));
  }
  if (id && *id >= 0) keys.set(key, *id);
  return ok_status();
}

Status add_tokenizer_keys(const ModelFile& source, MetaMap& keys) {
  const MetaMap& meta = source.meta;
  if (!meta.contains("tokenizer.ggml.tokens")) return ok_status();
  for (const auto& [key, value] : meta.values()) {
    if (key.starts_with("tokenizer.ggml.")) keys.set(key, value);
  }
  if (!keys.contains("tokenizer.ggml.pre")) keys.set_string("tokenizer.ggml.pre", "default");
  if (!keys.contains("tokenizer.ggml.add_space_prefix")) keys.set("tokenizer.ggml.add_space_prefix", false);
  CARAT_TRY(set_id(keys, "tokenizer.ggml.unknown_token_id", meta, "tokenizer_config.unk_token", ""));
  CARAT_TRY(set_id(keys, "tokenizer.ggml.padding_token_id", meta, "tokenizer_config.pad_token", "pad_token_id"));
  CARAT_ASSIGN(const auto add_eos, meta.boolean("tokenizer_config.add_eos_token"));
  keys.set("tokenizer.ggml.add_eos_token", add_eos.value_or(false));
  return ok_status();
}

}  // namespace

Result<std::optional<std::int64_t>> piece_id(const MetaMap& meta, std::string_view text) {
  CARAT_ASSIGN(const auto tokens, meta.strings("tokenizer.ggml.tokens"));
  std::int64_t id = 0;
  for (const std::string_view token : tokens.value_or(StringList())) {
    if (token == text) return std::optional(id);
    ++id;
  }
  return std::optional<std::int64_t>();
}

Result<MetaMap> gguf_keys(const ModelFile& source, const MetaMap& general, std::optional<DType> matrices) {
  MetaMap keys;
  for (const auto& [key, value] : general.values()) keys.set(key, value);
  keys.set_string("general.architecture", source.config.architecture);
  keys.set_string("general.type", "model");
  keys.set("general.quantization_version", count(2));
  if (matrices) keys.set("general.file_type", file_type(*matrices));
  if (is_folder(source)) {
    add_model_keys(source.config, keys);
    CARAT_TRY(add_tokenizer_keys(source, keys));
    const auto chat_template = source.meta.values().find("chat_template");
    if (chat_template != source.meta.values().end()) keys.set("tokenizer.chat_template", chat_template->second);
    return keys;
  }
  for (const auto& [key, value] : source.meta.values()) {
    if (!key.starts_with("general.") && !is_of_the_file(key)) keys.set(key, value);
  }
  const auto type = source.meta.values().find("general.file_type");
  if (!matrices && type != source.meta.values().end()) keys.set(type->first, type->second);
  return keys;
}

Status add_keys(const MetaMap& keys, GgufWriter& writer) {
  for (const bool general : {true, false}) {
    for (const auto& [key, value] : keys.values()) {
      if (key.starts_with("general.") == general) CARAT_TRY(writer.add(key, value));
    }
  }
  return ok_status();
}

Status check_same_model(const ModelConfig& wanted, const ModelConfig& written, std::string_view what) {
  const auto differs = [&](std::string_view field) {
    return unsupported(fmt::format("{} cannot say the {} of this model", what, field));
  };
  const auto real_differs = [](double a, double b) { return !(std::abs(a - b) <= 1e-6 * std::abs(a)); };
  if (wanted.architecture != written.architecture) return differs("architecture");
  if (wanted.width != written.width || wanted.heads != written.heads || wanted.kv_heads != written.kv_heads ||
      wanted.head_dim != written.head_dim || wanted.ffn != written.ffn || wanted.vocab != written.vocab ||
      wanted.context != written.context || wanted.layers.size() != written.layers.size()) {
    return differs("sizes");
  }
  if (real_differs(wanted.norm_eps, written.norm_eps)) return differs("norm epsilon");
  if (real_differs(wanted.query_scale, written.query_scale)) return differs("query scale");
  if (real_differs(wanted.embed_scale, written.embed_scale)) return differs("embedding scale");
  if (wanted.attn_softcap != written.attn_softcap || wanted.final_softcap != written.final_softcap) {
    return differs("logit caps");
  }
  if (wanted.qk_norm != written.qk_norm || wanted.post_norms != written.post_norms ||
      wanted.qkv_bias != written.qkv_bias || wanted.activation != written.activation) {
    return differs("kind of layer");
  }
  if (wanted.tied_head != written.tied_head) return differs("head");
  for (std::size_t i = 0; i < wanted.layers.size(); ++i) {
    const LayerSpec& a = wanted.layers[i];
    const LayerSpec& b = written.layers[i];
    if (a.attention != b.attention || a.window != b.window) return differs(fmt::format("window of layer {}", i));
    if (real_differs(a.rope.base, b.rope.base) || real_differs(a.rope.factor, b.rope.factor) ||
        a.rope.llama3 != b.rope.llama3) {
      return differs(fmt::format("rotary embedding of layer {}", i));
    }
  }
  return ok_status();
}

}  // namespace carat
