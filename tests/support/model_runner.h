// Loads a model file and runs batches through the decoder, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "arch/families.h"
#include "model/decoder.h"
#include "model/load_weights.h"
#include "model/model_file.h"
#include "model/packed_file.h"
#include "model/weight_stream.h"
#include "os/file.h"

namespace carat::test {

struct RunnerOptions {
  std::string isa = "ref";
  int threads = 1;
  PlanAsk ask{
      .context = 512, .parallel = 1, .chunk = 64, .kv_local = KvType::f32, .kv_global = KvType::f32, .logits_rows = 8};
  ActivationForms forms{ActivationForm::f32, ActivationForm::f32};
  /// Given the sizes, how the weights are divided between memory and a packed file; null: all in memory.
  WeightPlan (*divide)(const WeightSizes& sizes) = nullptr;
};

/// One run of rows of one sequence.
struct Rows {
  SequenceId sequence = 0;
  std::int32_t first_position = 0;
  std::vector<std::int32_t> tokens;
  bool generated = false;
};

class ModelRunner {
 public:
  /// Null, with the reason as a test failure, when the file does not load.
  static std::unique_ptr<ModelRunner> load(const std::string& path, const RunnerOptions& options) {
    auto runner = std::unique_ptr<ModelRunner>(new ModelRunner(options));
    const Status status = runner->start(path);
    if (status.ok()) return runner;
    ADD_FAILURE() << status.message();
    return nullptr;
  }

  static std::unique_ptr<ModelRunner> load(const ModelFile& file, const RunnerOptions& options) {
    auto runner = std::unique_ptr<ModelRunner>(new ModelRunner(options));
    const Status status = runner->start(file);
    if (status.ok()) return runner;
    ADD_FAILURE() << status.message();
    return nullptr;
  }

  /// Logits of every row of the batch; generated rows must come first.
  std::vector<std::vector<float>> run(const std::vector<Rows>& parts) {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> rope_positions;
    std::vector<std::uint32_t> seq_begin{0};
    std::vector<SequenceId> sequences;
    Batch batch;
    for (const Rows& part : parts) {
      for (std::size_t i = 0; i < part.tokens.size(); ++i) {
        tokens.push_back(part.tokens[i]);
        positions.push_back(part.first_position + static_cast<std::int32_t>(i));
        rope_positions.push_back(positions.back() + rope_offset);
        if (part.generated) ++batch.generated_rows;
      }
      seq_begin.push_back(static_cast<std::uint32_t>(tokens.size()));
      sequences.push_back(part.sequence);
      EXPECT_TRUE(kv_.reserve(part.sequence, static_cast<std::uint32_t>(positions.back() + 1)).ok());
    }
    std::vector<std::uint32_t> rows(tokens.size());
    for (std::uint32_t i = 0; i < rows.size(); ++i) rows[i] = i;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.rope_positions = rope_positions;
    batch.seq_begin = seq_begin;
    batch.rows_with_logits = rows;
    decoder_->forward(batch, kv_, sequences);
    std::vector<std::vector<float>> all;
    for (std::uint32_t first = 0; first < rows.size(); first += decoder_->max_logits_rows()) {
      const auto count = std::min(decoder_->max_logits_rows(), static_cast<std::uint32_t>(rows.size()) - first);
      const std::span<const float> logits = decoder_->logits(first, count);
      for (std::uint32_t r = 0; r < count; ++r) {
        const auto row = logits.subspan(std::size_t{r} * config_.vocab, config_.vocab);
        all.emplace_back(row.begin(), row.end());
      }
    }
    return all;
  }

  /// Logits of one sequence's prompt, fed in chunks of `chunk` rows.
  std::vector<std::vector<float>> run_chunked(SequenceId sequence, const std::vector<std::int32_t>& tokens,
                                              std::size_t chunk) {
    std::vector<std::vector<float>> all;
    for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const std::size_t end = std::min(begin + chunk, tokens.size());
      auto part = run({{sequence,
                        static_cast<std::int32_t>(begin),
                        {tokens.begin() + static_cast<long>(begin), tokens.begin() + static_cast<long>(end)}}});
      for (auto& row : part) all.push_back(std::move(row));
    }
    return all;
  }

