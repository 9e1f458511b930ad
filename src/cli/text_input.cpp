#include "cli/text_input.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "os/file.h"
#include "text/utf8.h"

namespace carat::cli {

std::string clean_text(const std::string& text) {
  std::uint64_t replaced = 0;
  std::string clean = sanitize_utf8(text, &replaced);
  if (replaced > 0) {
    log_note(fmt::format("the text is not valid UTF-8: {} {} replaced by U+FFFD", replaced,
                         replaced == 1 ? "part was" : "parts were"));
  }
  return clean;
}

Result<std::string> read_input_text(const std::string& path) {
  CARAT_ASSIGN(const std::string text, read_text(path, kMaxTextBytes));
  return clean_text(text);
}

Result<const Tokenizer*> need_tokenizer(const Session& session) {
  if (session.tokenizer() != nullptr) return session.tokenizer();
  return unsupported(fmt::format("{}: the file has no tokenizer; use `logits --ids`, `bench`, `plan` or `info`",
                                 session.file().path));
}

Status check_ids(const std::vector<std::int32_t>& ids, std::uint32_t vocab) {
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= vocab) {
      return invalid(fmt::format("token id {} is outside the vocabulary of {}", id, vocab));
    }
  }
  return ok_status();
}

Result<std::vector<std::int32_t>> parse_ids(const std::string& json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  const Status bad = invalid(fmt::format("'{}' is not a JSON array of token ids such as [2, 105]", json.substr(0, 80)));
  if (!value.is_array()) return bad;
  std::vector<std::int32_t> ids;
  for (const auto& item : value) {
    if (!item.is_number_integer() || item.get<double>() < 0 || item.get<double>() >= 2147483648.0) return bad;
    ids.push_back(item.get<std::int32_t>());
  }
  return ids;
}

}  // namespace carat::cli
