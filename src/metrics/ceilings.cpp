#include "metrics/ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "memory/arena.h"

namespace carat {
namespace {

constexpr double kReadSeconds = 0.3;
constexpr double kProductSeconds = 0.08;
constexpr std::uint64_t kLeastReadBytes = 64 << 20;
constexpr std::uint64_t kMostReadBytes = std::uint64_t{1} << 30;

/// Several times what stays in the last cache, as far as half of the budget allows.
std::uint64_t read_bytes(const Machine& machine, const Budget& budget) {
  std::uint64_t cache = 0;
  for (const CacheLevel& level : machine.caches) cache = std::max(cache, level.bytes);
  const std::uint64_t wanted = std::clamp(4 * cache, 4 * kLeastReadBytes, kMostReadBytes);
  return std::min(wanted, budget.limit() / 2);
}

/// One measurement of many figures.
class Measurement {
 public:
  Measurement(const Machine& machine, int threads, const MeasureProgress& progress)
      : machine_(machine), threads_(threads), progress_(progress) {
    std::uint64_t probes = 0;
    for (const KernelTable* table : product_tables()) {
      for (const ProductProbe& probe : table->products) probes += probe.run != nullptr ? 1 : 0;
    }
    total_ = measured_threads(threads).size() + product_threads().size() * probes;
  }

  Status reads(std::span<const std::byte> bytes, Ceilings& ceilings) {
    for (const int count : measured_threads(threads_)) {
      CARAT_TRY(next());
      CARAT_ASSIGN(const auto pool, ThreadPool::create({.threads = count, .cpus = machine_.cpus.cpus}));
      ceilings.reads.push_back({count, read_rate(*pool, bytes, kReadSeconds)});
    }
    return ok_status();
  }

  Status products(Ceilings& ceilings) {
    for (const int count : product_threads()) {
      CARAT_ASSIGN(const auto pool, ThreadPool::create({.threads = count, .cpus = machine_.cpus.cpus}));
      for (const KernelTable* table : product_tables()) {
        for (int i = 0; i < kProductFormCount; ++i) {
          if (table->products[i].run == nullptr) continue;
          CARAT_TRY(next());
          const auto form = static_cast<ProductForm>(i);
          const ProductRate rate = product_rate(*pool, *table, form, kProductSeconds);
          ceilings.products.push_back({std::string(rate.table), std::string(rate.instruction), form, count, rate.tops});
        }
      }
    }
    return ok_status();
  }

 private:
  std::vector<int> product_threads() const { return threads_ == 1 ? std::vector{1} : std::vector{1, threads_}; }

  Status next() { return progress_(done_++, total_) ? ok_status() : interrupted("stopped by a signal"); }

  const Machine& machine_;
  const int threads_;
  const MeasureProgress& progress_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace

double Ceilings::read_gb_per_s(int threads) const {
  double rate = 0;
  for (const Read& read : reads) {
    if (read.threads <= threads || rate == 0) rate = read.rate.gb_per_s;
  }
  return rate;
}

double Ceilings::product_tops(std::string_view table, ProductForm form, int threads) const {
  const Product* below = nullptr;
  const Product* above = nullptr;
  for (const Product& product : products) {
    if (product.table != table || product.form != form) continue;
    if (product.threads <= threads && (below == nullptr || product.threads > below->threads)) below = &product;
    if (product.threads >= threads && (above == nullptr || product.threads < above->threads)) above = &product;
  }
  if (below == nullptr || above == nullptr) return below != nullptr ? below->tops : above != nullptr ? above->tops : 0;
  if (below->threads == above->threads) return below->tops;
  const double part = static_cast<double>(threads - below->threads) / (above->threads - below->threads);
  return below->tops + part * (above->tops - below->tops);
}

std::vector<int> measured_threads(int threads) {
  std::vector<int> counts;
  for (int count = 1; count < threads; count = count < 4 ? count + 1 : 2 * count) counts.push_back(count);
  counts.push_back(threads);
  return counts;
}

Result<Ceilings> measure_ceilings(const Machine& machine, int threads, Budget& budget,
                                  const MeasureProgress& progress) {
  const std::uint64_t bytes = read_bytes(machine, budget);
  if (bytes < kLeastReadBytes) {
    return no_fit(fmt::format("reading memory is measured with {} bytes at least, half of the budget is {}",
                              kLeastReadBytes, bytes));
  }
  Ceilings ceilings;
  Measurement measurement(machine, threads, progress);
  {
    CARAT_ASSIGN(Arena block, Arena::allocate(budget, MemoryCategory::io, bytes, "bytes to read", HugePages::advise));
    // The pages of a mapping that was never written are all the same page of zeros.
    block.prefault();
    CARAT_TRY(measurement.reads({block.data(), static_cast<std::size_t>(block.bytes())}, ceilings));
  }
  CARAT_TRY(measurement.products(ceilings));
  return ceilings;
}

}  // namespace carat
