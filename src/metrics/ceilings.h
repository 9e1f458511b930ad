// What this machine can do at most: bytes read from memory and multiply-adds, by threads. Measured once, kept, and used
// for what `plan` expects.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory/budget.h"
#include "metrics/product_ceiling.h"
#include "metrics/read_ceiling.h"
#include "os/machine.h"

namespace carat {

struct Ceilings {
  struct Read {
    int threads = 1;
    ReadRate rate;
  };
  struct Product {
    std::string table;        ///< "avx512"
    std::string instruction;  ///< "vpdpbusd"
    ProductForm form = ProductForm::int8;
    int threads = 1;
    double tops = 0;
  };
  std::vector<Read> reads;  ///< ascending threads
  std::vector<Product> products;

  /// With the most threads measured that are no more than `threads`; 0 when nothing was.
  double read_gb_per_s(int threads) const;
  /// Of one table, between the measured threads in proportion; 0 for a table or form without a probe.
  double product_tops(std::string_view table, ProductForm form, int threads) const;
};

using MeasureProgress = std::function<bool(std::uint64_t done, std::uint64_t total)>;

/// The numbers of threads that are measured for 1 … `threads`: all up to 4, then doubling, and `threads` itself.
std::vector<int> measured_threads(int threads);

/// Measures on `threads` threads pinned to the machine's CPUs, in a few seconds: reads of a block several times the
/// last cache, which is taken from `budget` and is smaller where that leaves less, then each product probe of the
/// machine with one and with all threads. `progress` is called between figures with those done and those in all; false
/// stops with StatusCode::interrupted.
Result<Ceilings> measure_ceilings(const Machine& machine, int threads, Budget& budget, const MeasureProgress& progress);

}  // namespace carat
