#include "model/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "arch/families.h"
#include "arch/tensor_roles.h"
#include "base/log.h"

namespace carat {
namespace {

std::filesystem::path models_folder() {
  if (const char* folder = std::getenv("CARAT_MODELS"); folder != nullptr && *folder != 0) return folder;
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "" : home) / ".cache/carat/models";
}

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
    return invalid(fmt::format("{}: no such file, nor a model of that name in {} (there: {})", model, folder.string(),
                               names_in(folder)));
  }
  return io_error(fmt::format("{}: no such file", model));
}

Result<ModelFile> ModelFile::open(const std::string& path, Budget& budget) {
  ModelFile file;
  file.path = path;
  CARAT_ASSIGN(file.gguf, read_gguf(path, budget));
  auto config = config_from_gguf(file.gguf.meta, file.gguf.tensors);
  if (!config.ok()) return std::move(config).status().with_context(path);
  file.config = std::move(config).value();
  for (const std::string& name : file.gguf.tensors.files) {
    CARAT_ASSIGN(File data, File::open(name));
    file.files.push_back(std::move(data));
  }
  std::vector<std::string> unused;
  auto bound = bind_tensors(file.config, file.gguf.tensors, &unused);
  if (!bound.ok()) return std::move(bound).status().with_context(path);
  if (!unused.empty()) {
    log_note(fmt::format("{}: {} {} not used: {}{}", path, unused.size(),
                         unused.size() == 1 ? "tensor is" : "tensors are", unused.front(),
                         unused.size() == 1 ? "" : ", …"));
  }
  return file;
}

Result<std::unique_ptr<Tokenizer>> ModelFile::tokenizer(Budget& budget) const {
  if (!Tokenizer::present(gguf.meta)) return std::unique_ptr<Tokenizer>();
  auto made = Tokenizer::create(gguf.meta, budget);
  if (!made.ok()) return std::move(made).status().with_context(path);
  if (static_cast<std::uint32_t>(made.value()->size()) > config.vocab) {
    return invalid(fmt::format("{}: the tokenizer has {} pieces, but tensor 'token_embd.weight' only {} rows", path,
                               made.value()->size(), config.vocab));
  }
  return made;
}

std::string ModelFile::chat_template() const {
  const auto text = gguf.meta.string("tokenizer.chat_template");
  return text.ok() && text.value() ? std::string(*text.value()) : std::string();
}

}  // namespace carat
