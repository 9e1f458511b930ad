// Writes the random model that `carat bench --arch` measures as a GGUF file, so that others can be measured on it, too.
//   random_model TOKENIZER.gguf OUT.gguf --arch gemma3-1b [--quant q4_0] [--head-type T] [--seed N]
// The tokenizer's keys come from TOKENIZER.gguf. Where its vocabulary is larger than the preset's it is cut, where it
// is smaller the matrix of embeddings is.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "arch/families.h"
#include "formats/gguf_writer.h"
#include "memory/arena.h"
#include "model/random_model.h"
#include "quant/codec.h"
#include "quantize/convert_keys.h"

namespace carat {
namespace {

struct Options {
  std::string tokenizer;
  std::string output;
  RandomModelAsk ask;
};

constexpr std::uint64_t kBlockBytes = 4 << 20;

StringList first_of(const StringList& list, std::uint64_t count) {
  std::uint64_t bytes = 0;
  std::uint64_t seen = 0;
  for (const std::string_view text : list) {
    if (seen++ == count) break;
    bytes += sizeof(std::uint64_t) + text.size();
  }
  return {list.bytes().first(bytes), count};
}

/// The keys that begin with "tokenizer.", with lists of one entry a piece cut to `pieces`.
Result<MetaMap> tokenizer_keys(const ModelFile& from, std::uint64_t all, std::uint64_t pieces) {
  MetaMap keys;
  for (const auto& [key, value] : from.meta.values()) {
    if (!key.starts_with("tokenizer.")) continue;
    keys.set(key == "tokenizer.chat_template" ? "chat_template" : key, value);
    if (pieces == all) continue;
    if (key == "tokenizer.ggml.merges") {
      return unsupported(fmt::format("{}: a tokenizer with merges cannot be cut to {} pieces", from.path, pieces));
    }
    if (const auto* strings = std::get_if<StringList>(&value); strings != nullptr && strings->size() == all) {
      keys.set(key, first_of(*strings, pieces));
    }
    if (const auto* numbers = std::get_if<NumberList>(&value); numbers != nullptr && numbers->size() == all) {
      keys.set(key, NumberList(numbers->type(), numbers->bytes().first(pieces * size_of(numbers->type()))));
    }
  }
  return keys;
}

Status write_tensors(const ModelFile& model, Budget& budget, GgufWriter& writer) {
  const RandomTensors source(*model.random_seed);
  CARAT_ASSIGN(const Arena block, Arena::allocate(budget, MemoryCategory::io, kBlockBytes, "a block of a tensor"));
  for (const TensorEntry& entry : model.tensors.entries()) {
    const std::uint64_t step = kBlockBytes / info(entry.type).block_bytes * info(entry.type).block_bytes;
    for (std::uint64_t offset = 0; offset < entry.bytes; offset += step) {
      const std::span<std::byte> part(block.data(), std::min(step, entry.bytes - offset));
      CARAT_TRY(source.read(entry, offset, part));
      CARAT_TRY(writer.write(part));
    }
  }
  return ok_status();
}

Status run(const Options& options) {
  Budget budget;
  CARAT_ASSIGN(const ModelFile from, ModelFile::open(options.tokenizer, budget));
  CARAT_ASSIGN(const auto tokens, from.meta.strings("tokenizer.ggml.tokens"));
  if (!tokens) return invalid(options.tokenizer + ": has no tokenizer");
  CARAT_ASSIGN(ModelConfig config, config_from_preset(options.ask.preset));
  if (config.vocab > tokens->size()) {
    fmt::print(stderr, "random_model: {} pieces, as many as the tokenizer has, instead of {}\n", tokens->size(),
               config.vocab);
    config.vocab = static_cast<std::uint32_t>(tokens->size());
  }
  std::vector<std::string> notes;
  CARAT_ASSIGN(ModelFile model, random_model(config, options.ask, &notes));
  for (const std::string& note : notes) fmt::print(stderr, "random_model: {}\n", note);
  CARAT_ASSIGN(model.meta, tokenizer_keys(from, tokens->size(), config.vocab));
  MetaMap general;
  general.set_string("general.name", model.path);
  CARAT_ASSIGN(const MetaMap keys, gguf_keys(model, general, options.ask.quant));

  CARAT_ASSIGN(GgufWriter writer, GgufWriter::create(options.output, budget));
  CARAT_TRY(add_keys(keys, writer));
  for (const TensorEntry& entry : model.tensors.entries()) {
    const std::array<std::uint64_t, 2> dimensions{entry.shape.columns, entry.shape.rows};
    CARAT_TRY(writer.add_tensor(entry.name, entry.type, std::span(dimensions).first(entry.shape.rows == 1 ? 1 : 2)));
  }
  CARAT_TRY(writer.begin_data());
  CARAT_TRY(write_tensors(model, budget, writer));
  CARAT_TRY(writer.finish());
  // What is read again must be the model that was meant.
  CARAT_ASSIGN(const ModelFile written, ModelFile::open(options.output, budget));
  return check_same_model(config, written.config, "this GGUF file");
}

Result<DType> weight_type(const std::string& text) {
  const std::optional<DType> type = dtype_from_name(text);
  if (type && can_dequantize(*type)) return *type;
  return invalid(text + ": not a weight type; examples: q4_0, q8_0, q4_k, bf16");
}

Result<Options> parse(int argc, char** argv) {
  Options options;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (!option.starts_with("--")) {
      paths.push_back(option);
      continue;
    }
    if (++i == argc) return invalid(option + ": needs a value");
    const std::string value = argv[i];
    if (option == "--arch") {
      options.ask.preset = value;
    } else if (option == "--quant") {
      CARAT_ASSIGN(options.ask.quant, weight_type(value));
    } else if (option == "--head-type") {
      CARAT_ASSIGN(options.ask.head, weight_type(value));
    } else if (option == "--seed") {
      const auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), options.ask.seed);
      if (error != std::errc() || *rest != 0) return invalid("--seed " + value + ": expected a number");
    } else {
      return invalid(option + ": no such option");
    }
  }
  if (paths.size() != 2 || options.ask.preset.empty()) {
    return invalid("usage: random_model TOKENIZER.gguf OUT.gguf --arch PRESET [--quant T] [--head-type T] [--seed N]");
  }
  options.tokenizer = paths[0];
  options.output = paths[1];
  return options;
}

}  // namespace
}  // namespace carat

int main(int argc, char** argv) {
  auto options = carat::parse(argc, argv);
  const carat::Status status = options.ok() ? carat::run(*options) : options.status();
  if (status.ok()) return 0;
  fmt::print(stderr, "random_model: {}\n", status.message());
  return carat::exit_code(status.code());
}
