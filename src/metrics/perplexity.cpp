#include "metrics/perplexity.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace carat {
namespace {

/// Most rows of one pass: their positions and row numbers stay small blocks, which need no room in the budget.
constexpr std::uint32_t kMostRows = kSmallBlock / sizeof(std::int32_t);

/// Closes a sequence on every way out.
class OpenSequence {
 public:
  OpenSequence(KvPool& pool, SequenceId id) : pool_(pool), id_(id) {}
  ~OpenSequence() { pool_.close(id_); }
  OpenSequence(const OpenSequence&) = delete;
  OpenSequence& operator=(const OpenSequence&) = delete;

 private:
  KvPool& pool_;
  SequenceId id_;
};

/// Runs ids[0, n) through the decoder; `tile(first, count, rows)` sees each computed tile of logits.
template <typename Tile>
Status for_each_tile(Decoder& decoder, KvPool& kv, std::span<const std::int32_t> ids, std::uint32_t begin,
                     std::uint32_t end, TokenOrigin origin, Tile tile) {
  const auto n = static_cast<std::uint32_t>(ids.size());
  CARAT_CHECK(begin <= end && end <= n);
  CARAT_ASSIGN(const SequenceId sequence, kv.open());
  const OpenSequence closing(kv, sequence);
  CARAT_TRY(kv.reserve(sequence, n));
  const std::uint32_t most_rows = std::min(decoder.max_rows(), kMostRows);
  std::vector<std::int32_t> positions;
  std::vector<std::uint32_t> rows;
  rows.reserve(most_rows);
  for (std::uint32_t from = 0; from < end; from += most_rows) {
    const std::uint32_t count = std::min(most_rows, n - from);
    positions.resize(count);
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(from));
    const std::uint32_t first = std::clamp(begin, from, from + count);
    const std::uint32_t last = std::clamp(end, from, from + count);
    rows.resize(last - first);
    std::iota(rows.begin(), rows.end(), first - from);
    const std::uint32_t seq_begin[2] = {0, count};
    Batch batch;
    batch.tokens = ids.subspan(from, count);
    batch.positions = positions;
    batch.seq_begin = seq_begin;
    batch.rows_with_logits = rows;
    batch.generated_rows = origin == TokenOrigin::generated ? count : 0;
    decoder.forward(batch, kv, {&sequence, 1});
    CARAT_TRY(decoder.stream_status());
    for (std::uint32_t r = 0; r < rows.size(); r += decoder.max_logits_rows()) {
      const std::uint32_t tile_rows = std::min(decoder.max_logits_rows(), static_cast<std::uint32_t>(rows.size()) - r);
      const std::span<const float> logits = decoder.logits(r, tile_rows);
      CARAT_TRY(decoder.stream_status());
      CARAT_TRY(tile(first + r, tile_rows, logits));
    }
  }
  return ok_status();
}

}  // namespace

Status for_each_logits(Decoder& decoder, KvPool& kv, std::span<const std::int32_t> ids, std::uint32_t begin,
                       std::uint32_t end, const LogitsSink& sink, TokenOrigin origin) {
  const std::size_t vocab = decoder.config().vocab;
  return for_each_tile(decoder, kv, ids, begin, end, origin,
                       [&](std::uint32_t first, std::uint32_t count, std::span<const float> logits) -> Status {
                         for (std::uint32_t r = 0; r < count; ++r) {
                           CARAT_TRY(sink(first + r, logits.subspan(r * vocab, vocab)));
                         }
                         return ok_status();
                       });
}

Result<PerplexitySum> score_tokens(Decoder& decoder, KvPool& kv, std::span<const std::int32_t> ids,
                                   std::uint32_t first_scored) {
  PerplexitySum sum;
  const auto n = static_cast<std::uint32_t>(ids.size());
  if (n < 2 || first_scored >= n) return sum;
  const std::uint32_t begin = std::max(first_scored, 1U) - 1;
  const std::size_t vocab = decoder.config().vocab;
  const OpContext& ops = decoder.ops();
  std::vector<double> nll(decoder.max_logits_rows());
  CARAT_TRY(
      for_each_tile(decoder, kv, ids, begin, n - 1, TokenOrigin::prompt,
                    [&](std::uint32_t first, std::uint32_t count, std::span<const float> logits) -> Status {
                      for_rows(ops, count, 4 * vocab, [&](std::uint32_t row_begin, std::uint32_t row_end) {
                        for (std::uint32_t r = row_begin; r < row_end; ++r) {
                          const float* row = logits.data() + r * vocab;
                          const KernelTable::MaxSum found = ops.kernels->max_sum_exp(row, vocab);
                          const auto target = static_cast<std::size_t>(ids[first + r + 1]);
                          nll[r] = double{found.maximum} + std::log(double{found.sum}) - double{row[target]};
                        }
                      });
                      for (std::uint32_t r = 0; r < count; ++r) {
                        if (!std::isfinite(nll[r])) {
                          return invalid(fmt::format(
                              "the logits after position {} are not finite; the model file is damaged", first + r));
                        }
                        sum.nll += nll[r];
                        ++sum.tokens;
                      }
                      return ok_status();
                    }));
  return sum;
}

}  // namespace carat
