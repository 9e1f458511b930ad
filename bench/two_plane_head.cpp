// What the two planes of a head are worth and whether they are exact, on real text.
//   two_plane_head MODEL TEXT [--positions 100000] [--top 40]
// Runs the text through the model in windows of 2,048 tokens, in the decode form. For each position: are the argmax and
// the `top` largest logits of the two planes those of the whole head? Prints the misses, the panels and bytes read, and
// how far a log-normalizer is off in which rows that were not read count by their estimates.
#include <CLI/CLI.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "engine/session.h"
#include "kernels/pack/planes.h"
#include "ops/linear.h"
#include "ops/top_head.h"
#include "quant/half.h"
#include "tensor/scratch.h"

namespace carat {
namespace {

constexpr std::uint32_t kWindow = 2048;
constexpr std::uint32_t kBatch = 64;
constexpr std::uint64_t kEveryNormalizer = 512;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

struct Options {
  std::string model;
  std::string text;
  std::uint64_t positions = 100'000;
  std::uint32_t top = 40;
};

/// A copy of a matrix in planes that has forgotten its low plane: every nibble is `nibble`, every scale at its middle.
struct HighPlane {
  static Result<HighPlane> of(const PackedMatrix& weights, int nibble, Budget& budget) {
    HighPlane copy;
    CARAT_ASSIGN(copy.arena, Arena::allocate(budget, MemoryCategory::weights, weights.layout.bytes(), "a copy"));
    std::memcpy(copy.arena.data(), weights.data, weights.layout.bytes());
    copy.matrix = packed_matrix(weights.layout, copy.arena.data());
    for (std::uint32_t p = 0; p < weights.layout.panels(); ++p) {
      pack::PlaneHeader header;
      std::memcpy(&header, weights.high(p), sizeof header);
      std::byte* low = copy.arena.data() + (weights.low(p) - weights.data);  // one block holds both planes
      for (std::uint32_t s = 0; s < weights.columns() / kStepColumns; ++s, low += kPlaneStepBytes) {
        std::memset(low, nibble * 17, pack::kPlaneScales);
        std::memset(low + pack::kPlaneScales, header.middle - header.base, kPanelRows);
      }
    }
    return copy;
  }
  Arena arena;
  PackedMatrix matrix;
};

/// Mean and largest of what was added.
struct Figure {
  double sum = 0;
  double most = 0;
  std::uint64_t count = 0;
  void add(double value) {
    sum += value;
    most = std::max(most, value);
    ++count;
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

class Proof {
 public:
  static Result<Proof> open(const Options& options) {
    Proof proof;
    proof.options_ = options;
    SessionOptions asked;
    asked.model = options.model;
    asked.context = kWindow;
    asked.chunk = kBatch;
    asked.logits_rows = kTopHeadRows;
    asked.input_bytes = std::uint64_t{2} << 30;  // the copies
    CARAT_ASSIGN(proof.session_, Session::open(asked, nullptr));
    const PackedLayout& head = proof.session_->weights().head.layout;
    if (head.form != PackedForm::planes) return invalid("the head does not lie in two planes: it is not Q8_0");
    for (int i = 0; i < 2; ++i) {
      CARAT_ASSIGN(proof.high_[i], HighPlane::of(proof.session_->weights().head, 7 + i, proof.session_->budget()));
    }
    return proof;
  }

  Status run() {
    std::ifstream file(options_.text, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    CARAT_ASSIGN(const std::vector<std::int32_t> ids, session_->tokenizer()->encode(text));
    const std::int32_t bos = session_->tokenizer()->bos();
    for (std::size_t begin = 0; begin + kWindow - 1 <= ids.size() && done_ < options_.positions; begin += kWindow - 1) {
      std::vector<std::int32_t> window{bos};
      window.insert(window.end(), ids.begin() + static_cast<long>(begin),
                    ids.begin() + static_cast<long>(begin + kWindow - 1));
      CARAT_TRY(run_window(window));
    }
    print();
    return ok_status();
  }

 private:
  Status run_window(const std::vector<std::int32_t>& window) {
    CARAT_ASSIGN(const SequenceId sequence, session_->kv().open());
    for (std::uint32_t first = 0; first < kWindow && done_ < options_.positions; first += kBatch) {
      CARAT_TRY(session_->kv().reserve(sequence, first + kBatch));
      std::vector<std::int32_t> positions(kBatch);
      std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
      std::vector<std::uint32_t> rows(kBatch);
      std::iota(rows.begin(), rows.end(), 0U);
      const std::uint32_t seq_begin[2] = {0, kBatch};
      Batch batch;
      batch.tokens = std::span(window).subspan(first, kBatch);
      batch.positions = positions;
      batch.seq_begin = seq_begin;
      batch.rows_with_logits = rows;
      batch.generated_rows = kBatch;
      session_->decoder().forward(batch, session_->kv(), {&sequence, 1});
      for (std::uint32_t row = 0; row < kBatch; row += kTopHeadRows) check_rows(row);
    }
    session_->kv().close(sequence);
    fmt::print(stderr, "\r{} positions, {} and {} misses", done_, argmax_misses_, top_misses_);
    return ok_status();
  }

  void check_rows(std::uint32_t first) {
    Decoder& decoder = session_->decoder();
    const std::uint32_t vocab = session_->config().vocab;
    const HeadReads before = decoder.head_reads();
    const std::span<const float> greedy = decoder.top_logits(first, kTopHeadRows, 1, vocab);
    std::vector<float> best;
    for (std::uint32_t r = 0; r < kTopHeadRows; ++r) {
      best.push_back(*std::max_element(greedy.begin() + r * vocab, greedy.begin() + (r + 1) * vocab));
    }
    const HeadReads between = decoder.head_reads();
    const std::span<const float> read = decoder.top_logits(first, kTopHeadRows, options_.top, vocab);
    top_.assign(read.begin(), read.end());
    greedy_panels_ += between.panels - before.panels;
    top_panels_ += decoder.head_reads().panels - between.panels;
    const std::span<const float> all = decoder.logits(first, kTopHeadRows);
    for (std::uint32_t r = 0; r < kTopHeadRows; ++r, ++done_) {
      const std::span<const float> whole = all.subspan(std::size_t{r} * vocab, vocab);
      const std::span<const float> some = std::span(top_).subspan(std::size_t{r} * vocab, vocab);
      sorted_.assign(whole.begin(), whole.end());
      std::nth_element(sorted_.begin(), sorted_.begin() + options_.top - 1, sorted_.end(), std::greater<>());
      const float least = sorted_[options_.top - 1];
      argmax_misses_ += best[r] == *std::max_element(sorted_.begin(), sorted_.begin() + options_.top) ? 0 : 1;
      bool same = true;
      for (std::uint32_t i = 0; i < vocab; ++i) same = same && (whole[i] < least || some[i] == whole[i]);
      top_misses_ += same ? 0 : 1;
    }
    if (done_ % kEveryNormalizer == 0) check_normalizer(first + kTopHeadRows - 1, all.last(vocab));
  }

  /// log of the sum of exp of all logits, against: exp of those that top_logits() read, and for all others exp of the
  /// estimate, less half of its variance, by which the mean of the exponential of a normal variable is too large.
  void check_normalizer(std::uint32_t row, std::span<const float> whole) {
    const ModelConfig& config = session_->config();
    const PackedMatrix& head = session_->weights().head;
    const std::span<const float> x = session_->decoder().final_hidden(row);
    std::vector<float> estimates[2];
    for (int i = 0; i < 2; ++i) {
      estimates[i].resize(config.vocab);
      const LinearTarget target{&high_[i].matrix, estimates[i].data(), config.vocab};
      linear(session_->decoder().ops(), {x.data(), 1, config.width, 1}, {&target, 1});
    }
    std::vector<double> energies;
    for (std::size_t c = 0; c < x.size(); c += kStepColumns) {
      double energy = 0;
      for (std::size_t i = c; i < c + kStepColumns; ++i) energy += double{x[i]} * double{x[i]};
      energies.push_back(energy);
    }
    double exact = 0;
    double estimated = 0;
    double unread = 0;
    const std::span<const float> read = std::span(top_).last(config.vocab);
    for (std::uint32_t r = 0; r < config.vocab; ++r) {
      const double weight = std::exp(double{whole[r]} - 20);
      exact += weight;
      if (read[r] != kNothing) {
        estimated += weight;
        continue;
      }
      double variance = 0;
      for (std::uint32_t s = 0; s < energies.size(); ++s) {
        const double scale = double{scale_of(head, r, s)};
        variance += scale * scale * 21.25 * energies[s];
      }
      const double estimate = 0.5 * (double{estimates[0][r]} + double{estimates[1][r]});
      estimated += std::exp(estimate - variance / 2 - 20);
      unread += weight;
    }
    normalizer_errors_.add(std::fabs(std::log(estimated) - std::log(exact)));
    unread_shares_.add(unread / exact);
  }

  static float scale_of(const PackedMatrix& head, std::uint32_t row, std::uint32_t step) {
    pack::PlaneHeader header;
    const std::byte* high = head.high(row / kPanelRows);
    std::memcpy(&header, high, sizeof header);
    const std::uint64_t at = std::uint64_t{step} * kPlaneStepBytes + pack::kPlaneScales + row % kPanelRows;
    const int code = std::to_integer<int>(high[pack::kPlaneHeaderBytes + at]);
    const int rest = std::to_integer<int>(head.low(row / kPanelRows)[at]);
    return half_to_float(static_cast<std::uint16_t>(header.base + (code << header.shift) + rest));
  }

  void print() const {
    const PackedLayout& head = session_->weights().head.layout;
    const double whole = static_cast<double>(head.bytes());
    const auto share = [&](std::uint64_t panels) {
      const double bytes = static_cast<double>(head.high_bytes() * head.panels()) +
                           static_cast<double>(panels * head.panel_bytes()) / static_cast<double>(done_);
      return bytes / whole;
    };
    fmt::print(stderr, "\n");
    fmt::print("{} positions of {}, reach {}\n", done_, options_.text, kHeadReach);
    fmt::print("argmax: {} misses, {:.1f} panels of {} read whole, {:.1f}% of the head's bytes\n", argmax_misses_,
               static_cast<double>(greedy_panels_) / static_cast<double>(done_), head.panels(),
               100 * share(greedy_panels_));
    fmt::print("top {}: {} misses, {:.1f} panels read whole, {:.1f}% of the head's bytes\n", options_.top, top_misses_,
               static_cast<double>(top_panels_) / static_cast<double>(done_), 100 * share(top_panels_));
    fmt::print(
        "log-normalizer with estimates of what top {} leaves unread ({:.2f} of the weight): off by {:.5f} in the "
        "mean, {:.5f} at most, over {} positions\n",
        options_.top, unread_shares_.mean(), normalizer_errors_.mean(), normalizer_errors_.most,
        normalizer_errors_.count);
  }

  Options options_;
  std::unique_ptr<Session> session_;
  HighPlane high_[2];  ///< with low nibbles of 7 and of 8: the mean has them at their centre
  Figure normalizer_errors_;
  Figure unread_shares_;
  std::vector<float> top_;
  std::vector<float> sorted_;
  std::uint64_t done_ = 0;
  std::uint64_t argmax_misses_ = 0;
  std::uint64_t top_misses_ = 0;
  std::uint64_t greedy_panels_ = 0;
  std::uint64_t top_panels_ = 0;
};

}  // namespace
}  // namespace carat

int main(int argc, char** argv) {
  carat::Options options;
  CLI::App app("the two planes of a head against the whole head");
  app.add_option("model", options.model)->required();
  app.add_option("text", options.text)->required();
  app.add_option("--positions", options.positions);
  app.add_option("--top", options.top)->check(CLI::Range(1U, carat::kMostTopLogits));
  CLI11_PARSE(app, argc, argv);
  auto proof = carat::Proof::open(options);
  const carat::Status status = proof.ok() ? proof->run() : proof.status();
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.message());
  return 2;
}
