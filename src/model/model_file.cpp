#include "model/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "arch/tensor_roles.h"
#include "base/log.h"
#include "formats/gguf.h"
#include "formats/hf_folder.h"
#include "formats/hf_tokenizer.h"
#include "model/random_model.h"

namespace carat {
namespace {

std::string names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error); !error && entry != end(entry);
       entry.increment(error)) {
    if (entry->path().extension() == ".gguf") names.push_back(entry->path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string models_folder() {
  if (const char* folder = std::getenv("CARAT_MODELS"); folder != nullptr && *folder != 0) return folder;
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "" : home) + "/.cache/carat/models";
}

Result<std::string> resolve_model(const std::string& model) {
  if (model.empty()) return invalid("the model's name is empty");
  std::error_code error;
  // What exists is taken as it is, so that a directory or a device gets its own error when it is opened.
  if (std::filesystem::exists(model, error) || error) return model;
  if (model.find('/') == std::string::npos) {
    const std::filesystem::path folder = models_folder();
    for (const std::string& name : {model + ".gguf", model}) {
      if (std::filesystem::exists(folder / name, error)) return (folder / name).string();
    }
    return invalid(
        fmt::format("{}: no such file, nor a model of that name in {} (there: {}); `carat pull` "
                    "fetches models",
                    model, folder.string(), names_in(folder)));
  }
  return io_error(fmt::format("{}: no such file", model));
}

namespace {

Status read_gguf_into(ModelFile& file, Budget& budget) {
  CARAT_ASSIGN(GgufFile gguf, read_gguf(file.path, budget));
  file.format = fmt::format("GGUF version {}", gguf.version);
  file.meta = std::move(gguf.meta);
  file.tensors = std::move(gguf.tensors);
  file.directory_memory = std::move(gguf.directory_memory);
  auto config = config_from_gguf(file.meta, file.tensors);
  if (!config.ok()) return std::move(config).status().with_context(file.path);
  file.config = std::move(config).value();
  return ok_status();
}

Status read_hf_into(ModelFile& file, Budget& budget) {
  CARAT_ASSIGN(HfFolder folder, read_hf_folder(file.path, budget));
  file.format = "Hugging Face folder";
  file.meta = std::move(folder.meta);
  file.directory_memory = std::move(folder.directory_memory);
  std::vector<std::string> skipped;
  auto tensors = rename_hf_tensors(file.meta, folder.tensors, skipped);
  if (!tensors.ok()) return std::move(tensors).status().with_context(file.path);
  file.tensors = std::move(tensors).value();
  if (!skipped.empty()) {
    log_note(fmt::format("{}: {} tensors that text generation does not use are skipped: {}, …", file.path,
                         skipped.size(), skipped.front()));
  }
  auto config = config_from_hf(file.meta, file.tensors);
  if (!config.ok()) return std::move(config).status().with_context(file.path);
  file.config = std::move(config).value();
  Status status = add_hf_tokenizer(file.path, file.meta, budget);
  if (status.ok()) status = add_hf_special_ids(file.meta);
  return std::move(status).with_context(file.path);
}

}  // namespace

Result<ModelFile> ModelFile::open(const std::string& path, Budget& budget) {
  ModelFile file;
  file.path = path;
  std::error_code error;
  CARAT_TRY(std::filesystem::is_directory(path, error) ? read_hf_into(file, budget) : read_gguf_into(file, budget));
  for (const std::string& name : file.tensors.files) {
    CARAT_ASSIGN(File data, File::open(name));
    file.file_bytes += data.bytes();
    file.files.push_back(std::move(data));
  }
  std::vector<std::string> unused;
  auto bound = bind_tensors(file.config, file.tensors, &unused);
  if (!bound.ok()) return std::move(bound).status().with_context(path);
  for (const std::string& name : unused) {
    // A weight of a layer that the architecture has no place for would silently be left out of every token.
    if (name.starts_with("blk.") || name.starts_with("layers.") || name.starts_with("model.layers.")) {
      return unsupported(
          fmt::format("{}: tensor '{}' has no place in architecture '{}'; without it the numbers would be "
                      "wrong",
                      path, name, file.config.architecture));
    }
  }
  if (!unused.empty()) {
    log_note(fmt::format("{}: {} {} not used: {}{}", path, unused.size(),
                         unused.size() == 1 ? "tensor is" : "tensors are", unused.front(),
                         unused.size() == 1 ? "" : ", …"));
  }
  return file;
}

std::unique_ptr<TensorSource> ModelFile::tensor_source() const {
  if (random_seed) return std::make_unique<RandomTensors>(*random_seed);
  return std::make_unique<FileTensors>(files);
}

Result<std::unique_ptr<Tokenizer>> ModelFile::tokenizer(Budget& budget) const {
  if (!Tokenizer::present(meta)) return std::unique_ptr<Tokenizer>();
  auto made = Tokenizer::create(meta, budget);
  if (!made.ok()) return std::move(made).status().with_context(path);
  if (static_cast<std::uint32_t>(made.value()->size()) > config.vocab) {
    return invalid(fmt::format("{}: the tokenizer has {} pieces, but tensor 'token_embd.weight' only {} rows", path,
                               made.value()->size(), config.vocab));
  }
  return made;
}

std::string ModelFile::chat_template() const {
  // GGUF's key, then a Hugging Face folder's own file, then the older place inside tokenizer_config.json.
  for (const char* key : {"tokenizer.chat_template", "chat_template", "tokenizer_config.chat_template"}) {
    const auto text = meta.string(key);
    if (text.ok() && text.value()) return std::string(*text.value());
  }
  return {};
}

}  // namespace carat
