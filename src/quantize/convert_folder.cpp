#include "quantize/convert_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "arch/hf_config.h"
#include "arch/hf_export.h"
#include "formats/entry_memory.h"
#include "formats/json_meta.h"
#include "quantize/convert_json.h"
#include "quantize/convert_keys.h"
#include "quantize/convert_tokenizer.h"

namespace carat {
namespace {

namespace fs = std::filesystem;

Status failed(const std::string& path, std::string_view action, const std::error_code& error) {
  return io_error(fmt::format("{}: cannot {}: {}", path, action, error.message()));
}

}  // namespace

Result<PartialFolder> PartialFolder::create(const std::string& target) {
  PartialFolder folder;
  folder.target_ = target;
  while (folder.target_.size() > 1 && folder.target_.ends_with('/')) folder.target_.pop_back();
  const std::string temporary = fmt::format("{}.partial-{}", folder.target_, getpid());
  std::error_code error;
  fs::remove_all(temporary, error);  // of a killed process that had this number
  if (!fs::create_directory(temporary, error)) return failed(temporary, "create", error);
  folder.temporary_ = temporary;
  return folder;
}

PartialFolder::PartialFolder(PartialFolder&& other) noexcept
    : target_(std::move(other.target_)), temporary_(std::exchange(other.temporary_, {})) {}

PartialFolder::~PartialFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

Status PartialFolder::commit() {
  const int descriptor = open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0) {
    fsync(descriptor);
    close(descriptor);
  }
  std::error_code error;
  const std::string aside = fmt::format("{}.replaced-{}", target_, getpid());
  const bool replaces = fs::exists(target_, error);
  if (replaces) fs::rename(target_, aside, error);
  if (error) return failed(target_, "move aside what is there", error);
  fs::rename(temporary_, target_, error);
  if (error) {
    std::error_code ignored;
    if (replaces) fs::rename(aside, target_, ignored);
    return failed(target_, "put the finished folder in place", error);
  }
  temporary_.clear();
  if (replaces) fs::remove_all(aside, error);
  return ok_status();
}

