#include "metrics/read_ceiling.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>

namespace carat {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLine = 64;
constexpr std::size_t kAhead = 1536;  ///< bytes; as far as the kernels prefetch

using Words = std::array<std::uint64_t, 8>;  // a cache line

/// `streams` places of the piece are read in turns: each has a hardware prefetcher of its own, and no addition waits
/// for the one before.
template <std::size_t streams>
std::uint64_t sum_of(const std::byte* data, std::size_t bytes) {
  std::array<Words, streams> sums{};
  const std::size_t stride = bytes / streams / kLine * kLine;
  for (std::size_t at = 0; at < stride; at += kLine) {
    for (std::size_t stream = 0; stream < streams; ++stream) {
      const std::byte* line = data + stream * stride + at;
      __builtin_prefetch(line + kAhead);
      Words words;
      std::memcpy(words.data(), line, kLine);
      for (std::size_t i = 0; i < words.size(); ++i) sums[stream][i] += words[i];
    }
  }
  std::uint64_t all = 0;
  for (const Words& sum : sums) all = std::accumulate(sum.begin(), sum.end(), all);
  return all;
}

struct Pattern {
  int streams;
  std::uint64_t (*sum)(const std::byte* data, std::size_t bytes);
};
constexpr std::array kPatterns{Pattern{1, sum_of<1>}, Pattern{2, sum_of<2>}, Pattern{4, sum_of<4>}};

}  // namespace

ReadRate read_rate(ThreadPool& pool, std::span<const std::byte> bytes, double seconds) {
  constexpr std::size_t kPiece = 2 << 20;
  const auto pieces = static_cast<std::int64_t>((bytes.size() + kPiece - 1) / kPiece);
  ReadRate best;
  if (pieces == 0) return best;
  std::atomic<std::uint64_t> sink = 0;  // so that the reads are not optimised away
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (std::size_t pass = 0; pass < kPatterns.size() || Clock::now() < end; ++pass) {
    const Pattern& pattern = kPatterns[pass % kPatterns.size()];
    const auto start = Clock::now();
    pool.parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t piece = first; piece < last; ++piece) {
        const std::size_t begin = static_cast<std::size_t>(piece) * kPiece;
        sink += pattern.sum(bytes.data() + begin, std::min(kPiece, bytes.size() - begin));
      }
    });
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    const double rate = static_cast<double>(bytes.size()) / took / 1e9;
    if (rate > best.gb_per_s) best = {rate, pattern.streams};
  }
  return best;
}

}  // namespace carat
