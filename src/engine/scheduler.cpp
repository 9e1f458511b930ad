#include "engine/scheduler.h"

#include <algorithm>

namespace carat {

void Scheduler::submit(RequestId request, std::uint32_t prompt_tokens) {
  CARAT_CHECK(prompt_tokens > 0);
  waiting_.push_back({request, prompt_tokens, 0});
}

std::span<const StepItem> Scheduler::next(std::vector<RequestId>& started) {
  started.clear();
  items_.clear();
  while (!waiting_.empty() && running_.size() < limits_.sequences) {
    started.push_back(waiting_.front().request);
    running_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  std::uint32_t rows = limits_.rows;
  for (const Entry& entry : running_) {
    if (entry.reading() || rows == 0) continue;
    items_.push_back({entry.request, entry.done, 1, true, true});
    --rows;
  }
  rows = std::min(rows, limits_.prompt_rows);
  for (const Entry& entry : running_) {
    if (!entry.reading() || rows == 0) continue;
    const std::uint32_t count = std::min(rows, entry.prompt - entry.done);
    items_.push_back({entry.request, entry.done, count, false, entry.done + count == entry.prompt});
    rows -= count;
  }
  return items_;
}

void Scheduler::completed() {
  for (const StepItem& item : items_) {
    const auto entry = std::find_if(running_.begin(), running_.end(),
                                    [&](const Entry& e) { return e.request == item.request; });
    if (entry != running_.end()) entry->done += item.count;
  }
  items_.clear();
}

void Scheduler::finish(RequestId request) {
  std::erase_if(running_, [&](const Entry& entry) { return entry.request == request; });
  std::erase_if(waiting_, [&](const Entry& entry) { return entry.request == request; });
}

}  // namespace carat
