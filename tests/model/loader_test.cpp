// The loader: damaged files are one named error, memory stays within final size plus staging, rows are reordered.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "arch/families.h"
#include "model/load_weights.h"
#include "model/model_file.h"
#include "support/patched_model.h"

namespace carat::test {
namespace {

std::string tiny(const std::string& name) { return CARAT_FIXTURES "/tiny/" + name + "/model.gguf"; }

/// A file that is open and laid out, not loaded.
struct Opened {
  Budget budget;
  ModelFile file;
  WeightsLayout layout;

  Status open(const std::string& path) {
    CARAT_ASSIGN(file, ModelFile::open(path, budget));
    CARAT_ASSIGN(const KernelTable* table, select_kernel_table("ref"));
    CARAT_ASSIGN(layout, make_weights_layout(file.config, file.tensors, *table));
    return ok_status();
  }
  Result<ModelWeights> load(int threads = 1, const LoadProgress& progress = nullptr) {
    CARAT_ASSIGN(const auto pool, ThreadPool::create({.threads = threads, .cpus = {}}));
    return load_weights(file.config, layout, *file.tensor_source(), budget, *pool, progress);
  }
};

/// The error of opening, laying out and loading; empty when all goes well.
std::string failure(const std::string& path) {
  Opened opened;
  const Status status = opened.open(path);
  if (!status.ok()) return status.message();
  const auto weights = opened.load(2);
  if (weights.ok()) return {};
  EXPECT_EQ(opened.budget.report()[MemoryCategory::weights].reserved, 0u);
  return weights.status().message();
}

std::string failure_of(const std::string& model, const std::function<void(std::vector<TensorCopy>&)>& edit) {
  const PatchedModel patched(tiny(model), edit);
  return failure(patched.path());
}

void expect_names(const std::string& message, const std::string& tensor, const std::string& what) {
  EXPECT_NE(message.find("'" + tensor + "'"), std::string::npos) << message;
  EXPECT_NE(message.find(what), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(Loader, AnUnchangedCopyLoads) {
  EXPECT_EQ(failure_of("gemma3-gqa42", [](auto&) {}), "");
  EXPECT_EQ(failure_of("llama-untied", quantize_matrices), "");
}

TEST(Loader, NotANumberNamesItsTensor) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    for (const char* tensor :
         {"token_embd.weight", "blk.3.attn_v.weight", "output_norm.weight", "blk.5.attn_q_norm.weight"}) {
      for (const bool last : {false, true}) {
        expect_names(failure_of("gemma3-gqa42",
                                [&](auto& tensors) {
                                  TensorCopy& patched = find_tensor(tensors, tensor);
                                  patched.floats()[last ? patched.data.size() / sizeof(float) - 1 : 0] = bad;
                                }),
                     tensor, "NaN or infinite");
      }
    }
  }
}

TEST(Loader, ABlockScaleThatIsNotFiniteNamesItsTensor) {
  // float16 NaN, +inf, -inf
  for (const std::uint16_t bad : std::initializer_list<std::uint16_t>{0x7E00, 0x7C00, 0xFC00}) {
    expect_names(failure_of("llama-untied",
                            [&](auto& tensors) {
                              quantize_matrices(tensors);
                              TensorCopy& patched = find_tensor(tensors, "blk.1.ffn_down.weight");
                              std::memcpy(patched.data.data() + 34 * 77, &bad, sizeof bad);
                            }),
                 "blk.1.ffn_down.weight", "NaN or infinite");
  }
}

TEST(Loader, TypesWithoutKernelsAreRefusedByName) {
  for (const DType type : {DType::i8, DType::i16, DType::i32, DType::i64, DType::f64}) {
    for (const char* tensor : {"token_embd.weight", "blk.0.attn_k.weight", "blk.1.attn_norm.weight"}) {
      const std::string message = failure_of("llama-tied", [&](auto& tensors) {
        TensorCopy& patched = find_tensor(tensors, tensor);
        patched.data.resize(patched.data.size() / sizeof(float) * info(type).block_bytes);
        patched.type = type;
      });
      expect_names(message, tensor, "is " + std::string(name(type)));
    }
  }
}

TEST(Loader, MissingAndMisshapenTensorsAreNamed) {
  expect_names(failure_of("llama-tied",
                          [](auto& tensors) {
                            std::erase_if(tensors, [](const auto& t) { return t.name == "blk.1.ffn_up.weight"; });
                          }),
               "blk.1.ffn_up.weight", "missing");
  expect_names(failure_of("llama-tied",
                          [](auto& tensors) {
                            TensorCopy& patched = find_tensor(tensors, "blk.1.attn_k.weight");
                            patched.dimensions = {32, 64};
                          }),
               "blk.1.attn_k.weight", "shape");
}

TEST(Loader, RotaryFactorsMustBePositive) {
  for (const float bad : {0.0F, -1.0F}) {
    expect_names(failure_of("llama3-scaled",
                            [&](auto& tensors) { find_tensor(tensors, "rope_freqs.weight").floats()[2] = bad; }),
                 "rope_freqs.weight", "factor 2");
  }
}

TEST(Loader, AFileThatShrinksAfterItWasOpenedIsAnError) {
  const PatchedModel patched(tiny("llama-tied"), [](auto&) {});
  Opened opened;
  ASSERT_TRUE(opened.open(patched.path()).ok());
  std::filesystem::resize_file(patched.path(), std::filesystem::file_size(patched.path()) / 2);
  const auto weights = opened.load(2);
  ASSERT_FALSE(weights.ok());
  EXPECT_NE(weights.status().message().find("tensor '"), std::string::npos) << weights.status().message();
  EXPECT_NE(failure(patched.path()), "");  // and the header now says more than the file holds
}

TEST(Loader, AFileRemovedAfterItWasOpenedStillLoads) {
  Opened opened;
  {
    const PatchedModel patched(tiny("llama-tied"), [](auto&) {});
    ASSERT_TRUE(opened.open(patched.path()).ok());
  }
  EXPECT_TRUE(opened.load().ok());
}

TEST(Loader, ThePeakIsTheFinalSizeAndTheStaging) {
  for (const int threads : {1, 3}) {
    Opened opened;
    ASSERT_TRUE(opened.open(tiny("gemma3-gqa42")).ok());
    const std::uint64_t header = opened.budget.report()[MemoryCategory::io].reserved;
    const auto weights = opened.load(threads);
    ASSERT_TRUE(weights.ok());
    const BudgetReport report = opened.budget.report();
    const std::uint64_t final_bytes = (opened.layout.bytes + 4095) / 4096 * 4096;
    EXPECT_EQ(report[MemoryCategory::weights].peak, final_bytes);
    EXPECT_EQ(report[MemoryCategory::weights].reserved, final_bytes);
    EXPECT_EQ(report[MemoryCategory::io].peak, header + loading_bytes(opened.layout, threads));
    EXPECT_EQ(report[MemoryCategory::io].reserved, header);
    EXPECT_EQ(report.reserved, final_bytes + header);
  }
}

TEST(Loader, StagingStaysBelowEightMebibytesOnAnyMachine) {
  WeightsLayout layout;
  for (const std::uint64_t staging : {1U << 20, 1'400'000U, 5'000'000U}) {
    layout.staging_bytes = staging;
    for (const int threads : {1, 2, 7, 8, 9, 64, 1024}) {
      EXPECT_LE(loading_bytes(layout, threads), std::uint64_t{8} << 20) << staging << " " << threads;
      EXPECT_GE(loading_bytes(layout, threads), staging);
    }
  }
  layout.staging_bytes = 20'000'000;  // a panel of very long rows needs what it needs, once
  EXPECT_EQ(loading_bytes(layout, 64), 20'000'000u);
}

TEST(Loader, ProgressCountsAllBytesAndMayStop) {
  Opened opened;
  ASSERT_TRUE(opened.open(tiny("llama-tied")).ok());
  std::uint64_t done = 0;
  std::uint64_t total = 1;
  ASSERT_TRUE(opened
                  .load(2,
                        [&](std::uint64_t now, std::uint64_t all) {
                          EXPECT_GT(now, done);
                          done = now;
                          total = all;
                          return true;
                        })
                  .ok());
  EXPECT_EQ(done, total);
  const auto stopped = opened.load(1, [](std::uint64_t, std::uint64_t) { return false; });
  EXPECT_EQ(stopped.status().code(), StatusCode::interrupted);
}

// llama files order the rows of a head for adjacent pairs: row 2i + s of the file is row i of half s here.
TEST(Loader, LlamaRowsAreReorderedForRotateHalf) {
  const auto number_rows = [](std::vector<TensorCopy>& tensors) {
    for (const char* name : {"blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight"}) {
      TensorCopy& tensor = find_tensor(tensors, name);
      for (std::uint64_t i = 0; i < tensor.data.size() / sizeof(float); ++i) {
        tensor.floats()[i] = static_cast<float>(i / tensor.columns());
      }
    }
  };
  const PatchedModel patched(tiny("llama-tied"), number_rows);
  Opened opened;
  ASSERT_TRUE(opened.open(patched.path()).ok());
  const auto weights = opened.load(3);
  ASSERT_TRUE(weights.ok());
  const std::uint32_t dim = opened.file.config.head_dim;
  const auto row_number = [&](const PackedMatrix& matrix, std::uint32_t row) {
    std::vector<float> values(matrix.columns());
    unpack_row(matrix, row, values.data());
    return static_cast<std::uint32_t>(values[0]);
  };
  for (const PackedMatrix& matrix : {weights->layers[1].q, weights->layers[1].k}) {
    for (std::uint32_t row = 0; row < matrix.rows(); ++row) {
      const std::uint32_t within = row % dim;
      const std::uint32_t source = within < dim / 2 ? 2 * within : 2 * (within - dim / 2) + 1;
      EXPECT_EQ(row_number(matrix, row), row - within + source) << row;
    }
  }
  for (std::uint32_t row = 0; row < weights->layers[1].v.rows(); ++row) {
    EXPECT_EQ(row_number(weights->layers[1].v, row), row);
  }
}

}  // namespace
}  // namespace carat::test
