#include "quantize/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "arch/families.h"
#include "arch/hf_export.h"
#include "arch/rope_factors.h"
#include "formats/gguf_writer.h"
#include "formats/safetensors_writer.h"
#include "model/model_file.h"
#include "os/sha256.h"
#include "quant/codec.h"
#include "quantize/convert_folder.h"
#include "quantize/convert_json.h"
#include "quantize/convert_keys.h"
#include "quantize/convert_tensors.h"

namespace carat {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTypes{DType::f32, DType::f16, DType::bf16, DType::q8_0};

std::string known_types(bool floats_alone) {
  std::string text;
  for (const DType type : kTypes) {
    if (is_float(type) || !floats_alone) text += (text.empty() ? "" : ", ") + std::string(name(type));
  }
  return text;
}

bool is_gguf_path(const std::string& path) { return path.ends_with(".gguf"); }
bool is_folder(const ModelFile& source) { return !source.meta.contains("general.architecture"); }

Status check_target(const ConvertOptions& options) {
  const std::string& out = options.output;
  std::error_code error;
  if (out.empty()) return invalid("OUT is empty: expected a folder's name, or one that ends in .gguf");
  for (const char* ending : {".lct", ".safetensors", ".bin", ".pt", ".pth", ".onnx"}) {
    if (out.ends_with(ending)) {
      return unsupported(fmt::format("{}: {} files are not written; OUT is a folder's name for Hugging Face, or ends "
                                     "in .gguf",
                                     out, ending));
    }
  }
  if (options.type && *options.type == DType::q8_0 && !is_gguf_path(out)) {
    return unsupported(fmt::format("--type q8_0: a Hugging Face folder holds {}; a name that ends in .gguf holds q8_0",
                                   known_types(true)));
  }
  if (!fs::exists(fs::symlink_status(out, error))) return ok_status();
  if (fs::equivalent(out, options.input, error)) return invalid(fmt::format("{}: IN and OUT are the same", out));
  if (!options.force) return invalid(fmt::format("{}: is there already; --force replaces it", out));
  if (is_gguf_path(out) && !fs::is_regular_file(out, error)) {
    return invalid(fmt::format("{}: is no regular file; --force does not replace it", out));
  }
  if (!is_gguf_path(out) && !(fs::is_directory(fs::symlink_status(out, error)) && is_model_folder(out))) {
    return invalid(fmt::format("{}: is not a model folder alone (config.json, no folders inside); --force does not "
                               "replace it",
                               out));
  }
  return ok_status();
}

Result<HashedFile> hashed(const std::string& path) {
  CARAT_ASSIGN(const File file, File::open(path));
  CARAT_ASSIGN(std::string digest, sha256(file));
  return HashedFile{path, file.bytes(), std::move(digest)};
}

class Conversion {
 public:
  Conversion(const ConvertOptions& options, Budget& budget) : options_(options), budget_(budget) {}

  Result<ConvertReport> run() {
    CARAT_TRY(check_target(options_));
    CARAT_ASSIGN(source_, ModelFile::open(options_.input, budget_));
    CARAT_TRY(hash_inputs());
    CARAT_ASSIGN(general_, general_keys(source_, budget_));
    CARAT_ASSIGN(std::vector<BoundTensor> bound, bind_tensors(source_.config, source_.tensors, &unused_));
    if (!unused_.empty()) {
      report_.changes.push_back(fmt::format("{} tensors that carat does not know are left out: {}{}", unused_.size(),
                                            unused_.front(), unused_.size() > 1 ? ", …" : ""));
    }
    CARAT_TRY(is_gguf_path(options_.output) ? write_gguf(bound) : write_folder(bound));
    return std::move(report_);
  }

 private:
  Status stopped() const { return interrupted("stopped by a signal; nothing was written"); }
  bool goes_on() const { return !options_.progress || options_.progress(done_, std::max<std::uint64_t>(total_, 1)); }

  Status hash_inputs() {
    std::vector<std::string> paths = source_.tensors.files;
    if (is_folder(source_)) {
      for (const char* file : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer.model",
                               "tokenizer_config.json", "chat_template.jinja"}) {
        const std::string path = (fs::path(source_.path) / file).string();
        std::error_code ignored;
        if (fs::is_regular_file(path, ignored)) paths.push_back(path);
      }
    }
    for (const std::string& path : paths) {
      if (!goes_on()) return stopped();
      CARAT_ASSIGN(HashedFile file, hashed(path));
      report_.inputs.push_back(std::move(file));
    }
    return ok_status();
  }

  /// What a matrix becomes: the asked type, or what is stored where the target can hold it.
  DType matrix_type(const TensorEntry& entry, bool gguf) {
    if (options_.type && entry.shape.columns % info(*options_.type).block_elements != 0) {
      ++odd_rows_;
      return DType::f16;
    }
    if (options_.type) return *options_.type;
    return gguf || is_float(entry.type) ? entry.type : DType::f32;
  }

