// Speed of the linear kernels beside this machine's own ceilings, measured in the same run.
//   kernels_bench [--isa NAME] [--threads N] [--types q4_0,q8_0] [--quick]
// Decode: one to eight tokens in the q15 form over weights that are not in any cache: GB/s of packed bytes and its
// share of a plain read of the same memory. Prefill: 512 tokens in the q8 form: GOPS (2 a multiply-add) and the share
// of the int8 product peak.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "memory/arena.h"
#include "os/cpu.h"
#include "tensor/scratch.h"

namespace carat {
namespace {

/// Wall time; with one thread its own processor time, so that a busy machine still gives a figure.
double now(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

constexpr std::uint64_t kColdBytes = std::uint64_t{1} << 30;  ///< more than any cache

struct Timing {
  double best = 1e30;
  double median = 0;
};

Timing measure(int repetitions, int threads, const std::function<void()>& body) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    const double start = now(threads);
    body();
    seconds.push_back(now(threads) - start);
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

/// Sum of all words in `streams` ascending streams, with a prefetch ahead: what a kernel that did nothing would cost.
template <int streams>
std::uint64_t read_all(const std::byte* at, std::uint64_t bytes) {
  std::uint64_t sum[8] = {};
  const std::uint64_t part = bytes / streams;
  for (std::uint64_t i = 0; i + 64 <= part; i += 64) {
    for (int stream = 0; stream < streams; ++stream) {
      const std::byte* line = at + static_cast<unsigned>(stream) * part + i;
      __builtin_prefetch(line + 1536);
      for (unsigned w = 0; w < 8; ++w) {
        std::uint64_t word = 0;
        std::memcpy(&word, line + w * 8, 8);
        sum[w] += word;
      }
    }
  }
  return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

#if defined(__x86_64__)
constexpr double kOpsPerProduct = 2.0 * 64;
[[gnu::target("avx512f,avx512vnni")]] double run_byte_products(std::int64_t rounds) {
  __m512i sum[12];
  for (auto& s : sum) s = _mm512_setzero_si512();
  const __m512i w = _mm512_set1_epi8(3);
  __m512i x = _mm512_set1_epi8(2);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (auto& s : sum) s = _mm512_dpbusd_epi32(s, w, x);
    asm volatile("" : "+v"(x));
  }
  volatile int sink = 0;
  for (auto& s : sum) {
    alignas(64) std::int32_t lanes[16];
    _mm512_store_si512(lanes, s);
    sink = sink + lanes[0];
  }
  return static_cast<double>(rounds) * 12 * kOpsPerProduct;
}
#endif

struct Bench {
  ThreadPool& pool;
  Budget& budget;
  const KernelTable& table;
  int repetitions = 7;
  double read_rate = 0;   ///< bytes a second
  double product_rate = 0;  ///< int8 operations a second
};

void measure_ceilings(Bench& bench, const Arena& memory) {
  volatile std::uint64_t sink = 0;
  using Read = std::uint64_t (*)(const std::byte*, std::uint64_t);
  constexpr std::pair<int, Read> kReads[] = {{1, read_all<1>}, {2, read_all<2>}, {4, read_all<4>}};
  for (const auto& [streams, read] : kReads) {
    const Timing time = measure(bench.repetitions, bench.pool.threads(), [&] {
      bench.pool.parallel_for(static_cast<std::int64_t>(memory.bytes() >> 20), 16,
                              [&, reader = read](std::int64_t a, std::int64_t b, int) {
                                sink = reader(memory.data() + (a << 20), static_cast<std::uint64_t>(b - a) << 20);
                              });
    });
    const double rate = static_cast<double>(memory.bytes()) / time.best;
    bench.read_rate = std::max(bench.read_rate, rate);
    fmt::print("read, {} streams   {:7.1f} GB/s (median {:.1f})\n", streams, rate / 1e9,
               static_cast<double>(memory.bytes()) / time.median / 1e9);
  }
#if defined(__x86_64__)
  if (!cpu_features().avx512_vnni) return;
  constexpr std::int64_t kRounds = 2'000'000;
  const int threads = bench.pool.threads();
  const Timing products = measure(bench.repetitions, bench.pool.threads(), [&] {
    bench.pool.parallel_for(threads * 8, 1, [&](std::int64_t, std::int64_t, int) { run_byte_products(kRounds / 8); });
  });
  bench.product_rate = static_cast<double>(kRounds) * threads * 12 * kOpsPerProduct / products.best;
  fmt::print("int8 product peak {:7.0f} GOPS\n", bench.product_rate / 1e9);
#endif
}

struct Shape {
  std::uint32_t rows;
  std::uint32_t columns;
};

struct Inputs {
  std::vector<float> values;
  std::vector<std::int8_t> high, low;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;
};

Activations make_inputs(const KernelTable& table, ActivationForm form, std::uint32_t rows, std::uint32_t columns,
                        Inputs& store) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const std::size_t count = std::size_t{rows} * columns;
  store.values.resize(count);
  for (auto& value : store.values) value = normal(random);
  store.high.resize(count);
  store.low.resize(count);
  store.scales.resize(count / kStepColumns);
  store.sums.resize(count / 16);
  if (form != ActivationForm::f32) {
    table.quantize(form, store.values.data(), rows, columns,
                   {store.high.data(), store.low.data(), store.scales.data(), store.sums.data()});
  }
  return {form, rows, columns, store.values.data(), store.high.data(), store.low.data(), store.scales.data(),
          store.sums.data()};
}

/// Seconds of one product with the `copy`th matrix in memory, all threads.
void multiply(Bench& bench, const PackedMatrix& weights, const Activations& x, Buffer<float>& out, Arena& scratch) {
  const std::uint64_t scratch_bytes = linear_scratch_bytes(weights.layout.columns);
  const auto form = static_cast<int>(x.form);
  const auto kernel = bench.table.linear[static_cast<int>(weights.layout.type)][form];
  const std::int64_t panels = weights.layout.panels();
  const std::int64_t grain = std::max<std::int64_t>(2, panels / (bench.pool.threads() * 8) / 2 * 2);
  bench.pool.parallel_for(panels, grain, [&](std::int64_t a, std::int64_t b, int worker) {
    kernel({weights, x, out.data(), weights.layout.rows, static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b),
            scratch.data() + static_cast<std::uint64_t>(worker) * scratch_bytes});
  });
}

Status bench_shape(Bench& bench, DType type, Shape shape, Arena& memory) {
  const PackedLayout layout{type, shape.rows, shape.columns};
  const std::uint64_t copies = memory.bytes() / layout.bytes();
  if (copies == 0) return ok_status();
  CARAT_ASSIGN(Buffer<float> out, Buffer<float>::allocate(bench.budget, MemoryCategory::activations,
                                                          std::uint64_t{512} * shape.rows, "outputs"));
  CARAT_ASSIGN(Arena scratch,
               Arena::allocate(bench.budget, MemoryCategory::activations,
                               linear_scratch_bytes(shape.columns) * static_cast<unsigned>(bench.pool.threads()),
                               "scratch"));
  fmt::print("{:5} {:6}x{:<5}", name(type), shape.rows, shape.columns);
  for (const std::uint32_t tokens : {1u, 4u, 8u}) {
    Inputs store;
    const auto form = is_float(type) ? ActivationForm::f32 : ActivationForm::q15;
    const Activations x = make_inputs(bench.table, form, tokens, shape.columns, store);
    const Timing time = measure(bench.repetitions, bench.pool.threads(), [&] {
      for (std::uint64_t c = 0; c < copies; ++c) {
        multiply(bench, {layout, memory.data() + c * layout.bytes()}, x, out, scratch);
      }
    });
    const double rate = static_cast<double>(copies * layout.bytes()) / time.best;
    fmt::print(" | {}: {:5.1f} GB/s {:3.0f}%", tokens, rate / 1e9, 100 * rate / bench.read_rate);
  }
  Inputs store;
  const auto form = is_float(type) ? ActivationForm::f32 : ActivationForm::q8;
  const std::uint32_t tokens = shape.rows > 100000 ? 64 : 512;
  const Activations x = make_inputs(bench.table, form, tokens, shape.columns, store);
  const Timing time = measure(bench.repetitions, bench.pool.threads(),
                              [&] { multiply(bench, {layout, memory.data()}, x, out, scratch); });
  const double rate = 2.0 * tokens * shape.rows * shape.columns / time.best;
  fmt::print(" | {}: {:5.0f} GOPS", tokens, rate / 1e9);
  if (bench.product_rate > 0) fmt::print(" {:3.0f}%", 100 * rate / bench.product_rate);
  fmt::print("\n");
  return ok_status();
}

/// Packing, as the loader does it: file rows in, panels out.
Status bench_pack(Bench& bench, DType type, const Arena& memory) {
  const PackedLayout layout{type, 4096, 2048};
  CARAT_ASSIGN(Arena packed, Arena::allocate(bench.budget, MemoryCategory::weights, layout.bytes(), "packed"));
  packed.prefault();
  const std::uint64_t panel_rows_bytes = row_bytes(type, layout.columns) * kPanelRows;
  const Timing time = measure(bench.repetitions, bench.pool.threads(), [&] {
    bench.pool.parallel_for(layout.panels(), 8, [&](std::int64_t a, std::int64_t b, int) {
      for (auto p = static_cast<std::uint64_t>(a); p < static_cast<std::uint64_t>(b); ++p) {
        pack_panel(layout, memory.data() + p * panel_rows_bytes, kPanelRows, packed.data() + p * layout.panel_bytes());
      }
    });
  });
  fmt::print("{:5} pack {:5.1f} GB/s\n", name(type), static_cast<double>(layout.bytes()) / time.best / 1e9);
  return ok_status();
}

Status run(const std::string& isa, int threads, const std::string& types, bool quick) {
  CARAT_ASSIGN(const KernelTable* table, select_kernel_table(isa));
  ThreadPool::Options options;
  options.threads = threads;
  CARAT_ASSIGN(auto pool, ThreadPool::create(options));
  Budget budget;
  CARAT_ASSIGN(Arena memory,
               Arena::allocate(budget, MemoryCategory::weights, kColdBytes, "weights", HugePages::advise));
  // Bytes that are valid quants of any type and half-precision scales that are neither subnormal nor infinite.
  for (std::uint64_t i = 0; i < memory.bytes(); ++i) {
    memory.data()[i] = static_cast<std::byte>(0x21 + (i * 7 + i / 64) % 20);
  }
  Bench bench{*pool, budget, *table, quick ? 3 : 9};
  fmt::print("table {}, {} threads\n", table->name, threads);
  measure_ceilings(bench, memory);
  const Shape shapes[] = {{262144, 640}, {2048, 640}, {640, 2048}, {6912, 1152}, {1152, 6912}};
  for (const DType type : {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0, DType::q4_k, DType::q5_k,
                           DType::q6_k, DType::bf16, DType::f16, DType::f32}) {
    if (!types.empty() && ("," + types + ",").find("," + std::string(name(type)) + ",") == std::string::npos) continue;
    CARAT_TRY(bench_pack(bench, type, memory));
    for (const Shape shape : shapes) {
      if (shape.columns % info(type).block_elements != 0) continue;
      if (quick && shape.rows == 2048) continue;
      if (type != DType::q8_0 && shape.rows == 262144) continue;
      CARAT_TRY(bench_shape(bench, type, shape, memory));
    }
  }
  return ok_status();
}

}  // namespace
}  // namespace carat

int main(int argc, char** argv) {
  std::string isa;
  std::string types;
  int threads = 2;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--quick") {
      quick = true;
    } else if (i + 1 < argc && option == "--isa") {
      isa = argv[++i];
    } else if (i + 1 < argc && option == "--types") {
      types = argv[++i];
    } else if (i + 1 < argc && option == "--threads") {
      threads = std::max(1, std::atoi(argv[++i]));
    } else {
      fmt::print(stderr, "usage: kernels_bench [--isa NAME] [--threads N] [--types q4_0,q8_0] [--quick]\n");
      return 2;
    }
  }
  const carat::Status status = carat::run(isa, threads, types, quick);
  if (status.ok()) return 0;
  fmt::print(stderr, "kernels_bench: {}\n", status.message());
  return carat::exit_code(status.code());
}
