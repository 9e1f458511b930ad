#include "text/prompt_tokens.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace carat {
namespace {

/// Longest control piece looked for; real ones are far shorter.
constexpr std::size_t kLongestControl = 64;

/// The longest control piece at the start of `text`, or kNoToken.
std::int32_t control_at(const Tokenizer& tokenizer, std::string_view text, std::size_t& bytes) {
  for (bytes = std::min(text.size(), kLongestControl); bytes > 1; --bytes) {
    const std::int32_t id = tokenizer.id_of(text.substr(0, bytes));
    if (id != kNoToken && tokenizer.kind(id) == PieceKind::control) return id;
  }
  return kNoToken;
}

}  // namespace

Result<std::vector<std::int32_t>> encode_prompt(const Tokenizer& tokenizer, std::span<const PromptSegment> segments) {
  std::vector<std::int32_t> ids;
  std::string between;
  const auto flush = [&]() -> Status {
    if (between.empty()) return ok_status();
    CARAT_ASSIGN(const std::vector<std::int32_t> part, tokenizer.encode(between));
    ids.insert(ids.end(), part.begin(), part.end());
    between.clear();
    return ok_status();
  };
  for (const PromptSegment& segment : segments) {
    if (!segment.from_template) {
      between += segment.text;
      continue;
    }
    for (std::size_t at = 0; at < segment.text.size();) {
      std::size_t bytes = 1;
      const std::int32_t control = control_at(tokenizer, std::string_view(segment.text).substr(at), bytes);
      if (control == kNoToken) {
        between += segment.text[at++];
        continue;
      }
      CARAT_TRY(flush());
      ids.push_back(control);
      at += bytes;
    }
  }
  CARAT_TRY(flush());
  const bool wants_bos = tokenizer.add_bos() && tokenizer.bos() != kNoToken;
  if (wants_bos && (ids.empty() || ids.front() != tokenizer.bos())) ids.insert(ids.begin(), tokenizer.bos());
  return ids;
}

}  // namespace carat
