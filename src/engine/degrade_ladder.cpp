#include "engine/degrade_ladder.h"

#include <algorithm>
#include <array>

namespace carat {

std::string_view name(DegradeStep step) {
  constexpr std::array<std::string_view, 4> kNames{"none", "shorter_answers", "shorter_context", "smaller_model"};
  return kNames[static_cast<std::size_t>(step)];
}

bool DegradeLadder::observe(double now, std::uint64_t waiting, std::uint64_t places, std::uint64_t refused) {
  const double share = static_cast<double>(waiting) / static_cast<double>(std::max<std::uint64_t>(places, 1));
  const Load load = refused > 0 || share >= limits_.high ? Load::high : share <= limits_.low ? Load::low : Load::middle;
  if (load != load_) {
    load_ = load;
    since_ = now;
    return false;
  }
  if (load == Load::high && taken_ < limits_.steps.size() && now - since_ >= limits_.seconds_up) {
    ++taken_;
    since_ = now;
    return true;
  }
  if (load == Load::low && taken_ > 0 && now - since_ >= limits_.seconds_down) {
    --taken_;
    since_ = now;
    return true;
  }
  return false;
}

bool DegradeLadder::holds(DegradeStep step) const {
  const auto end = limits_.steps.begin() + static_cast<std::ptrdiff_t>(taken_);
  return std::find(limits_.steps.begin(), end, step) != end;
}

}  // namespace carat
