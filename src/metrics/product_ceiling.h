// The most multiply-adds a second that the threads do: what prefill is held against.
#pragma once

#include <string_view>

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"

namespace carat {

struct ProductRate {
  std::string_view table;        ///< "avx512": the kernel table whose probe it was
  std::string_view instruction;  ///< "vpdpbusd"; empty: nothing measured
  double tops = 0;               ///< 10^12 operations a second, all threads; a multiply-add is two
};

/// The rate of one probe on all threads of the pool: the best of several passes within about `seconds`.
ProductRate product_rate(ThreadPool& pool, const KernelTable& table, ProductForm form, double seconds);

/// The best of all tables that this machine can run; tops 0 where none has an instruction for the form.
ProductRate best_product_rate(ThreadPool& pool, ProductForm form, double seconds);

/// "int8", "bf16", "f32".
std::string_view name(ProductForm form);

}  // namespace carat
