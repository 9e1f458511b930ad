// Finds the pieces that are cut out of text before any merging: user-defined ones always, control ones on request.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "memory/arena.h"
#include "text/vocabulary.h"

namespace carat {

class SpecialPieces {
 public:
  /// Longer ones are refused: the search is O(text * longest piece).
  static constexpr std::size_t kLongest = 1024;

  /// `vocabulary` stays where it is and outlives this.
  static Result<SpecialPieces> build(const Vocabulary& vocabulary, std::uint64_t bound, Budget& budget);
  static std::uint64_t bytes_needed(std::uint64_t bound) { return charged_bytes(bound, sizeof(std::int32_t)); }

  struct Match {
    std::int32_t id = kNoToken;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  /// The leftmost match at or after `from`, the longest one there; id kNoToken and begin == text.size() if none.
  Match next(std::string_view text, std::size_t from, bool control) const;
  /// The longest match that begins at `begin` < text.size(); id kNoToken and an empty range if none.
  Match longest_at(std::string_view text, std::size_t begin, bool control) const;

 private:
  const Vocabulary* vocabulary_ = nullptr;
  Buffer<std::int32_t> ids_;                          ///< sorted by their bytes, then by id
  std::array<std::uint32_t, 257> first_byte_{};       ///< range of ids_ that begin with each byte
  std::array<std::array<bool, 256>, 2> can_begin_{};  ///< [control]: any piece that may be cut begins with this byte
};

}  // namespace carat
