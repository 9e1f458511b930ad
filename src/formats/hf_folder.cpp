#include "formats/hf_folder.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "formats/entry_memory.h"
#include "formats/json_meta.h"
#include "formats/safetensors.h"
#include "formats/text_file.h"
#include "formats/torch_bin.h"

namespace carat {
namespace {

constexpr std::uint64_t kLargestJson = 16 << 20;
constexpr std::uint64_t kLargestTemplate = 1 << 20;

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// Adds the keys of one JSON file; false when there is none.
Result<bool> add_json_file(const std::string& path, std::string_view prefix, Budget& budget, EntryMemory& memory,
                           MetaMap& meta, JsonFilter keep = nullptr) {
  if (!exists(path)) return false;
  CARAT_ASSIGN(const TextFile file, read_text_file(path, budget, kLargestJson));
  Status status = add_json(file.text, prefix, budget, memory, meta, keep);
  if (!status.ok()) return std::move(status).with_context(path);
  return true;
}

/// What is read of tokenizer_config.json; its added_tokens_decoder alone may have thousands of entries.
bool is_wanted_by_text(std::string_view path) {
  constexpr std::array<std::string_view, 8> kWanted{"chat_template", "bos_token", "eos_token",     "unk_token",
                                                    "pad_token",     "add_bos_token", "add_eos_token",
                                                    "tokenizer_class"};
  const std::string_view first = path.substr(0, path.find('.'));
  for (const std::string_view wanted : kWanted) {
    if (first == wanted) return true;
  }
  return false;
}

bool is_template(std::string_view path) { return path == "chat_template"; }

/// Copies a string key to another name, where the first is there and the second is not. Both are views of one text.
Status copy_string(const std::string& from, const std::string& to, MetaMap& meta) {
  if (meta.contains(to)) return ok_status();
  CARAT_ASSIGN(const std::optional<std::string_view> text, meta.string(from));
  if (text) meta.set(to, *text);
  return ok_status();
}

/// A template file of several templates: [{"name": "default", "template": "…"}, …].
Status name_default_template(MetaMap& meta) {
  const std::string list = "tokenizer_config.chat_template.";
  for (int i = 0;; ++i) {
    CARAT_ASSIGN(const std::optional<std::string_view> name, meta.string(fmt::format("{}{}.name", list, i)));
    if (!name) return ok_status();
    if (*name != "default") continue;
    return copy_string(fmt::format("{}{}.template", list, i), "tokenizer_config.chat_template", meta);
  }
}

Status read_tokenizer_config(const std::string& folder, Budget& budget, EntryMemory& memory, MetaMap& meta) {
  const std::string prefix = "tokenizer_config.";
  CARAT_TRY(add_json_file(folder + "tokenizer_config.json", prefix, budget, memory, meta, is_wanted_by_text).status());
  for (const std::string_view token : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const std::string key = prefix + std::string(token);
    CARAT_TRY(copy_string(key + ".content", key, meta));
  }
  return name_default_template(meta);
}

Status read_chat_template(const std::string& folder, Budget& budget, EntryMemory& memory, MetaMap& meta) {
  const std::string path = folder + "chat_template.jinja";
  if (exists(path)) {
    CARAT_ASSIGN(TextFile file, read_text_file(path, budget, kLargestTemplate));
    meta.set("chat_template", file.text);
    meta.keep_alive(std::move(file.memory));
    return ok_status();
  }
  CARAT_TRY(add_json_file(folder + "chat_template.json", "", budget, memory, meta, is_template).status());
  Status status = copy_string("tokenizer_config.chat_template", "chat_template", meta);
  return status.ok() ? ok_status() : std::move(status).with_context(folder + "tokenizer_config.json");
}

Result<TensorFiles> read_weights(const std::string& folder, Budget& budget) {
  struct Form {
    std::string_view file;
    Result<TensorFiles> (*read)(const std::string& path, Budget& budget);
  };
  constexpr std::array<Form, 4> kForms{{{"model.safetensors", read_safetensors},
                                        {"model.safetensors.index.json", read_sharded_safetensors},
                                        {"pytorch_model.bin", read_torch_bin},
                                        {"pytorch_model.bin.index.json", read_sharded_torch_bin}}};
  for (const Form& form : kForms) {
    const std::string path = folder + std::string(form.file);
    if (exists(path)) return form.read(path, budget);
  }
  return invalid(fmt::format("{}: has no weights: none of model.safetensors, model.safetensors.index.json, "
                             "pytorch_model.bin and pytorch_model.bin.index.json is there",
                             folder));
}

}  // namespace

Result<HfFolder> read_hf_folder(const std::string& path, Budget& budget) {
  const std::string folder = path.ends_with('/') ? path : path + '/';
  std::error_code failure;
  if (!std::filesystem::is_directory(folder, failure)) {
    return io_error(fmt::format("{}: {}", path, failure ? failure.message() : "is not a folder"));
  }
  HfFolder model;
  EntryMemory memory(budget, model.directory_memory);
  CARAT_ASSIGN(const bool has_config, add_json_file(folder + "config.json", "config.", budget, memory, model.meta));
  if (!has_config) return invalid(fmt::format("{}config.json is missing: not a Hugging Face model folder", folder));
  CARAT_TRY(add_json_file(folder + "generation_config.json", "generation.", budget, memory, model.meta).status());
  CARAT_TRY(read_tokenizer_config(folder, budget, memory, model.meta));
  CARAT_TRY(read_chat_template(folder, budget, memory, model.meta));
  CARAT_ASSIGN(TensorFiles weights, read_weights(folder, budget));
  model.tensors = std::move(weights.tensors);
  for (Reservation& held : weights.directory_memory) model.directory_memory.push_back(std::move(held));
  return model;
}

}  // namespace carat
