#include "grammar/token_trie.h"

#include <algorithm>

#include "text/utf8.h"
#include "text/vocabulary.h"

namespace carat {
namespace {

bool is_text(PieceKind kind) {
  return kind == PieceKind::normal || kind == PieceKind::user_defined || kind == PieceKind::byte;
}

/// Characters of a plain piece, 0 of any other.
std::uint32_t plain_characters(std::string_view bytes) {
  std::uint32_t count = 0;
  while (!bytes.empty()) {
    const DecodedCharacter character = decode_character(bytes);
    if (!character.valid || character.code < 0x20 || character.code == '"' || character.code == '\\') return 0;
    bytes.remove_prefix(character.bytes);
    ++count;
  }
  return count;
}

/// Puts ids in the order of their pieces' bytes, equal ones by id. Four bytes at a time of all ids that are alike so
/// far, as numbers in `keys` (by id): comparing whole pieces takes twice as long, at the memory they are scattered
/// over.
class ByteOrder {
 public:
  ByteOrder(const Tokenizer& tokenizer, std::span<std::uint32_t> keys) : tokenizer_(tokenizer), keys_(keys) {}

  /// All of `ids` are alike before `depth`.
  void sort(std::span<std::int32_t> ids, std::size_t depth = 0) {
    constexpr std::size_t kFew = 16;
    if (ids.size() <= kFew || depth >= TokenTrie::kLongestPiece) {
      std::sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) {
        const int order = tokenizer_.piece(a).compare(tokenizer_.piece(b));
        return order < 0 || (order == 0 && a < b);
      });
      return;
    }
    for (const std::int32_t id : ids) key(id) = bytes_at(tokenizer_.piece(id), depth);
    std::sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
    for (std::size_t begin = 0; begin < ids.size();) {
      const std::uint32_t same = key(ids[begin]);
      std::size_t end = begin + 1;
      while (end < ids.size() && key(ids[end]) == same) ++end;
      if (end - begin > 1) sort(ids.subspan(begin, end - begin), depth + 4);
      begin = end;
    }
  }

 private:
  std::uint32_t& key(std::int32_t id) { return keys_[static_cast<std::uint32_t>(id)]; }

  /// Four bytes as a number that is ordered as they are; zeros behind the end.
  static std::uint32_t bytes_at(std::string_view bytes, std::size_t depth) {
    std::uint32_t number = 0;
    for (std::size_t i = depth; i < depth + 4; ++i) {
      number = number << 8 | (i < bytes.size() ? static_cast<std::uint8_t>(bytes[i]) : 0U);
    }
    return number;
  }

  const Tokenizer& tokenizer_;
  std::span<std::uint32_t> keys_;
};

}  // namespace

std::uint64_t TokenTrie::bytes_needed(std::uint64_t tokens) {
  return charged_bytes(tokens, sizeof(std::int32_t)) + charged_bytes(tokens, sizeof(std::uint32_t)) +
         2 * charged_bytes(tokens, 1) + charged_bytes((tokens + 63) / 64, sizeof(std::uint64_t));
}

Result<TokenTrie> TokenTrie::create(const Tokenizer& tokenizer, Budget& budget) {
  constexpr MemoryCategory kCategory = MemoryCategory::tokenizer;
  constexpr std::string_view kWhat = "tokens in order, for grammars";
  const auto tokens = static_cast<std::uint64_t>(tokenizer.size());
  TokenTrie trie;
  trie.tokenizer_ = &tokenizer;
  CARAT_ASSIGN(trie.order_, Buffer<std::int32_t>::allocate(budget, kCategory, tokens, kWhat));
  CARAT_ASSIGN(trie.skip_, Buffer<std::uint32_t>::allocate(budget, kCategory, tokens, kWhat));
  CARAT_ASSIGN(trie.shared_, Buffer<std::uint8_t>::allocate(budget, kCategory, tokens, kWhat));
  CARAT_ASSIGN(trie.characters_, Buffer<std::uint8_t>::allocate(budget, kCategory, tokens, kWhat));
  CARAT_ASSIGN(trie.plain_mask_, Buffer<std::uint64_t>::allocate(budget, kCategory, (tokens + 63) / 64, kWhat));

  // Plain pieces from the front, the others from the back.
  auto others = static_cast<std::uint32_t>(tokens);
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    const std::string_view bytes = tokenizer.piece(id);
    if (!is_text(tokenizer.kind(id)) || bytes.empty() || bytes.size() > kLongestPiece) continue;
    trie.longest_bytes_ = std::max(trie.longest_bytes_, static_cast<std::uint32_t>(bytes.size()));
    const std::uint32_t characters = plain_characters(bytes);
    if (characters == 0) {
      trie.order_[--others] = id;
      continue;
    }
    trie.order_[trie.plain_end_++] = id;
    trie.plain_mask_[static_cast<std::uint32_t>(id) / 64] |= std::uint64_t{1} << (id % 64);
    trie.most_plain_characters_ = std::max(trie.most_plain_characters_, characters);
  }
  const std::uint32_t count = static_cast<std::uint32_t>(tokens) - others;
  std::copy_n(trie.order_.begin() + others, count, trie.order_.begin() + trie.plain_end_);
  trie.end_ = trie.plain_end_ + count;
  ByteOrder order(tokenizer, trie.skip_.span());
  order.sort(trie.order_.span().first(trie.plain_end_));
  order.sort(trie.order_.span().subspan(trie.plain_end_, count));

  for (std::uint32_t place = 0; place < trie.end_; ++place) {
    const std::string_view bytes = tokenizer.piece(trie.order_[place]);
    if (place < trie.plain_end_) trie.characters_[place] = static_cast<std::uint8_t>(plain_characters(bytes));
    if (place == 0 || place == trie.plain_end_) continue;
    const std::string_view last = tokenizer.piece(trie.order_[place - 1]);
    const auto differs = std::mismatch(bytes.begin(), bytes.end(), last.begin(), last.end()).first;
    trie.shared_[place] = static_cast<std::uint8_t>(differs - bytes.begin());
  }
  // From the back: the next place that shares less is found by hops over those that share more.
  for (std::uint32_t place = trie.end_; place-- > 0;) {
    std::uint32_t next = place + 1;
    while (next < trie.end_ && trie.shared_[next] >= trie.shared_[place]) next = trie.skip_[next];
    trie.skip_[place] = next;
  }
  return trie;
}

}  // namespace carat
