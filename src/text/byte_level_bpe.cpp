#include "text/byte_level_bpe.h"

#include <fmt/core.h>

#include <string>

#include "text/normalize.h"

namespace carat {
namespace {

std::uint64_t hash_pair(std::int32_t left, std::int32_t right) {
  const std::uint64_t pair = std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  return mix_bits(mix_bits(pair ^ 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03), 0x9E3779B97F4A7C15);
}

}  // namespace

std::uint64_t MergeTable::bytes_needed(std::uint64_t merges) {
  return charged_bytes(merges, sizeof(Merge)) + charged_bytes(SlotTable::slots_for(merges), sizeof(std::uint32_t));
}

Result<MergeTable> MergeTable::build(const StringList& merges, const Vocabulary& vocabulary, Budget& budget) {
  if (merges.size() > SlotTable::kMaxEntries) {
    return unsupported(fmt::format("tokenizer.ggml.merges has {} entries; at most {} are supported", merges.size(),
                                   SlotTable::kMaxEntries));
  }
  MergeTable made;
  CARAT_ASSIGN(made.merges_,
               Buffer<Merge>::allocate(budget, MemoryCategory::tokenizer, merges.size(), "the vocabulary's merges"));
  CARAT_ASSIGN(made.table_, SlotTable::allocate(budget, merges.size(), "the index of merges"));

  // GPT-2's alphabet needs at most two bytes for one: a longer side is no piece.
  const std::size_t longest = std::size_t{2} * vocabulary.longest_normal();
  std::string spelled(2 * longest, '\0');
  std::uint32_t rank = 0;
  for (const std::string_view text : merges) {
    const std::size_t space = text.find(' ');
    const auto failed = [&](std::string_view why) {
      return invalid(fmt::format("tokenizer.ggml.merges, entry {} ({}): {}", rank, quoted(text), why));
    };
    if (space == std::string_view::npos || space == 0 || text.find(' ', space + 1) != std::string_view::npos ||
        space + 1 == text.size()) {
      return failed("expected two pieces with one space between");
    }
    if (space > longest || text.size() - space - 1 > longest) return failed("names a piece that is not there");
    const std::size_t left_bytes = spell_byte_level(text.substr(0, space), spelled.data());
    const std::size_t right_bytes = spell_byte_level(text.substr(space + 1), spelled.data() + left_bytes);
    const std::string_view joined(spelled.data(), left_bytes + right_bytes);
    const Merge merge{vocabulary.find_normal(joined.substr(0, left_bytes)),
                      vocabulary.find_normal(joined.substr(left_bytes)), vocabulary.find_normal(joined)};
    if (merge.left == kNoToken || merge.right == kNoToken) return failed("names a piece that is not there");
    if (merge.joined == kNoToken) return failed("the joined piece is not there");
    made.merges_[rank] = merge;
    const auto inserted = made.table_.insert(hash_pair(merge.left, merge.right), rank, [&](std::uint32_t other) {
      return made.merges_[other].left == merge.left && made.merges_[other].right == merge.right;
    });  // a pair that is there already keeps its lower rank
    if (inserted == SlotTable::Insert::crowded) return failed("the merges were made to collide in the hash table");
    ++rank;
  }
  return made;
}

MergeCandidate MergeTable::find(std::int32_t left, std::int32_t right) const {
  const auto rank = table_.find(hash_pair(left, right), [&](std::uint32_t entry) {
    return merges_[entry].left == left && merges_[entry].right == right;
  });
  return rank ? MergeCandidate{*rank, merges_[*rank].joined} : MergeCandidate();
}

Status ByteLevelBpe::encode_word(std::string_view word, MergeScratch& scratch, TokenWriter& writer) const {
  if (pre_tokenizer_.rules().whole_word_first) {
    const std::int32_t piece = vocabulary_->find_normal(word);
    if (piece != kNoToken) {
      writer.put(piece);
      return ok_status();
    }
  }
  if (word.size() >= Vocabulary::kNoOrder) return unsupported("more than 4 GiB of text without a break");
  CARAT_TRY(scratch.reserve(word.size() + 1));
  Symbol* const symbols = scratch.symbols;
  const auto count = static_cast<std::uint32_t>(word.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    symbols[i] = {i, i - 1, i + 1, vocabulary_->byte_piece(static_cast<std::uint8_t>(word[i])), {}};
  }
  symbols[count] = {count, count - 1, count, kNoToken, {}};
  if (count > 1) {
    merge_symbols(scratch, count, [&](const Symbol& left, const Symbol& right) {
      if (left.piece == kNoToken || right.piece == kNoToken) return MergeCandidate();
      return merges_.find(left.piece, right.piece);
    });
  }
  // SmolLM2 has no piece for 21 bytes. Its reference implementation drops them, as it has no unknown piece either;
  // the file's "unknown" id is its end of text, which user text must never produce.
  const std::int32_t unknown = vocabulary_->named().unknown;
  const bool has_unknown = unknown != kNoToken && vocabulary_->kind(unknown) == PieceKind::unknown;
  for (std::uint32_t i = 0; i < count; i = symbols[i].next) {
    if (symbols[i].piece != kNoToken) {
      writer.put(symbols[i].piece);
    } else if (has_unknown) {
      writer.put(unknown);
    }
  }
  return writer.status();
}

Status ByteLevelBpe::encode(std::string_view text, MergeScratch& scratch, TokenWriter& writer) const {
  Buffer<char> composed;
  if (nfc_) {
    CARAT_ASSIGN(text, to_nfc(text, scratch.budget(), composed));
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = pre_tokenizer_.word_end(text, begin);
    CARAT_TRY(encode_word(text.substr(begin, end - begin), scratch, writer));
    begin = end;
  }
  return ok_status();
}

}  // namespace carat