  Result<std::vector<OutputTensor>> outputs(const std::vector<BoundTensor>& bound, bool gguf) {
    std::vector<OutputTensor> tensors;
    for (const BoundTensor& one : bound) {
      const bool factors = one.slot.role == TensorRole::rope_factors;
      OutputTensor tensor{one.slot.name, one.slot, one.entry, {}, DType::f32};
      if (factors && !gguf) continue;
      if (factors && one.entry == nullptr && source_.config.layers.front().rope.llama3.factor > 0) {
        tensor.values = llama3_rope_factors(source_.config.layers.front().rope, source_.config.head_dim);
      } else if (one.entry == nullptr) {
        continue;
      } else if (!is_vector(one.slot.role)) {
        tensor.type = matrix_type(*one.entry, gguf);
      } else if (!gguf) {
        tensor.type = options_.type.value_or(is_folder(source_) ? one.entry->type : DType::f32);
      }
      if (!gguf) tensor.name = hf_tensor_name(source_.config, one.slot);
      total_ += one.entry == nullptr ? 0 : one.entry->bytes;
      tensors.push_back(std::move(tensor));
    }
    if (odd_rows_ > 0) {
      report_.changes.push_back(fmt::format("{} matrices are f16: their rows are not a multiple of the {} values in a "
                                            "block of {}",
                                            odd_rows_, info(*options_.type).block_elements, name(*options_.type)));
    }
    return tensors;
  }

  template <typename Writer>
  Status write_tensors(const std::vector<OutputTensor>& tensors, TensorConvention target, Writer& writer) {
    CARAT_ASSIGN(TensorConverter converter, TensorConverter::create(source_, target, budget_));
    for (const OutputTensor& tensor : tensors) {
      const std::uint64_t before = done_;
      CARAT_TRY(converter.convert(
          tensor, [&](std::span<const std::byte> bytes) { return writer.write(bytes); },
          [&](std::uint64_t bytes) {
            done_ = before + bytes;
            return goes_on();
          }).with_context(options_.input));
    }
    if (converter.rounded_norms() > 0) {
      report_.changes.push_back(fmt::format("{} norm weights lost their last bit to {} 1", converter.rounded_norms(),
                                            target.norm_offset == 0 ? "adding" : "taking off"));
    }
    return ok_status();
  }

  void note_types(const std::vector<OutputTensor>& tensors) {
    std::uint64_t lossy = 0;
    for (const OutputTensor& tensor : tensors) {
      if (tensor.source == nullptr || tensor.source->type == tensor.type || tensor.type == DType::f32) continue;
      ++lossy;
    }
    if (lossy > 0) report_.changes.push_back(fmt::format("{} tensors were rounded to another type", lossy));
  }

  // --- GGUF ---

  Status write_gguf(const std::vector<BoundTensor>& bound) {
    CARAT_ASSIGN(const std::vector<OutputTensor> tensors, outputs(bound, true));
    const bool from_folder = is_folder(source_);
    std::optional<DType> matrices = options_.type;
    if (!matrices && from_folder) matrices = source_.tensors.find("token_embd.weight")->type;
    CARAT_ASSIGN(MetaMap keys, gguf_keys(source_, general_, matrices));
    if (from_folder) CARAT_TRY(check_gguf(keys, tensors));
    std::string hashes;
    for (const HashedFile& file : report_.inputs) hashes += (hashes.empty() ? "" : " ") + file.sha256;
    keys.set_string("carat.source_sha256", hashes);
    note_types(tensors);

    CARAT_ASSIGN(GgufWriter writer, GgufWriter::create(options_.output, budget_));
    CARAT_TRY(add_keys(keys, writer).with_context(options_.output));
    for (const OutputTensor& tensor : tensors) {
      const Shape& shape = tensor.slot.shape;
      const std::uint64_t dimensions[2] = {shape.columns, shape.rows};
      CARAT_TRY(writer.add_tensor(tensor.name, tensor.type, std::span(dimensions, is_vector(tensor.slot.role) ? 1 : 2))
                    .with_context(options_.output));
    }
    CARAT_TRY(writer.begin_data());
    const Family& family = *find_family(source_.config.architecture);
    CARAT_TRY(write_tensors(tensors, {.norm_offset = 0, .adjacent_pairs = family.adjacent_pairs_in_gguf}, writer));
    CARAT_TRY(writer.finish());
    CARAT_ASSIGN(HashedFile file, hashed(options_.output));
    report_.outputs.push_back(std::move(file));
    return write_text_file(fmt::format("{}.{}", options_.output, kNotesFile), notes_text(report_, general_));
  }

