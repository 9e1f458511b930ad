#include "metrics/product_ceiling.h"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace carat {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Rounds that take a thread about a millisecond: long beside the clock, short beside a turn of the scheduler.
std::uint64_t rounds_of_a_piece(const ProductProbe& probe, std::atomic<std::uint64_t>& sink) {
  constexpr double kPieceSeconds = 1e-3;
  for (std::uint64_t rounds = 64;; rounds *= 2) {
    const auto start = Clock::now();
    sink += probe.run(rounds);
    if (since(start) >= kPieceSeconds) return rounds;
  }
}

}  // namespace

ProductRate product_rate(ThreadPool& pool, const KernelTable& table, ProductForm form, double seconds) {
  const ProductProbe& probe = table.products[static_cast<int>(form)];
  if (probe.run == nullptr) return {};
  std::atomic<std::uint64_t> sink = 0;  // so that the products are not optimised away
  const std::uint64_t rounds = rounds_of_a_piece(probe, sink);
  const std::int64_t pieces = std::int64_t{8} * pool.threads();
  ProductRate best{table.name, probe.instruction, 0};
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  do {
    const auto start = Clock::now();
    pool.parallel_for(pieces, 1, [&](std::int64_t, std::int64_t, int) { sink += probe.run(rounds); });
    const double operations = static_cast<double>(pieces) * static_cast<double>(rounds) * probe.operations;
    best.tops = std::max(best.tops, operations / since(start) / 1e12);
  } while (Clock::now() < end);
  return best;
}

ProductRate best_product_rate(ThreadPool& pool, ProductForm form, double seconds) {
  ProductRate best;
  for (const KernelTable* table : product_tables()) {
    const ProductRate rate = product_rate(pool, *table, form, seconds);
    if (rate.tops > best.tops) best = rate;
  }
  return best;
}

std::string_view name(ProductForm form) {
  switch (form) {
    case ProductForm::int8: return "int8";
    case ProductForm::bf16: return "bf16";
    case ProductForm::f32: return "f32";
  }
  return "?";
}

}  // namespace carat
