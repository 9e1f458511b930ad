#include "text/sentencepiece_bpe.h"

#include <fmt/core.h>

#include "text/utf8.h"

namespace carat {

SentencePieceBpe::SentencePieceBpe(const Vocabulary& vocabulary) : vocabulary_(&vocabulary) {
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.kind(id) != PieceKind::normal) continue;
    const std::string_view text = vocabulary.bytes(id);
    for (std::size_t i = 1; i < text.size(); ++i) {
      neighbours_.set(static_cast<std::size_t>(static_cast<std::uint8_t>(text[i - 1])) << 8 |
                      static_cast<std::uint8_t>(text[i]));
    }
  }
}

Status SentencePieceBpe::put_bytes(std::string_view character, TokenWriter& writer) const {
  bool spelled = true;
  for (const char byte : character) spelled &= vocabulary_->byte_piece(static_cast<std::uint8_t>(byte)) != kNoToken;
  if (spelled) {
    for (const char byte : character) writer.put(vocabulary_->byte_piece(static_cast<std::uint8_t>(byte)));
    return ok_status();
  }
  if (vocabulary_->named().unknown == kNoToken) {
    return invalid(fmt::format("the vocabulary cannot spell {}: it lacks the byte pieces and names no unknown piece",
                               quoted(character)));
  }
  writer.put(vocabulary_->named().unknown);
  return ok_status();
}

Status SentencePieceBpe::encode_word(std::string_view word, MergeScratch& scratch, TokenWriter& writer) const {
  if (word.size() >= Vocabulary::kNoOrder) return unsupported("more than 4 GiB of text without a break");
  std::uint64_t characters = 0;
  for (std::size_t at = 0; at < word.size(); ++characters) at += decode_character(word.substr(at)).bytes;
  CARAT_TRY(scratch.reserve(characters + 1));

  Symbol* const symbols = scratch.symbols;
  const auto count = static_cast<std::uint32_t>(characters);
  std::uint32_t begin = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t length = decode_character(word.substr(begin)).bytes;
    symbols[i] = {begin, i - 1, i + 1, vocabulary_->find_normal(word.substr(begin, length)), {}};
    begin += length;
  }
  symbols[count] = {begin, count - 1, count, kNoToken, {}};

  merge_symbols(scratch, count, [&](const Symbol& left, const Symbol& right) -> MergeCandidate {
    const std::uint32_t bytes = symbols[right.next].begin - left.begin;
    if (bytes > vocabulary_->longest_normal() || !may_join(word[right.begin - 1], word[right.begin])) return {};
    const std::int32_t piece = vocabulary_->find_normal(word.substr(left.begin, bytes));
    return piece == kNoToken ? MergeCandidate() : MergeCandidate{vocabulary_->order(piece), piece};
  });

  for (std::uint32_t i = 0; i < count; i = symbols[i].next) {
    if (symbols[i].piece != kNoToken) {
      writer.put(symbols[i].piece);
    } else {
      CARAT_TRY(put_bytes(word.substr(symbols[i].begin, symbols[symbols[i].next].begin - symbols[i].begin), writer));
    }
  }
  return writer.status();
}

Status SentencePieceBpe::encode(std::string_view text, MergeScratch& scratch, TokenWriter& writer) const {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    at += decode_character(text.substr(at)).bytes;
    if (at == text.size() || !may_join(text[at - 1], text[at])) {
      CARAT_TRY(encode_word(text.substr(begin, at - begin), scratch, writer));
      begin = at;
    }
  }
  return ok_status();
}

}  // namespace carat
