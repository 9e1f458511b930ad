// Sizes that come from a file's fields: what overflows is as good as unlimited, and fits nowhere.
#pragma once

#include <cstdint>

#include "base/checked.h"
#include "memory/budget.h"

namespace carat {

inline std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  return checked_add(a, b).value_or(Budget::kUnlimited);
}

inline std::uint64_t saturating_mul(std::uint64_t a, std::uint64_t b) {
  return checked_mul(a, b).value_or(Budget::kUnlimited);
}

/// What an Arena of `bytes` reserves: whole pages of the system. Without it a plan that just fits would not load.
inline std::uint64_t arena_bytes(std::uint64_t bytes) {
  constexpr std::uint64_t kSystemPage = 4096;
  return bytes > Budget::kUnlimited - kSystemPage ? Budget::kUnlimited : round_up(bytes, kSystemPage);
}

}  // namespace carat
