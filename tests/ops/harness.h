// An OpContext with memory of the planned sizes, for tests of operators.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "memory/arena.h"
#include "ops/op_context.h"
#include "planner/workspace.h"

namespace carat::test {

class Harness {
 public:
  Harness(const KernelTable& table, int threads, const ModelConfig& config, std::uint32_t rows,
          std::uint32_t context = 8192) {
    auto pool = ThreadPool::create({.threads = threads, .cpus = {}});
    EXPECT_TRUE(pool.ok());
    pool_ = std::move(pool).value();
    const Workspace w = make_workspace(config, {.rows = rows,
                                                .sequences = 6,
                                                .context = context,
                                                .threads = static_cast<std::uint32_t>(threads),
                                                .stage_kv = config.head_dim % 16 == 0,
                                                .track_mass = true});
    auto arena = Arena::allocate(budget_, MemoryCategory::activations, w.bytes, "test");
    EXPECT_TRUE(arena.ok());
    arena_ = std::move(arena).value();
    std::memset(arena_.data(), 0xFF, arena_.bytes());  // NaN: nothing may be read before it is written
    std::byte* base = arena_.data();
    ops.kernels = &table;
    ops.pool = pool_.get();
    ops.quantized = {reinterpret_cast<std::int8_t*>(base + w.high), reinterpret_cast<std::int8_t*>(base + w.low),
                     reinterpret_cast<float*>(base + w.scales), reinterpret_cast<std::int32_t*>(base + w.sums)};
    ops.thread_scratch = base + w.thread_scratch;
    ops.thread_scratch_bytes = w.thread_scratch_bytes;
    ops.joined_offset = w.joined_offset;
    ops.panel_offset = w.panel_offset;
    ops.partials = reinterpret_cast<float*>(base + w.partials);
    ops.split_items = w.split_items;
    ops.split_lanes = w.split_lanes;
    ops.context_segments = w.context_segments;
    ops.kv_stage = base + w.kv_stage;
  }

  OpContext ops;

 private:
  Budget budget_;
  std::unique_ptr<ThreadPool> pool_;
  Arena arena_;
};

/// Widths of one layer.
inline ModelConfig layer_config(std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t head_dim,
                                std::uint32_t width = 64) {
  ModelConfig config;
  config.width = config.ffn = width;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.layers.resize(1);
  return config;
}

inline std::vector<const KernelTable*> tables() {
  const auto usable = usable_kernel_tables();
  return {usable.begin(), usable.end()};
}

inline std::string table_name(const testing::TestParamInfo<const KernelTable*>& info) {
  return std::string(info.param->name);
}

}  // namespace carat::test
