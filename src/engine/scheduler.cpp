#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace carat {

void Scheduler::submit(RequestId request, std::uint32_t prompt_tokens) {
  CARAT_CHECK(prompt_tokens > 0);
  waiting_.push_back({request, prompt_tokens});
}

Scheduler::Entry* Scheduler::find(RequestId request) {
  const auto entry =
      std::find_if(running_.begin(), running_.end(), [&](const Entry& e) { return e.request == request; });
  return entry == running_.end() ? nullptr : &*entry;
}

void Scheduler::draft(RequestId request, std::uint32_t rows) {
  if (Entry* entry = find(request); entry != nullptr) entry->draft = rows;
}

bool Scheduler::answers_only() const {
  return (waiting_.empty() || running_.size() >= limits_.sequences) &&
         std::none_of(running_.begin(), running_.end(), [](const Entry& entry) { return entry.reading(); });
}

std::span<const StepItem> Scheduler::next(std::vector<RequestId>& started) {
  started.clear();
  items_.clear();
  while (!waiting_.empty() && running_.size() < limits_.sequences) {
    started.push_back(waiting_.front().request);
    running_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  const auto answers = static_cast<std::uint32_t>(
      std::count_if(running_.begin(), running_.end(), [](const Entry& entry) { return !entry.reading(); }));
  std::uint32_t rows = limits_.rows;
  std::uint32_t drafts = rows - std::min(rows, answers);
  for (Entry& entry : running_) {
    const std::uint32_t draft = std::min({std::exchange(entry.draft, 0U), drafts, limits_.prompt_rows - 1});
    if (entry.reading() || rows == 0) continue;
    items_.push_back({entry.request, entry.done, 1 + draft, true, true});
    rows -= 1 + draft;
    drafts -= draft;
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
    if (Entry* entry = find(item.request); entry != nullptr) entry->done += item.count;
  }
  items_.clear();
}

void Scheduler::retracted(RequestId request, std::uint32_t rows) {
  if (Entry* entry = find(request); entry != nullptr) entry->done -= rows;
}

void Scheduler::finish(RequestId request) {
  std::erase_if(running_, [&](const Entry& entry) { return entry.request == request; });
  std::erase_if(waiting_, [&](const Entry& entry) { return entry.request == request; });
}

}  // namespace carat
