// The pieces of a tokenizer: their bytes, kinds and merge order, in a few flat buffers of the Budget.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memory/arena.h"
#include "tensor/meta_map.h"
#include "text/slot_table.h"

namespace carat {

inline constexpr std::int32_t kNoToken = -1;

/// What a piece is, by GGUF's numbers (tokenizer.ggml.token_type).
enum class PieceKind : std::uint8_t {
  normal = 1,        ///< found by merging
  unknown = 2,       ///< stands for what the vocabulary cannot spell
  control = 3,       ///< a marker: never found in ordinary text
  user_defined = 4,  ///< always cut out of text before merging
  unused = 5,        ///< never produced
  byte = 6,          ///< one raw byte, where no piece spells a character
};

/// How a file spells its pieces; they are stored as the bytes they stand for, so that decoding is copying.
enum class Spelling : std::uint8_t {
  sentencepiece,  ///< U+2581 stands for a space, `<0x0A>` for a byte
  byte_level,     ///< GPT-2's alphabet: each byte has a printable character
};

/// Token ids that the file names; kNoToken where it does not.
struct NamedTokens {
  std::int32_t bos = kNoToken;
  std::int32_t eos = kNoToken;
  std::int32_t eot = kNoToken;
  std::int32_t eom = kNoToken;
  std::int32_t unknown = kNoToken;
};

/// The file's keys, checked for type, length and range; the lists are views of the MetaMap.
struct VocabularySource {
  Spelling spelling = Spelling::sentencepiece;
  StringList pieces;
  std::optional<NumberList> scores;  ///< present and as long as `pieces` when the spelling is sentencepiece
  std::optional<NumberList> kinds;   ///< as long as `pieces` when present
  NamedTokens named;

  static Result<VocabularySource> read(const MetaMap& meta);
  /// Bytes that Vocabulary::build reserves (category tokenizer).
  std::uint64_t bytes_needed() const;
  /// At most how many pieces are control, unknown or user-defined; needs no look at the pieces.
  std::uint64_t special_bound() const;
};

class Vocabulary {
 public:
  static constexpr std::uint32_t kNoOrder = 0xFFFFFFFF;

  static Result<Vocabulary> build(const VocabularySource& source, Budget& budget);

  std::int32_t size() const { return static_cast<std::int32_t>(kinds_.size()); }
  bool contains(std::int32_t id) const { return id >= 0 && id < size(); }
  /// The bytes that piece `id` stands for (of control and unknown pieces: their name). `id` is in range.
  std::string_view bytes(std::int32_t id) const {
    const auto i = static_cast<std::uint32_t>(id);
    return {blob_.data() + offsets_[i], offsets_[i + 1] - offsets_[i]};
  }
  PieceKind kind(std::int32_t id) const { return kinds_[static_cast<std::uint32_t>(id)]; }
  /// Merges are made in ascending order: the higher a score, the lower its order. SentencePiece only.
  std::uint32_t order(std::int32_t id) const { return orders_[static_cast<std::uint32_t>(id)]; }

  /// The lowest id of a normal piece with these bytes, or kNoToken.
  std::int32_t find_normal(std::string_view text) const;
  /// A piece of any kind but byte with these bytes (its lowest id among normal pieces, else among others), or kNoToken.
  std::int32_t find(std::string_view text) const;
  /// The piece of a raw byte, or kNoToken. Byte-level: the normal piece of that one byte.
  std::int32_t byte_piece(std::uint8_t byte) const { return byte_pieces_[byte]; }

  const NamedTokens& named() const { return named_; }
  /// Longest normal piece, in bytes.
  std::uint32_t longest_normal() const { return longest_normal_; }
  /// Control pieces that end a turn by their name, whatever the file says of its EOS.
  const std::vector<std::int32_t>& turn_ends() const { return turn_ends_; }

 private:
  Result<PieceKind> settle_kind(const VocabularySource& source, std::uint32_t id, std::string_view spelled);
  Status place(const VocabularySource& source, std::uint32_t id, std::string_view spelled);
  Status index(std::int32_t id, std::uint64_t hash, Spelling spelling);
  Status index_batch(std::uint32_t begin, std::uint32_t end, Spelling spelling);
  void log_repairs() const;

  Buffer<char> blob_;
  Buffer<std::uint32_t> offsets_;  ///< size() + 1
  Buffer<PieceKind> kinds_;
  Buffer<std::uint32_t> orders_;
  SlotTable table_;
  std::array<std::int32_t, 256> byte_pieces_{};
  NamedTokens named_;
  std::uint32_t longest_normal_ = 0;
  std::vector<std::int32_t> turn_ends_;
  std::uint32_t repaired_markers_ = 0;  ///< one bit a marker
  std::string repaired_;                ///< names of markers whose kind was repaired, for one note
  std::uint64_t duplicates_ = 0;
};

/// Bytes the Budget is charged for a Buffer of `count` elements of `element` bytes: whole 4 KiB pages.
constexpr std::uint64_t charged_bytes(std::uint64_t count, std::uint64_t element) {
  return (count * element + 4095) / 4096 * 4096;
}

/// `text` in quotes for a message: at most 40 bytes of it, what is not printable ASCII as \xNN.
std::string quoted(std::string_view text);

/// Writes the bytes that a normal byte-level piece stands for to `out` (room for text.size()) and returns how many;
/// a piece with a character outside GPT-2's alphabet stands for itself.
std::size_t spell_byte_level(std::string_view text, char* out);

}  // namespace carat
