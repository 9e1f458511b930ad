#include "engine/draft_policy.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"

namespace carat {
namespace {

/// What is assumed of a step until it is measured: gemma3-270m on two cores with VNNI. Linear kernels take four rows
/// at a time.
double assumed_cost(std::uint32_t rows) { return rows <= 4 ? 0.9 + 0.1 * rows : 0.5 + 0.2 * rows; }

/// What is known of a length that is not used returns to what is assumed of it within some thousand steps, so that it
/// is tried again.
constexpr double kForgottenCost = 0.001;
/// Most that a step counts against what is known of its length, and while that is not much.
constexpr double kMostCounted = 2;
constexpr double kMostCountedAtFirst = 4;
constexpr std::uint32_t kFewSteps = 3;
constexpr double kLeastMore = 0.1;  ///< rows are not taken to cost less than that share of what is assumed
/// Steps without drafts before the first one with, and steps with drafts before another one without.
constexpr std::uint32_t kPlainSteps = 3;
constexpr std::uint32_t kMostSincePlain = 32;
/// A measurement moves what is known at most by this share; the first ones by more.
constexpr double kMove = 0.05;

double moved(double known, double measured, std::uint32_t before) {
  const double most = std::max(kMove, 1.0 / (1 + before));
  return known * std::clamp(measured / known, 1 / (1 + most), 1 + most);
}

/// Assumed shares of drafted tokens that hold, for matches of 2, 3, 4 to 5, 6 to 9 and more tokens, and the drafted
/// tokens that this assumption stands for.
constexpr std::array<double, 5> kAssumed{0.2, 0.4, 0.6, 0.8, 0.9};
constexpr double kAssumedTokens = 2;
/// What is left of a record with each draft.
constexpr double kKept = 0.95;
/// Of matches that are not worth a draft, one in so many gets a token nevertheless: texts change.
constexpr std::uint32_t kAskAgain = 32;
/// Gains below this are not worth their risk.
constexpr double kLeastGain = 1.02;

}  // namespace

StepCosts::StepCosts() {
  for (std::uint32_t rows = 1; rows <= kMostRows; ++rows) relative_[rows] = assumed_cost(rows);
}

double StepCosts::of(std::uint32_t rows) const {
  if (rows <= kMostRows) return relative_[rows];
  return relative_[kMostRows] * assumed_cost(rows) / assumed_cost(kMostRows);
}

/// A length that was not measured is taken to differ from what is assumed of it as those do that were.
double StepCosts::assumed(std::uint32_t rows) const { return 1 + more_ * (assumed_cost(rows) - 1); }

bool StepCosts::known() const { return plain_steps_ >= kPlainSteps && since_plain_ < kMostSincePlain; }

/// Of all lengths but the one just seen.
void StepCosts::forget(std::uint32_t rows) {
  more_ += (1 - more_) * kForgottenCost;
  for (std::uint32_t r = 2; r <= kMostRows; ++r) {
    if (r != rows) relative_[r] += (assumed(r) - relative_[r]) * (observed_[r] == 0 ? 1 : kForgottenCost);
  }
}

double StepCosts::observe(std::uint32_t rows, std::uint32_t drafted, double seconds) {
  if (rows == 0 || rows > kMostRows || !(seconds > 0) || !std::isfinite(seconds)) return of(rows);
  forget(rows);
  since_plain_ = drafted == 0 ? 0 : since_plain_ + 1;
  single_seen_ = single_seen_ || rows == 1;
  // Where a batch never ran a single row, its own rows are taken to cost what is assumed of them.
  if (drafted == 0 && (rows == 1 || !single_seen_)) {
    const double single = seconds / relative_[rows];
    if (plain_steps_ == 0) {
      seconds_ = single;
    } else {
      // What disturbs a step makes it longer: of the first ones the shortest.
      seconds_ = plain_steps_ < kPlainSteps ? std::min(seconds_, single) : moved(seconds_, single, plain_steps_);
    }
    ++plain_steps_;
    return relative_[rows];
  }
  if (plain_steps_ == 0) return of(rows);
  const double measured = seconds / seconds_;
  const double most = observed_[rows] < kFewSteps ? kMostCountedAtFirst : kMostCounted;
  const double counted = std::clamp(measured, 1.0, relative_[rows] * most);
  const double more = std::max(kLeastMore, (counted - 1) / (assumed_cost(rows) - 1));
  more_ = moved(more_, more, compared_++);
  relative_[rows] = std::max(1.0, moved(relative_[rows], measured, observed_[rows]++));
  return counted;
}

std::size_t DraftPolicy::kind(std::uint32_t match) {
  return match <= 3 ? std::max(match, 2U) - 2 : match <= 5 ? 2 : match <= 9 ? 3 : 4;
}

double DraftPolicy::likelihood(std::uint32_t match) const {
  const Record& record = records_[kind(match)];
  return (record.held + kAssumed[kind(match)] * kAssumedTokens) / (record.tried + kAssumedTokens);
}

double DraftPolicy::expected(std::uint32_t match, std::uint32_t drafted) const {
  const double each = likelihood(match);
  double all_held = 1;
  double tokens = 0;
  for (std::uint32_t i = 0; i < drafted; ++i) {
    all_held *= each;
    tokens += all_held;
  }
  return tokens;
}

std::uint32_t DraftPolicy::choose(std::uint32_t match, std::uint32_t most, const StepCosts& costs,
                                  const StepLoad& load) {
  if (!costs.known() || load.rows >= StepCosts::kMostRows) return 0;
  const std::uint32_t longest = std::min(most, StepCosts::kMostRows - load.rows);
  const double token_time = costs.of(load.answers) / load.answers;
  const double each = likelihood(match);
  std::uint32_t best = 0;
  double best_rate = kLeastGain * load.tokens / costs.of(load.rows);
  double all_held = 1;
  double tokens = load.tokens;
  for (std::uint32_t drafted = 1; drafted <= longest; ++drafted) {
    if ((costs.of(load.rows + drafted) - costs.of(load.rows)) / token_time > account_) break;
    all_held *= each;
    tokens += all_held;
    const double rate = tokens / costs.of(load.rows + drafted);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = drafted;
  }
  Record& record = records_[kind(match)];
  if (best > 0 || longest == 0) {
    record.passed = 0;
  } else if (++record.passed >= kAskAgain && costs.of(load.rows + 1) - costs.of(load.rows) <= account_ * token_time) {
    record.passed = 0;
    best = 1;
  }
  return best;
}

void DraftPolicy::completed(std::uint32_t match, std::uint32_t drafted, std::uint32_t accepted, const StepCosts& costs,
                            const StepLoad& load) {
  account_ += kAllowed * (1 + accepted);
  if (drafted > 0) {
    CARAT_CHECK(accepted <= drafted && load.rows >= load.answers + drafted);
    const double token_time = costs.of(load.answers) / load.answers;
    const double share = static_cast<double>(drafted) / (load.rows - load.answers);
    account_ += accepted - share * std::max(0.0, load.cost - costs.of(load.answers)) / token_time;
    Record& record = records_[kind(match)];
    record.tried = record.tried * kKept + std::min(accepted + 1, drafted);
    record.held = record.held * kKept + accepted;
  }
  account_ = std::min(account_, kMostSaved);
}

}  // namespace carat
