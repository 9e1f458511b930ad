#include "metrics/read_ceiling.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

namespace carat {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLine = 64;
constexpr std::size_t kAhead = 1536;  ///< bytes; as far as the kernels prefetch

/// Several sums, so that no addition waits for the one before.
std::uint64_t sum_of(const std::byte* data, std::size_t bytes) {
  std::array<std::uint64_t, 8> sums{};
  for (std::size_t at = 0; at + kLine <= bytes; at += kLine) {
    __builtin_prefetch(data + at + kAhead);
    std::array<std::uint64_t, 8> words;
    std::memcpy(words.data(), data + at, kLine);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += words[i];
  }
  std::uint64_t all = 0;
  for (const std::uint64_t sum : sums) all += sum;
  return all;
}

}  // namespace

double read_gb_per_s(ThreadPool& pool, std::span<const std::byte> bytes, double seconds) {
  constexpr std::size_t kPiece = 256 << 10;
  const auto pieces = static_cast<std::int64_t>((bytes.size() + kPiece - 1) / kPiece);
  if (pieces == 0) return 0;
  std::atomic<std::uint64_t> sink = 0;  // so that the reads are not optimised away
  double best = 0;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  do {
    const auto start = Clock::now();
    pool.parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t piece = first; piece < last; ++piece) {
        const std::size_t begin = static_cast<std::size_t>(piece) * kPiece;
        sink += sum_of(bytes.data() + begin, std::min(kPiece, bytes.size() - begin));
      }
    });
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, static_cast<double>(bytes.size()) / took / 1e9);
  } while (Clock::now() < end);
  return best;
}

}  // namespace carat