  /// Runs one fresh sequence in chunks of the decoder's most rows and hands the logits after each of the `wanted`
  /// positions, ascending, to `use(position, logits)`.
  template <typename Use>
  void for_each_row(SequenceId sequence, const std::vector<std::int32_t>& tokens,
                    const std::vector<std::uint32_t>& wanted, Use use) {
    for (std::uint32_t begin = 0; begin < tokens.size(); begin += decoder_->max_rows()) {
      const auto count = std::min(decoder_->max_rows(), static_cast<std::uint32_t>(tokens.size()) - begin);
      std::vector<std::int32_t> positions(count);
      std::vector<std::uint32_t> rows;
      for (std::uint32_t i = 0; i < count; ++i) positions[i] = static_cast<std::int32_t>(begin + i);
      for (const std::uint32_t row : wanted) {
        if (row >= begin && row < begin + count) rows.push_back(row - begin);
      }
      EXPECT_TRUE(kv_.reserve(sequence, begin + count).ok());
      const std::uint32_t seq_begin[2] = {0, count};
      Batch batch;
      batch.tokens = std::span(tokens).subspan(begin, count);
      batch.positions = positions;
      batch.seq_begin = seq_begin;
      batch.rows_with_logits = rows;
      decoder_->forward(batch, kv_, {&sequence, 1});
      for (std::uint32_t r = 0; r < rows.size(); r += decoder_->max_logits_rows()) {
        const auto tile = std::min(decoder_->max_logits_rows(), static_cast<std::uint32_t>(rows.size()) - r);
        const std::span<const float> logits = decoder_->logits(r, tile);
        for (std::uint32_t i = 0; i < tile; ++i) {
          use(begin + rows[r + i], logits.subspan(std::size_t{i} * config_.vocab, config_.vocab));
        }
      }
    }
  }

  /// Logits after the given positions of one fresh sequence.
  std::vector<std::vector<float>> run_at(SequenceId sequence, const std::vector<std::int32_t>& tokens,
                                         const std::vector<std::uint32_t>& wanted) {
    std::vector<std::vector<float>> all;
    for_each_row(sequence, tokens, wanted,
                 [&](std::uint32_t, std::span<const float> logits) { all.emplace_back(logits.begin(), logits.end()); });
    return all;
  }

  SequenceId open() { return kv_.open().value(); }
  void close(SequenceId sequence) { kv_.close(sequence); }
  const ModelConfig& config() const { return config_; }
  const ModelWeights& weights() const { return weights_; }
  KvPool& kv() { return kv_; }
  Decoder& decoder() { return *decoder_; }
  std::int32_t rope_offset = 0;

 private:
  explicit ModelRunner(const RunnerOptions& options) : options_(options) {}

  Status start(const std::string& path) {
    CARAT_ASSIGN(file_, ModelFile::open(path, budget_));
    const ModelFile& file = file_;
    return start(file);
  }

  Status start(const ModelFile& file) {
    CARAT_ASSIGN(kernels_, select_kernel_table(options_.isa));
    CARAT_ASSIGN(pool_, ThreadPool::create({.threads = options_.threads, .cpus = {}}));
    config_ = file.config;
    CARAT_ASSIGN(layout_, make_weights_layout(config_, file.tensors, *kernels_));
    if (options_.divide == nullptr) {
      CARAT_ASSIGN(weights_, load_weights(config_, layout_, *file.tensor_source(), budget_, *pool_, nullptr));
    } else {
      CARAT_ASSIGN(File packed, open_packed(file, layout_, budget_, *pool_, nullptr));
      CARAT_ASSIGN(weights_, WeightStream::open(std::move(packed), kPackedImageOffset, layout_,
                                                options_.divide(layout_.sizes()), budget_, nullptr));
    }
    CARAT_ASSIGN(kv_, KvPool::create(budget_, config_, options_.ask, *kernels_));
    CARAT_ASSIGN(Decoder decoder,
                 Decoder::create(config_, weights_, *kernels_, options_.forms, options_.ask, budget_, *pool_));
    decoder_ = std::make_unique<Decoder>(std::move(decoder));
    return ok_status();
  }

  RunnerOptions options_;
  Budget budget_;
  const KernelTable* kernels_ = nullptr;
  std::unique_ptr<ThreadPool> pool_;
  ModelConfig config_;
  ModelFile file_;
  WeightsLayout layout_;
  ModelWeights weights_;
  KvPool kv_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace carat::test
