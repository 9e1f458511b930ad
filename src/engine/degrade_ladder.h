// What a server gives up under sustained load, a step at a time, and takes back. Pure: times come in.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace carat {

enum class DegradeStep : std::uint8_t {
  none,
  shorter_answers,  ///< max_tokens is capped
  shorter_context,  ///< prompts and answers beyond a share of the context are refused for now
  smaller_model,    ///< new requests go to --fallback-model
};
/// "none", "shorter_answers", …: metrics and the response header.
std::string_view name(DegradeStep step);

struct LadderLimits {
  double high = 0.75;              ///< of the queue's places: load from here on is too much
  double low = 0.25;               ///< and below this it is over
  double seconds_up = 5;           ///< that load must be too much before each step
  double seconds_down = 15;        ///< that it must be over before one is taken back
  std::vector<DegradeStep> steps;  ///< those that this server can take, in order
};

/// Steps up while the queue stays full or requests are refused, down while it stays short. Between the two marks
/// nothing changes, and both clocks start again: load that swings does not climb.
class DegradeLadder {
 public:
  explicit DegradeLadder(LadderLimits limits) : limits_(std::move(limits)) {}

  /// `waiting` requests of `places` wait at `now` (seconds of any steady clock, not before the last call's), `refused`
  /// since the last call. True when the step has changed.
  bool observe(double now, std::uint64_t waiting, std::uint64_t places, std::uint64_t refused);
  DegradeStep step() const { return taken_ == 0 ? DegradeStep::none : limits_.steps[taken_ - 1]; }
  /// Whether `step` is in force: it, or one behind it.
  bool holds(DegradeStep step) const;
  std::size_t taken() const { return taken_; }

 private:
  enum class Load : std::uint8_t { low, middle, high };
  LadderLimits limits_;
  std::size_t taken_ = 0;  ///< of limits_.steps
  Load load_ = Load::middle;
  double since_ = 0;  ///< when the load became this, or the last step was taken
};

}  // namespace carat
