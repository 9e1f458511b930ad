// The standard generator, seeded, with results of the type its numbers have.
#pragma once

#include <cstdint>
#include <random>

namespace carat::test {

struct Random {
  explicit Random(unsigned seed) : engine(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine()); }
  std::mt19937 engine;
};

}  // namespace carat::test
