// How many tokens to draft. Pure: no clock, measured times come in; simulated in the tests.
#pragma once

#include <array>
#include <cstdint>

namespace carat {

/// What a step of T generated rows takes against one of a single row. Decode reads all weights once a step, so that
/// more rows cost little until the products take longer than the reading; where that is depends on the machine.
class StepCosts {
 public:
  static constexpr std::uint32_t kMostRows = 16;  ///< longer steps are not drafted for

  StepCosts();
  /// A step of `rows` rows, `drafted` of them drafts, took so long. Returns that in steps of one row as far as it can
  /// be believed: a step that was disturbed counts, and moves what is known, only a little.
  double observe(std::uint32_t rows, std::uint32_t drafted, double seconds);
  /// Whether steps without drafts were seen to compare with, the last one not long ago.
  bool known() const;
  /// 1 for one row.
  double of(std::uint32_t rows) const;

 private:
  double assumed(std::uint32_t rows) const;
  void forget(std::uint32_t rows);

  double seconds_ = 0;  ///< of a step of one row, as steps without drafts say
  double more_ = 1;     ///< what further rows cost here against what is assumed of them
  bool single_seen_ = false;
  std::uint32_t plain_steps_ = 0;  ///< without drafts
  std::uint32_t since_plain_ = 0;
  std::uint32_t compared_ = 0;  ///< steps that changed more_
  std::array<double, kMostRows + 1> relative_{};
  std::array<std::uint32_t, kMostRows + 1> observed_{};
};

/// A step that is being put together.
struct StepLoad {
  std::uint32_t answers = 1;  ///< sequences that get a token in any case
  std::uint32_t rows = 1;     ///< theirs and the drafts so far
  double tokens = 1;          ///< that the step is expected to give
  double cost = 1;            ///< that it had, see StepCosts::observe()
};

/// The state of one request. How likely drafts are to hold is learned for matches of like length; from that and the
/// costs follows the length that gives most tokens a time. What is lost on drafts that do not hold is bounded besides:
/// an account gets kAllowed of a token's time with each token and what drafts save, and pays what they cost.
class DraftPolicy {
 public:
  static constexpr double kAllowed = 0.02;  ///< of the time: most that is lost
  static constexpr double kOpening = 1;     ///< the account's balance at first, in the time of a token
  static constexpr double kMostSaved = 8;   ///< its largest balance

  /// Tokens to draft behind a match of `match` tokens, of at most `most`. 0: not worth it.
  std::uint32_t choose(std::uint32_t match, std::uint32_t most, const StepCosts& costs, const StepLoad& load);
  /// What choose() returned is expected to give.
  double expected(std::uint32_t match, std::uint32_t drafted) const;
  /// The step has run, with this request's `drafted` rows among its rows, the first `accepted` of which held.
  void completed(std::uint32_t match, std::uint32_t drafted, std::uint32_t accepted, const StepCosts& costs,
                 const StepLoad& load);

 private:
  /// Drafted tokens that were looked at, and those that held; older ones fade.
  struct Record {
    double tried = 0;
    double held = 0;
    std::uint32_t passed = 0;  ///< matches in a row that were not worth a draft
  };
  static std::size_t kind(std::uint32_t match);
  double likelihood(std::uint32_t match) const;

  std::array<Record, 5> records_{};
  double account_ = kOpening;
};

}  // namespace carat
