#include "text/special_pieces.h"

#include <fmt/core.h>

#include <algorithm>

namespace carat {

Result<SpecialPieces> SpecialPieces::build(const Vocabulary& vocabulary, std::uint64_t bound, Budget& budget) {
  SpecialPieces made;
  made.vocabulary_ = &vocabulary;
  CARAT_ASSIGN(made.ids_, Buffer<std::int32_t>::allocate(budget, MemoryCategory::tokenizer, bound, "special pieces"));
  std::uint32_t count = 0;
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    const PieceKind kind = vocabulary.kind(id);
    if (kind != PieceKind::control && kind != PieceKind::user_defined && kind != PieceKind::unknown) continue;
    const std::string_view text = vocabulary.bytes(id);
    if (text.empty()) continue;
    if (text.size() > kLongest) {
      return invalid(fmt::format("piece {} ({}) is cut out of text and has {} bytes; at most {} are supported", id,
                                 quoted(text), text.size(), kLongest));
    }
    const auto first = static_cast<std::uint8_t>(text[0]);
    made.can_begin_[1][first] = true;
    if (kind == PieceKind::user_defined) made.can_begin_[0][first] = true;
    ++made.first_byte_[first + 1U];
    made.ids_[count++] = id;
  }
  for (std::size_t byte = 0; byte < 256; ++byte) made.first_byte_[byte + 1] += made.first_byte_[byte];
  std::sort(made.ids_.begin(), made.ids_.begin() + count, [&](std::int32_t a, std::int32_t b) {
    const int order = vocabulary.bytes(a).compare(vocabulary.bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  return made;
}

// The sorted list is walked like a trie: all of [low, high) begin with text[begin, begin + depth).
SpecialPieces::Match SpecialPieces::longest_at(std::string_view text, std::size_t begin, bool control) const {
  const auto byte_at = [&](std::int32_t id, std::size_t depth) {
    return static_cast<std::uint8_t>(vocabulary_->bytes(id)[depth]);
  };
  const auto first = static_cast<std::uint8_t>(text[begin]);
  const std::int32_t* low = ids_.data() + first_byte_[first];
  const std::int32_t* high = ids_.data() + first_byte_[first + 1U];
  Match match{kNoToken, begin, begin};
  for (std::size_t depth = 1;; ++depth) {
    for (; low != high && vocabulary_->bytes(*low).size() == depth; ++low) {  // several when pieces repeat
      const bool allowed = control || vocabulary_->kind(*low) == PieceKind::user_defined;
      if (allowed && match.end != begin + depth) match = {*low, begin, begin + depth};
    }
    if (low == high || begin + depth == text.size()) return match;
    const auto wanted = static_cast<std::uint8_t>(text[begin + depth]);
    low = std::partition_point(low, high, [&](std::int32_t id) { return byte_at(id, depth) < wanted; });
    high = std::partition_point(low, high, [&](std::int32_t id) { return byte_at(id, depth) == wanted; });
    if (low == high) return match;
  }
}

SpecialPieces::Match SpecialPieces::next(std::string_view text, std::size_t from, bool control) const {
  const auto& can_begin = can_begin_[control ? 1 : 0];
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!can_begin[static_cast<std::uint8_t>(text[at])]) continue;
    const Match match = longest_at(text, at, control);
    if (match.id != kNoToken) return match;
  }
  return {kNoToken, text.size(), text.size()};
}

}  // namespace carat
