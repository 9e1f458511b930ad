#include "cli/text_input.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "memory/grow_reserved.h"
#include "os/file.h"
#include "os/signals.h"
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

namespace {

/// The text, its repaired copy and its tokens exist at once: about four times its bytes.
constexpr std::uint64_t kCopies = 4;

/// Most bytes of text that the budget leaves room for, however small the model.
Result<std::uint64_t> text_limit(const CommonOptions& options) {
  if (options.memory.empty()) return kMaxTextBytes;
  CARAT_ASSIGN(const SessionOptions asked, options.session());
  CARAT_ASSIGN(const ProcessFacts process, process_facts(asked.memory, asked.threads));
  return std::min(kMaxTextBytes, process.limit / kCopies);
}

}  // namespace

Budget& input_budget() {
  static Budget budget;
  return budget;
}

Result<InputText> read_input_text(const std::string& path, const CommonOptions& options) {
  CARAT_ASSIGN(const std::uint64_t limit, text_limit(options));
  InputText input;
  Status status = read_text(path, limit, [&](std::string_view block) {
    CARAT_TRY(grow_reserved(input_budget(), MemoryCategory::io, "a text", block.size(), input.text, input.room));
    input.text.append(block);
    return ok_status();
  });
  // read_text() reports a text beyond its limit as bad input; here it is the budget that it does not fit.
  if (status.code() == StatusCode::invalid && limit < kMaxTextBytes) {
    return no_fit(status.message() + ", a quarter of --memory; raise --memory or shorten the text");
  }
  CARAT_TRY(status);
  if (is_valid_utf8(input.text)) return input;
  // While characters are replaced, up to five times the text is there at once; the limit is a quarter of the memory.
  if (input.text.size() > limit / 2) {
    return no_fit(
        fmt::format("{}: {} bytes that are not all UTF-8 need five times as many to be cleaned; the limit is {}", path,
                    input.text.size(), limit / 2));
  }
  // U+FFFD is three bytes, and a string that grows may hold twice what it needs, and half of that once more.
  CARAT_ASSIGN(Reservation room,
               input_budget().try_reserve(MemoryCategory::io, 9 * input.text.size(), "a text that is not UTF-8"));
  input.text = clean_text(input.text);
  input.room = std::move(room);
  return input;
}

Result<std::optional<std::string>> LineReader::next() {
  while (true) {
    if (const std::size_t end = buffer_.find('\n', searched_); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      searched_ = 0;
      return std::optional(std::move(line));
    }
    searched_ = buffer_.size();
    if (ended_) {
      if (buffer_.empty()) return std::optional<std::string>();
      searched_ = 0;
      return std::optional(std::exchange(buffer_, {}));
    }
    if (interrupted_by_user()) return interrupted("");
    if (buffer_.size() > kMaxTextBytes) return invalid(fmt::format("a line is longer than {} bytes", kMaxTextBytes));
    char block[16384];
    const ssize_t got = ::read(descriptor_, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(fmt::format("standard input: cannot read: {}", std::strerror(errno)));
    if (got == 0) ended_ = true;
    buffer_.append(block, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
}

void truncate_left(std::vector<std::int32_t>& ids, std::uint32_t context, const Tokenizer* tokenizer) {
  if (ids.size() <= context) return;
  const bool keep_first = tokenizer != nullptr && ids.front() == tokenizer->bos() && context > 1;
  const std::size_t cut = ids.size() - context;
  log_note(fmt::format("{} tokens were cut from the left of the prompt to fit the context of {}", cut, context));
  const auto begin = ids.begin() + (keep_first ? 1 : 0);
  ids.erase(begin, begin + static_cast<long>(cut));
}

Status check_ids(const std::vector<std::int32_t>& ids, std::uint32_t vocab) {
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= vocab) {
      return invalid(fmt::format("token id {} is outside the vocabulary of {}", id, vocab));
    }
  }
  return ok_status();
}

Result<InputIds> parse_ids(const std::string& json) {
  // A value of the parser takes 16 bytes, and each is followed by a comma; its list may be growing to twice that.
  CARAT_ASSIGN(const Reservation parser,
               input_budget().try_reserve(MemoryCategory::io, 24 * json.size(), "a list of token ids"));
  const auto value = nlohmann::json::parse(json, nullptr, false);
  const Status bad = invalid(fmt::format("'{}' is not a JSON array of token ids such as [2, 105]", json.substr(0, 80)));
  if (!value.is_array()) return bad;
  InputIds out;
  CARAT_TRY(grow_reserved(input_budget(), MemoryCategory::io, "token ids", value.size(), out.ids, out.room));
  for (const auto& item : value) {
    if (!item.is_number_integer() || item.get<double>() < 0 || item.get<double>() >= 2147483648.0) return bad;
    out.ids.push_back(item.get<std::int32_t>());
  }
  return out;
}

}  // namespace carat::cli
