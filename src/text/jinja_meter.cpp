#include "text/jinja_meter.h"

#include <fmt/format.h>

#include <algorithm>

namespace carat {

Status JinjaMeter::step(std::uint64_t count) {
  steps_ += count;
  if (steps_ <= limits_.steps) return ok_status();
  return invalid(fmt::format("step limit ({}) reached: a loop in the template runs too long", limits_.steps));
}

Status JinjaMeter::room_for(std::uint64_t bytes) {
  if (bytes > limits_.value_bytes || used_ > limits_.value_bytes - bytes) {
    return invalid(fmt::format("memory limit ({} bytes) reached: the template builds values that are too large",
                               limits_.value_bytes));
  }
  // The budget is asked in slices, so that small values cost no reservation each; the first slice is within its slack.
  constexpr std::uint64_t kSlice = 1ULL << 20U;
  constexpr std::uint64_t kFree = 64ULL << 10U;
  const std::uint64_t wanted = used_ + bytes;
  if (limits_.budget == nullptr || wanted <= kFree || wanted <= reserved_) return ok_status();
  const std::uint64_t more = std::max(kSlice, wanted - reserved_);
  CARAT_ASSIGN(Reservation slice, limits_.budget->try_reserve(MemoryCategory::tokenizer, more, "chat template values"));
  reservations_.push_back(std::move(slice));
  reserved_ += more;
  return ok_status();
}

Status JinjaMeter::output_room_for(std::uint64_t bytes) const {
  if (bytes <= limits_.output_bytes) return ok_status();
  return invalid(fmt::format("output limit ({} bytes) reached: the template writes too much", limits_.output_bytes));
}

Status JinjaMeter::enter() {
  if (depth_ >= limits_.depth) {
    return invalid(fmt::format("depth limit ({}) reached: macros or expressions are nested too deeply", limits_.depth));
  }
  ++depth_;
  return ok_status();
}

}  // namespace carat