bool is_model_folder(const std::string& path) {
  std::error_code error;
  bool empty = true;
  bool has_config = false;
  for (auto entry = fs::directory_iterator(path, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    empty = false;
    has_config = has_config || entry->path().filename() == "config.json";
    if (!entry->is_regular_file(error)) return false;
  }
  return !error && (empty || has_config);
}

namespace {

Result<HfSpecialIds> special_ids(const MetaMap& meta) {
  HfSpecialIds ids;
  const std::int64_t pieces = [&] {
    const auto tokens = meta.strings("tokenizer.ggml.tokens");
    return tokens.ok() && *tokens ? static_cast<std::int64_t>((*tokens)->size()) : 0;
  }();
  for (const auto& [key, id] : {std::pair("tokenizer.ggml.bos_token_id", &ids.bos),
                                std::pair("tokenizer.ggml.eos_token_id", &ids.eos),
                                std::pair("tokenizer.ggml.padding_token_id", &ids.pad)}) {
    CARAT_ASSIGN(*id, meta.integer(key));
    if (*id && (**id < 0 || **id >= pieces)) id->reset();
  }
  return ids;
}

/// The ids that end an answer: those the file names, and its marker of a turn's end.
Result<std::vector<std::int64_t>> end_ids(const MetaMap& meta, const HfSpecialIds& special) {
  std::vector<std::int64_t> ids;
  if (special.eos) ids.push_back(*special.eos);
  CARAT_ASSIGN(const auto list, meta.numbers("tokenizer.ggml.eos_token_ids"));
  constexpr std::uint64_t kMostIds = 256;
  for (std::uint64_t i = 0; list && i < std::min(list->size(), kMostIds); ++i) ids.push_back(list->integer(i));
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    CARAT_ASSIGN(const auto id, meta.integer(key));
    if (id) ids.push_back(*id);
  }
  CARAT_ASSIGN(const auto kinds, meta.numbers("tokenizer.ggml.token_type"));
  for (const char* marker : {"<end_of_turn>", "<|eot_id|>", "<|im_end|>"}) {
    CARAT_ASSIGN(const auto id, piece_id(meta, marker));
    constexpr std::int64_t kControl = 3;
    const bool known = id && kinds && static_cast<std::uint64_t>(*id) < kinds->size();
    if (known && kinds->integer(static_cast<std::uint64_t>(*id)) == kControl) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Result<std::string> generation_config(const MetaMap& meta, const HfSpecialIds& special) {
  CARAT_ASSIGN(const std::vector<std::int64_t> ends, end_ids(meta, special));
  const auto id_text = [](const std::optional<std::int64_t>& id) { return id ? std::to_string(*id) : "null"; };
  return fmt::format("{{\n  \"bos_token_id\": {},\n  \"eos_token_id\": {},\n  \"pad_token_id\": {}\n}}\n",
                     id_text(special.bos), ends.empty() ? "null" : fmt::format("[{}]", fmt::join(ends, ", ")),
                     id_text(special.pad));
}

Result<std::string> tokenizer_config(const MetaMap& meta, std::uint32_t context) {
  std::string text = "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"";
  for (const auto& [name, key] : {std::pair("bos_token", "bos_token_id"), std::pair("eos_token", "eos_token_id"),
                                  std::pair("unk_token", "unknown_token_id"),
                                  std::pair("pad_token", "padding_token_id")}) {
    CARAT_ASSIGN(const auto id, meta.integer(std::string("tokenizer.ggml.") + key));
    CARAT_ASSIGN(const auto tokens, meta.strings("tokenizer.ggml.tokens"));
    std::int64_t at = 0;
    for (const std::string_view token : *tokens) {
      if (id && at++ == *id) text += fmt::format(",\n  \"{}\": {}", name, json_quoted(token));
    }
  }
  for (const char* flag : {"add_bos_token", "add_eos_token"}) {
    CARAT_ASSIGN(const auto value, meta.boolean(std::string("tokenizer.ggml.") + flag));
    if (value) text += fmt::format(",\n  \"{}\": {}", flag, *value);
  }
  return text + fmt::format(",\n  \"clean_up_tokenization_spaces\": false,\n  \"model_max_length\": {}\n}}\n", context);
}

/// A model card's head. Everything else of general.… goes to carat_convert.json.
Status write_card(const MetaMap& general, const PartialFolder& folder) {
  std::string head;
  for (const auto& [name, key] : {std::pair("license", "general.license"),
                                  std::pair("license_name", "general.license.name"),
                                  std::pair("license_link", "general.license.link"),
                                  std::pair("model_name", "general.name")}) {
    CARAT_ASSIGN(const auto value, general.string(key));
    if (value) head += fmt::format("{}: {}\n", name, json_quoted(*value));
  }
  if (head.empty()) return ok_status();
  CARAT_ASSIGN(const auto name, general.string("general.name"));
  return write_text_file(folder.path("README.md"), fmt::format("---\nlibrary_name: transformers\n{}---\n# {}\n", head,
                                                               name.value_or("A model")));
}

Status copy_files(const ModelFile& source, const PartialFolder& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
                           "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json",
                           "generation_config.json", "README.md", "LICENSE", "LICENSE.txt", "NOTICE", "NOTICE.md"}) {
    const fs::path from = fs::path(source.path) / name;
    std::error_code error;
    if (!fs::is_regular_file(from, error)) continue;
    fs::copy_file(from, folder.path(name), error);
    if (error) return failed(folder.path(name), "copy", error);
  }
  return ok_status();
}

/// config.json, once read back it says the same model.
Status write_config(const ModelFile& source, const ModelConfig& config, DType type, const PartialFolder& folder,
                    Budget& budget) {
  CARAT_ASSIGN(const HfSpecialIds ids, special_ids(source.meta));
  CARAT_ASSIGN(const std::string text, hf_config_json(config, ids, type));
  MetaMap meta;
  std::vector<Reservation> held;
  EntryMemory memory(budget, held);
  CARAT_TRY(add_json(text, "config.", budget, memory, meta));
  CARAT_ASSIGN(const ModelConfig read, config_from_hf(meta, source.tensors));
  CARAT_TRY(check_same_model(config, read, "config.json"));
  return write_text_file(folder.path("config.json"), text);
}

Status write_tokenizer(const ModelFile& source, const PartialFolder& folder, Budget& budget,
                       std::vector<std::string>& changes) {
  const MetaMap& meta = source.meta;
  CARAT_ASSIGN(const HfSpecialIds ids, special_ids(meta));
  CARAT_ASSIGN(const std::string generation, generation_config(meta, ids));
  CARAT_TRY(write_text_file(folder.path("generation_config.json"), generation));
  if (!meta.contains("tokenizer.ggml.tokens")) {
    changes.push_back("the input has no tokenizer, so the folder has none");
    return ok_status();
  }
  const Status status = write_tokenizer_json(meta, folder.path("tokenizer.json"), budget);
  if (status.code() == StatusCode::unsupported) {
    changes.push_back("no tokenizer.json was written: " + status.message());
  } else {
    CARAT_TRY(status);
  }
  CARAT_ASSIGN(const std::string config, tokenizer_config(meta, source.config.context));
  return write_text_file(folder.path("tokenizer_config.json"), config);
}

}  // namespace

