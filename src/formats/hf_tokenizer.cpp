#include "formats/hf_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "formats/sentencepiece_model.h"
#include "os/file.h"

namespace carat {
namespace {

constexpr std::size_t kMostEndIds = 256;

/// Every id that `key` names: a number, or a list of them.
Status collect_ids(const MetaMap& meta, const std::string& key, std::vector<std::int64_t>& ids) {
  const auto found = meta.values().find(key);
  if (found == meta.values().end()) return ok_status();
  const auto failed = [&](std::string_view why) { return invalid(fmt::format("key '{}' {}", key, why)); };
  if (const auto* const one = std::get_if<std::int64_t>(&found->second)) {
    ids.push_back(*one);
  } else if (const auto* const list = std::get_if<NumberList>(&found->second)) {
    if (!list->is_integer()) return failed("holds numbers that are not whole");
    if (list->size() > kMostEndIds) {
      return failed(fmt::format("has {} ids, expected at most {}", list->size(), kMostEndIds));
    }
    for (std::uint64_t i = 0; i < list->size(); ++i) ids.push_back(list->integer(i));
  } else {
    return failed(fmt::format("is {}, expected a token id or a list of them", kind_name(found->second)));
  }
  return ok_status();
}

/// "config." before "config.text_config.": the first of the two that names any.
Status collect_config_ids(const MetaMap& meta, const std::string& name, std::vector<std::int64_t>& ids) {
  CARAT_TRY(collect_ids(meta, "config." + name, ids));
  return ids.empty() ? collect_ids(meta, "config.text_config." + name, ids) : ok_status();
}

/// The id of the piece that `key` names by its text ("<eos>", or an object with content), or nothing.
Result<std::optional<std::int64_t>> id_by_text(const MetaMap& meta, const std::string& key) {
  for (const char* suffix : {"", ".content"}) {
    if (!meta.contains(key + suffix)) continue;
    CARAT_ASSIGN(const auto text, meta.string(key + suffix));
    CARAT_ASSIGN(const auto tokens, meta.strings("tokenizer.ggml.tokens"));
    std::int64_t id = 0;
    for (const std::string_view token : *tokens) {
      if (token == *text) return std::optional(id);
      ++id;
    }
  }
  return std::optional<std::int64_t>();
}

void set_list(MetaMap& meta, const std::string& key, const std::vector<std::int64_t>& ids) {
  const auto copy = std::make_shared<std::vector<std::int64_t>>(ids);
  meta.set(key, NumberList(NumberType::i64, std::as_bytes(std::span(*copy))));
  meta.keep_alive(copy);
}

Status set_end_ids(MetaMap& meta) {
  std::vector<std::int64_t> ids;
  CARAT_TRY(collect_config_ids(meta, "eos_token_id", ids));
  CARAT_TRY(collect_ids(meta, "generation.eos_token_id", ids));
  CARAT_ASSIGN(std::optional<std::int64_t> main, meta.integer("tokenizer.ggml.eos_token_id"));
  if (!main) {
    CARAT_ASSIGN(main, id_by_text(meta, "tokenizer_config.eos_token"));
    if (!main && !ids.empty()) main = ids.front();
    if (main) meta.set("tokenizer.ggml.eos_token_id", *main);
  }
  if (main) ids.push_back(*main);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (ids.size() > 1) set_list(meta, "tokenizer.ggml.eos_token_ids", ids);
  return ok_status();
}

Status set_first_id(MetaMap& meta) {
  if (!meta.contains("tokenizer.ggml.bos_token_id")) {
    std::vector<std::int64_t> ids;
    CARAT_TRY(collect_config_ids(meta, "bos_token_id", ids));
    std::optional<std::int64_t> id;
    CARAT_ASSIGN(id, id_by_text(meta, "tokenizer_config.bos_token"));
    if (!id && !ids.empty()) id = ids.front();
    if (id) meta.set("tokenizer.ggml.bos_token_id", *id);
  }
  if (meta.contains("tokenizer_config.add_bos_token")) {
    CARAT_ASSIGN(const auto adds, meta.boolean("tokenizer_config.add_bos_token"));
    meta.set("tokenizer.ggml.add_bos_token", adds.value_or(false));
  }
  return ok_status();
}

}  // namespace

Status add_hf_tokenizer(const std::string& folder, MetaMap& meta, Budget& budget) {
  const std::filesystem::path path(folder);
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const std::string file_path = (path / name).string();
    if (!std::filesystem::exists(file_path, ignored)) continue;
    CARAT_ASSIGN(const File file, File::open(file_path));
    const FileSource source(file);
    return std::string_view(name) == "tokenizer.json" ? add_tokenizer_json(source, meta, budget)
                                                      : add_sentencepiece_model(source, meta, budget);
  }
  return ok_status();
}

Status add_hf_special_ids(MetaMap& meta) {
  if (!meta.contains("tokenizer.ggml.tokens")) return ok_status();
  CARAT_TRY(set_first_id(meta));
  return set_end_ids(meta);
}

}  // namespace carat