  /// Before anything is written: would the keys give the same model again?
  Status check_gguf(const MetaMap& keys, const std::vector<OutputTensor>& tensors) {
    TensorDir directory;
    for (const OutputTensor& tensor : tensors) {
      CARAT_TRY(directory.add({.name = tensor.name, .type = tensor.type, .shape = tensor.slot.shape}));
    }
    CARAT_ASSIGN(const ModelConfig written, config_from_gguf(keys, directory));
    ModelConfig wanted = source_.config;
    const bool never_local = find_family(wanted.architecture)->global_every == 0;
    std::uint32_t dropped_window = 0;
    for (LayerSpec& layer : wanted.layers) {
      layer.rope.llama3 = {};  // GGUF holds its factors, as a tensor
      if (!never_local || layer.attention == AttentionKind::global) continue;
      dropped_window = layer.window;
      layer.attention = AttentionKind::global;
      layer.window = 0;
    }
    if (dropped_window > 0) {
      report_.changes.push_back(fmt::format("GGUF files of '{}' have no window: beyond {} tokens the output attends to "
                                            "more",
                                            wanted.architecture, dropped_window));
    }
    return check_same_model(wanted, written, "a GGUF file").with_context(options_.input);
  }

  // --- Hugging Face ---

  Result<ModelConfig> config_with_scaling() const {
    ModelConfig config = source_.config;
    const TensorEntry* entry = source_.tensors.find("rope_freqs.weight");
    if (entry == nullptr) return config;
    // At most 2^11 factors, a head's half.
    std::vector<std::byte> stored(entry->bytes);
    std::vector<float> factors(entry->shape.columns);
    CARAT_TRY(source_.files[entry->file].read(entry->offset, stored));
    dequantize_row(entry->type, stored.data(), factors.size(), factors.data());
    for (const float factor : factors) {
      if (!(factor > 0) || factor > 1e9F) return invalid("tensor 'rope_freqs.weight' holds a factor out of range");
    }
    if (std::all_of(factors.begin(), factors.end(), [](float factor) { return factor == 1; })) return config;
    CARAT_ASSIGN(const Llama3RopeScaling scaling, llama3_from_rope_factors(factors, config.layers.front().rope.base));
    for (LayerSpec& layer : config.layers) layer.rope.llama3 = scaling;
    return config;
  }

  Status write_folder(const std::vector<BoundTensor>& bound) {
    CARAT_ASSIGN(const ModelConfig config, config_with_scaling());
    CARAT_ASSIGN(const std::vector<OutputTensor> tensors, outputs(bound, false));
    note_types(tensors);
    CARAT_ASSIGN(PartialFolder folder, PartialFolder::create(options_.output));
    CARAT_TRY(write_folder_files(source_, config, general_, tensors.front().type, folder, budget_, report_.changes));
    const std::string weights = folder.path("model.safetensors");
    CARAT_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(weights, budget_));
    for (const OutputTensor& tensor : tensors) {
      const Shape& shape = tensor.slot.shape;
      const std::uint64_t dimensions[2] = {shape.rows, shape.columns};
      const std::span<const std::uint64_t> all(dimensions);
      CARAT_TRY(writer.add_tensor(tensor.name, tensor.type, is_vector(tensor.slot.role) ? all.last(1) : all));
    }
    CARAT_TRY(writer.begin_data());
    const Family& family = *find_family(config.architecture);
    CARAT_TRY(write_tensors(tensors, {.norm_offset = family.offset_norms ? 1.0F : 0.0F}, writer));
    CARAT_TRY(writer.finish());
    CARAT_TRY(hash_folder(folder));
    CARAT_TRY(write_text_file(folder.path(kNotesFile), notes_text(report_, general_)));
    if (!goes_on()) return stopped();
    return folder.commit();
  }

  /// The files by the paths they will have.
  Status hash_folder(const PartialFolder& folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (auto entry = fs::directory_iterator(folder.path(""), error); !error && entry != fs::directory_iterator();
         entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    std::sort(names.begin(), names.end());
    for (const std::string& file : names) {
      if (!goes_on()) return stopped();
      CARAT_ASSIGN(HashedFile digest, hashed(folder.path(file)));
      digest.path = (fs::path(options_.output) / file).string();
      report_.outputs.push_back(std::move(digest));
    }
    return ok_status();
  }

  const ConvertOptions& options_;
  Budget& budget_;
  ModelFile source_;
  MetaMap general_;
  std::vector<std::string> unused_;
  ConvertReport report_;
  std::uint64_t odd_rows_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace

Result<DType> conversion_type(const std::string& text) {
  std::string lower = text;
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const std::optional<DType> type = dtype_from_name(lower);
  if (type && std::find(kTypes.begin(), kTypes.end(), *type) != kTypes.end()) return *type;
  return invalid(fmt::format("--type {}: known are {}", text, known_types(false)));
}

Result<ConvertReport> convert(const ConvertOptions& options, Budget& budget) {
  return Conversion(options, budget).run();
}

}  // namespace carat