Status write_folder_files(const ModelFile& source, const ModelConfig& config, const MetaMap& general, DType type,
                          const PartialFolder& folder, Budget& budget, std::vector<std::string>& changes) {
  CARAT_TRY(write_config(source, config, type, folder, budget));
  if (!source.meta.contains("general.architecture")) return copy_files(source, folder);
  CARAT_TRY(write_tokenizer(source, folder, budget, changes));
  const std::string chat_template = source.chat_template();
  if (!chat_template.empty()) CARAT_TRY(write_text_file(folder.path("chat_template.jinja"), chat_template));
  return write_card(general, folder);
}

namespace {

std::string files_json(const std::vector<HashedFile>& files) {
  std::string text = "[";
  for (const HashedFile& file : files) {
    text += fmt::format("{}\n    {{\"file\": {}, \"bytes\": {}, \"sha256\": \"{}\"}}", text.size() == 1 ? "" : ",",
                        json_quoted(fs::path(file.path).filename().string()), file.bytes, file.sha256);
  }
  return text + (files.empty() ? "]" : "\n  ]");
}

}  // namespace

std::string notes_text(const ConvertReport& report, const MetaMap& general) {
  std::string text = fmt::format("{{\n  \"about\": \"written by carat convert\",\n  \"inputs\": {},\n  \"outputs\": {}",
                                 files_json(report.inputs), files_json(report.outputs));
  text += ",\n  \"changes\": [";
  for (std::size_t i = 0; i < report.changes.size(); ++i) {
    text += (i == 0 ? "" : ", ") + json_quoted(report.changes[i]);
  }
  text += "],\n  \"metadata\": {";
  const char* before = "\n";
  for (const auto& [key, value] : general.values()) {
    std::string written;
    if (const auto* string = std::get_if<std::string_view>(&value)) written = json_quoted(*string);
    if (const auto* integer = std::get_if<std::int64_t>(&value)) written = std::to_string(*integer);
    if (const auto* boolean = std::get_if<bool>(&value)) written = *boolean ? "true" : "false";
    if (const auto* list = std::get_if<StringList>(&value); list != nullptr && list->size() > 0) {
      for (const std::string_view one : *list) written += (written.empty() ? "[" : ", ") + json_quoted(one);
      written += "]";
    }
    if (written.empty()) continue;
    text += fmt::format("{}    {}: {}", before, json_quoted(key), written);
    before = ",\n";
  }
  return text + "\n  }\n}\n";
}

}  // namespace carat
