// The lists of a vocabulary while they are filled in the order of their ids. Private to hf_tokenizer*, sentencepiece_*.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "memory/arena.h"
#include "tensor/meta_map.h"

namespace carat {

/// tokenizer.ggml.token_type, GGUF's numbers.
enum class PieceType : std::int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// As many pieces as the tokenizers take.
inline constexpr std::uint64_t kMostPieces = (std::uint64_t{1} << 22) - 2;

/// Markers of a turn: control whatever a file says of them, so that no user text can write one.
inline bool is_turn_marker(std::string_view text) {
  constexpr std::string_view kMarkers[] = {"<start_of_turn>",     "<end_of_turn>",     "<|im_start|>", "<|im_end|>",
                                           "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",   "<|eom_id|>"};
  return std::find(std::begin(kMarkers), std::end(kMarkers), text) != std::end(kMarkers);
}

/// "<0x0A>", as both kinds of file spell a byte piece.
inline bool is_byte_piece(std::string_view text) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && text[5] == '>' && is_hex(text[3]) && is_hex(text[4]);
}

class VocabularyLists {
 public:
  /// Room for `count` pieces of `text_bytes` together.
  static Result<VocabularyLists> allocate(std::uint64_t count, std::uint64_t text_bytes, Budget& budget) {
    constexpr MemoryCategory kCategory = MemoryCategory::io;
    VocabularyLists made;
    CARAT_ASSIGN(made.tokens_,
                 Buffer<std::byte>::allocate(budget, kCategory, text_bytes + 8 * count, "the tokenizer's pieces"));
    CARAT_ASSIGN(made.scores_, Buffer<float>::allocate(budget, kCategory, count, "the tokenizer's scores"));
    CARAT_ASSIGN(made.types_, Buffer<PieceType>::allocate(budget, kCategory, count, "the tokenizer's piece types"));
    return made;
  }

  void append(std::string_view text, float score, PieceType type) {
    const std::uint64_t length = text.size();
    std::memcpy(tokens_.data() + used_, &length, sizeof length);
    // An empty text may have no address.
    if (!text.empty()) std::memcpy(tokens_.data() + used_ + sizeof length, text.data(), text.size());
    used_ += sizeof length + text.size();
    scores_[size_] = score;
    types_[size_] = type;
    ++size_;
  }

  std::uint64_t size() const { return size_; }
  /// Where the next piece will begin among the bytes.
  std::uint64_t used() const { return used_; }
  std::string_view at(std::uint64_t begin) const {
    std::uint64_t length = 0;
    std::memcpy(&length, tokens_.data() + begin, sizeof length);
    return {reinterpret_cast<const char*>(tokens_.data()) + begin + sizeof length, static_cast<std::size_t>(length)};
  }
  StringList strings() const { return StringList({tokens_.data(), static_cast<std::size_t>(used_)}, size_); }
  float& score(std::uint64_t id) { return scores_[id]; }
  PieceType type(std::uint64_t id) const { return types_[id]; }

  /// Sets tokens, token_type and, if asked, scores; `meta` keeps the memory.
  void move_into(MetaMap& meta, bool with_scores) && {
    meta.set("tokenizer.ggml.tokens", strings());
    meta.set("tokenizer.ggml.token_type", NumberList(NumberType::i32, std::as_bytes(types_.span())));
    if (with_scores) {
      meta.set("tokenizer.ggml.scores", NumberList(NumberType::f32, std::as_bytes(scores_.span())));
    } else {
      scores_ = {};
    }
    meta.keep_alive(std::make_shared<VocabularyLists>(std::move(*this)));
  }

 private:
  Buffer<std::byte> tokens_;  ///< StringList's form
  Buffer<float> scores_;
  Buffer<PieceType> types_;
  std::uint64_t used_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace carat
