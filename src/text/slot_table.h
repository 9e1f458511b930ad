// The open-addressing index shared by the piece and the merge tables: 4 bytes a slot, entries are numbers into arrays
// that the caller keeps.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "memory/arena.h"

namespace carat {

/// The high half of the 128-bit product folded onto the low one: mixes all bits of both factors.
inline std::uint64_t mix_bits(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t hash_bytes(std::string_view text) {
  constexpr std::uint64_t kFirst = 0x9E3779B97F4A7C15;
  constexpr std::uint64_t kSecond = 0xD1B54A32D192ED03;
  const char* at = text.data();
  std::size_t left = text.size();
  std::uint64_t state = kFirst ^ left;
  const auto load = [](const char* from, std::size_t bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, bytes);
    return word;
  };
  for (; left > 8; at += 8, left -= 8) state = mix_bits(state ^ load(at, 8), kSecond);
  std::uint64_t tail = 0;
  if (left >= 4) {  // two loads of fixed size that may overlap; the length is already in the state
    tail = load(at, 4) | load(at + left - 4, 4) << 32;
  } else if (left > 0) {
    tail = static_cast<std::uint64_t>(static_cast<std::uint8_t>(at[0])) |
           static_cast<std::uint64_t>(static_cast<std::uint8_t>(at[left / 2])) << 8 |
           static_cast<std::uint64_t>(static_cast<std::uint8_t>(at[left - 1])) << 16;
  }
  return mix_bits(mix_bits(state ^ tail, kSecond), kFirst);
}

/// Slot: 0 when empty, else (entry + 1) in the low 22 bits and 10 bits of the hash above them, so that a wrong entry
/// is nearly always rejected without touching its text. At most half full.
class SlotTable {
 public:
  static constexpr std::uint64_t kMaxEntries = (std::uint64_t{1} << 22) - 2;
  /// Longer chains do not happen by chance at this load: they are made on purpose.
  static constexpr std::uint32_t kMaxProbes = 1024;

  static std::uint64_t slots_for(std::uint64_t entries) {
    return std::bit_ceil(entries < 8 ? std::uint64_t{16} : 2 * entries);
  }

  static Result<SlotTable> allocate(Budget& budget, std::uint64_t entries, std::string_view what) {
    SlotTable table;
    // Filled at random places: one huge page takes one fault where small ones take 512.
    CARAT_ASSIGN(table.slots_, Buffer<std::uint32_t>::allocate(budget, MemoryCategory::tokenizer, slots_for(entries),
                                                               what, HugePages::advise));
    return table;
  }

  /// Brings the first slot of `hash` into the cache. Inserting in batches that were prefetched overlaps the misses,
  /// which the unpredictable probing loop would else take one after the other.
  void prefetch(std::uint64_t hash) const { __builtin_prefetch(slots_.data() + (hash & (slots_.size() - 1)), 1); }

  /// The first entry of this hash, in order of insertion, for which `equal(entry)` holds.
  template <typename Equal>
  std::optional<std::uint32_t> find(std::uint64_t hash, Equal equal) const {
    const std::uint64_t mask = slots_.size() - 1;
    for (std::uint64_t at = hash & mask;; at = (at + 1) & mask) {
      const std::uint32_t slot = slots_[at];
      if (slot == 0) return std::nullopt;
      if ((slot & kTagMask) != tag_of(hash)) continue;
      const std::uint32_t entry = (slot & ~kTagMask) - 1;
      if (equal(entry)) return entry;
    }
  }

  enum class Insert : std::uint8_t { done, present, crowded };

  /// Adds `entry` unless `equal(other)` holds for one that is there.
  template <typename Equal>
  Insert insert(std::uint64_t hash, std::uint32_t entry, Equal equal) {
    const std::uint64_t mask = slots_.size() - 1;
    std::uint64_t at = hash & mask;
    for (std::uint32_t probes = 0; slots_[at] != 0; at = (at + 1) & mask) {
      if (++probes > kMaxProbes) return Insert::crowded;
      const std::uint32_t slot = slots_[at];
      if ((slot & kTagMask) == tag_of(hash) && equal((slot & ~kTagMask) - 1)) return Insert::present;
    }
    slots_[at] = tag_of(hash) | (entry + 1);
    return Insert::done;
  }

 private:
  static constexpr std::uint32_t kTagMask = 0xFFC00000;
  static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32) & kTagMask; }

  Buffer<std::uint32_t> slots_;
};

}  // namespace carat
