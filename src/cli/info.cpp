// carat info: what a model file holds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "arch/tensor_roles.h"
#include "base/log.h"
#include "cli/command.h"
#include "os/sha256.h"

namespace carat::cli {
namespace {

struct InfoOptions {
  CommonOptions common;
  bool no_hash = false;
};

std::uint64_t parameters(const TensorDir& tensors) {
  std::uint64_t count = 0;
  for (const TensorEntry& entry : tensors.entries()) count += entry.shape.rows * entry.shape.columns;
  return count;
}

std::uint64_t kv_bytes(const ModelConfig& config) { return std::uint64_t{4} * config.kv_heads * config.head_dim; }

std::string string_key(const ModelFile& file, std::string_view key) {
  const auto value = file.meta.string(key);
  return value.ok() && value.value() ? std::string(*value.value()) : std::string();
}

nlohmann::ordered_json layers_json(const ModelConfig& config) {
  auto layers = nlohmann::ordered_json::array();
  for (const LayerSpec& layer : config.layers) {
    layers.push_back({{"attention", layer.attention == AttentionKind::local ? "local" : "global"},
                      {"window", layer.window},
                      {"rope_base", layer.rope.base},
                      {"rope_factor", layer.rope.factor},
                      {"kv_bytes_per_token", kv_bytes(config)}});
  }
  return layers;
}

nlohmann::ordered_json config_json(const ModelConfig& c) {
  return {{"width", c.width},
          {"heads", c.heads},
          {"kv_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"ffn", c.ffn},
          {"vocab", c.vocab},
          {"context", c.context},
          {"norm_eps", c.norm_eps},
          {"embed_scale", c.embed_scale},
          {"query_scale", c.query_scale},
          {"attn_softcap", c.attn_softcap},
          {"final_softcap", c.final_softcap},
          {"qk_norm", c.qk_norm},
          {"post_norms", c.post_norms},
          {"qkv_bias", c.qkv_bias},
          {"tied_head", c.tied_head},
          {"activation", c.activation == GateActivation::silu ? "silu" : "gelu_tanh"}};
}

nlohmann::ordered_json tensor_json(const TensorEntry& entry) {
  return {{"name", entry.name},       {"type", name(entry.type)},
          {"rows", entry.shape.rows}, {"columns", entry.shape.columns},
          {"offset", entry.offset},   {"bytes", entry.bytes}};
}

/// `json` with the tensors as its last key. They go out one by one: a large model's list is a large block.
Status print_with_tensors(const nlohmann::ordered_json& json, const TensorDir& tensors) {
  std::string text = json_text(json);
  text.back() = ',';
  CARAT_TRY(write_stdout(text + "\"tensors\":["));
  bool first = true;
  for (const TensorEntry& entry : tensors.entries()) {
    CARAT_TRY(write_stdout((first ? "" : ",") + json_text(tensor_json(entry))));
    first = false;
  }
  return write_stdout("]}\n");
}

std::string types_text(const TensorDir& tensors) {
  std::map<std::string_view, int> counts;
  for (const TensorEntry& entry : tensors.entries()) ++counts[name(entry.type)];
  std::string text;
  for (const auto& [type, count] : counts) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, type);
  return text;
}

std::string layer_table(const ModelConfig& config) {
  std::string text = "  layer  attention  window   rope base  factor  KV bytes/token (bf16)\n";
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const LayerSpec& layer = config.layers[i];
    text += fmt::format("  {:>5}  {:<9}  {:>6}  {:>10.0f}  {:>6.3g}  {:>6}\n", i,
                        layer.attention == AttentionKind::local ? "local" : "global",
                        layer.window == 0 ? "-" : std::to_string(layer.window), layer.rope.base, layer.rope.factor,
                        kv_bytes(config));
  }
  return text;
}

struct HashedPart {
  std::string path;
  std::string hash;
};

std::string to_text(const ModelFile& file, const std::vector<HashedPart>& parts) {
  const ModelConfig& c = file.config;
  const auto source = [&](std::string_view field) {
    return std::find(c.defaulted.begin(), c.defaulted.end(), field) == c.defaulted.end() ? "file" : "default";
  };
  std::string text = fmt::format(
      "{}\n  name          {}\n  architecture  {}\n  parameters    {:.1f} M\n  license       {}\n", file.path, c.name,
      c.architecture, static_cast<double>(parameters(file.tensors)) / 1e6, string_key(file, "general.license"));
  text += fmt::format("  file          {} bytes, {}\n", file.file_bytes, file.format);
  for (const auto& [path, hash] : parts) {
    const std::string of_part = parts.size() == 1 ? "" : "  " + path.substr(path.rfind('/') + 1);
    text += fmt::format("  sha256        {}{}\n", hash, of_part);
  }
  text += fmt::format("  tensors       {}\n", types_text(file.tensors));
  text += fmt::format("  tokenizer     {} {}\n", string_key(file, "tokenizer.ggml.model"),
                      string_key(file, "tokenizer.ggml.pre"));
  text += fmt::format("  chat template {}\n", file.chat_template().empty() ? "none" : "in the file");
  text += fmt::format("  width {}, {} heads of {}, {} KV heads, ffn {}, vocabulary {}, trained context {}\n", c.width,
                      c.heads, c.head_dim, c.kv_heads, c.ffn, c.vocab, c.context);
  text += fmt::format("  query scale {:.6g} ({}), embed scale {:.6g} (architecture), norm eps {:.3g} ({})\n",
                      c.query_scale, source("query_scale"), c.embed_scale, c.norm_eps, source("norm_eps"));
  text += fmt::format("  layer pattern ({}), local rope base ({}), global rope base ({})\n", source("layer_pattern"),
                      source("local_rope_base"), source("rope_base"));
  text += layer_table(c);
  return printable(text, true);
}

Status run_info(const InfoOptions& options) {
  Budget budget;
  CARAT_ASSIGN(const std::string path, resolve_model(options.common.model));
  CARAT_ASSIGN(const ModelFile file, ModelFile::open(path, budget));
  std::vector<HashedPart> parts;
  auto files = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < file.files.size() && !options.no_hash; ++i) {
    CARAT_ASSIGN(const std::string hash, sha256(file.files[i]));
    parts.push_back({file.files[i].path(), hash});
    files.push_back({{"path", parts.back().path}, {"sha256", hash}});
  }
  if (!options.common.json) return write_stdout(to_text(file, parts));
  const nlohmann::ordered_json json = {
      {"path", path},
      {"name", file.config.name},
      {"architecture", file.config.architecture},
      {"parameters", parameters(file.tensors)},
      {"license", string_key(file, "general.license")},
      {"bytes", file.file_bytes},
      {"sha256", parts.size() == 1 ? parts.front().hash : ""},
      {"files", files},
      {"format", file.format},
      {"config", config_json(file.config)},
      {"defaulted", file.config.defaulted},
      {"layers", layers_json(file.config)},
      {"tokenizer",
       {{"model", string_key(file, "tokenizer.ggml.model")}, {"pre", string_key(file, "tokenizer.ggml.pre")}}},
      {"chat_template", file.chat_template()},
  };
  return print_with_tensors(json, file.tensors);
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
  auto options = std::make_shared<InfoOptions>();
  CLI::App* command = add_command(app, action, "info", "show what a model file holds", "carat info gemma3-270m --json",
                                  options, run_info);
  add_model_options(*command, options->common);
  command->add_flag("--no-hash", options->no_hash, "skip the SHA-256, which reads the whole file");
}

}  // namespace carat::cli
