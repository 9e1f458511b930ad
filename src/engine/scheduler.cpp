#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace carat {

void Scheduler::submit(const Submission& submission) {
  CARAT_CHECK(submission.prompt > 0);
  const Class kind = submission.most_tokens > limits_.long_tokens ? kLong : kShort;
  waiting_[kind].push_back({.asked = submission, .kind = kind});
}

const Scheduler::Entry* Scheduler::find(RequestId request) const {
  const auto entry =
      std::find_if(running_.begin(), running_.end(), [&](const Entry& e) { return e.asked.request == request; });
  return entry == running_.end() ? nullptr : &*entry;
}

Scheduler::Entry* Scheduler::find(RequestId request) { return const_cast<Entry*>(std::as_const(*this).find(request)); }

/// What admission counts for a request.
std::uint32_t Scheduler::pages_of(const Entry& entry) const {
  if (limits_.pages == 0) return 0;
  return std::min(limits_.pages, limits_.preemptible ? entry.asked.prompt_pages : entry.asked.most_pages);
}

/// Whether the request waits for another one to read its prompt, be that one running or waiting itself.
bool Scheduler::follows(const Entry& entry) const {
  const RequestId leader = entry.asked.after;
  if (leader == 0) return false;
  if (const Entry* running = find(leader); running != nullptr) return running->reading();
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const Queue& queue) {
    return std::any_of(queue.begin(), queue.end(), [&](const Entry& e) { return e.asked.request == leader; });
  });
}

/// The first of a queue that waits for room alone.
Scheduler::Queue::iterator Scheduler::candidate(Class kind) {
  return std::find_if(waiting_[kind].begin(), waiting_[kind].end(),
                      [this](const Entry& entry) { return !follows(entry); });
}

bool Scheduler::can_start(const Entry& entry) const {
  if (running_.size() >= limits_.sequences || !may_take_sequence(entry.kind)) return false;
  return limits_.pages == 0 || pages_taken_ + pages_of(entry) <= limits_.pages;
}

/// Long requests leave a quarter of the sequences to short ones, always, so that a short one finds one soon. Short ones
/// leave as many to long ones that wait.
bool Scheduler::may_take_sequence(Class kind) const {
  if (limits_.sequences == 1) return true;
  const Class other = kind == kShort ? kLong : kShort;
  if (kind == kShort && waiting_[kLong].empty()) return true;
  const std::uint32_t share = std::max(1U, limits_.sequences / 4);
  const auto mine = static_cast<std::uint32_t>(
      std::count_if(running_.begin(), running_.end(), [&](const Entry& entry) { return entry.kind != other; }));
  return mine < limits_.sequences - share;
}

/// Which queue the next request comes from; none while nobody can start.
std::optional<Scheduler::Class> Scheduler::next_class() {
  // Who was passed over too often is waited for: nobody else takes the room that it needs.
  for (const Class kind : {kLong, kShort}) {
    const auto first = candidate(kind);
    if (first == waiting_[kind].end() || first->passed < kPatience || !may_take_sequence(kind)) continue;
    return can_start(*first) ? std::optional(kind) : std::nullopt;
  }
  for (const Class kind : {kShort, kLong}) {
    const auto first = candidate(kind);
    if (first != waiting_[kind].end() && can_start(*first)) return kind;
  }
  return std::nullopt;
}

void Scheduler::start(std::vector<RequestId>& started) {
  while (const std::optional<Class> kind = next_class()) {
    const auto first = candidate(*kind);
    first->passed = 0;
    pages_taken_ += pages_of(*first);
    started.push_back(first->asked.request);
    running_.push_back(*first);
    waiting_[*kind].erase(first);
    const Class other = *kind == kShort ? kLong : kShort;
    if (const auto passed = candidate(other); passed != waiting_[other].end()) ++passed->passed;
  }
}

void Scheduler::begin_at(RequestId request, std::uint32_t tokens, std::uint32_t boundary) {
  Entry* entry = find(request);
  CARAT_CHECK(entry != nullptr && tokens < entry->asked.prompt);
  entry->done = tokens;
  entry->boundary = boundary;
}

bool Scheduler::is_boundary(RequestId request, std::uint32_t tokens) const {
  const Entry* entry = find(request);
  return entry != nullptr && entry->boundary == tokens;
}

void Scheduler::draft(RequestId request, std::uint32_t rows) {
  if (Entry* entry = find(request); entry != nullptr) entry->draft = rows;
}

bool Scheduler::answers_only() const {
  return std::none_of(running_.begin(), running_.end(), [](const Entry& entry) { return entry.reading(); });
}

/// Rows of answers, and drafts behind them; returns the rows that are left.
std::uint32_t Scheduler::add_answers(std::uint32_t rows) {
  const auto answers = static_cast<std::uint32_t>(
      std::count_if(running_.begin(), running_.end(), [](const Entry& entry) { return !entry.reading(); }));
  step_has_answers_ = answers > 0;
  std::uint32_t drafts = rows - std::min(rows, answers);
  for (Entry& entry : running_) {
    const std::uint32_t draft = std::min({std::exchange(entry.draft, 0U), drafts, limits_.prompt_rows - 1});
    if (entry.reading() || rows == 0) continue;
    items_.push_back({entry.asked.request, entry.done, 1 + draft, true, true});
    rows -= 1 + draft;
    drafts -= draft;
  }
  return rows;
}

/// The next rows of what the request has to read, `rows` at most; returns how many.
std::uint32_t Scheduler::add_reading(Entry& entry, std::uint32_t rows) {
  const bool again = entry.done >= entry.asked.prompt;
  std::uint32_t end = again ? entry.given() : entry.asked.prompt;
  if (!again && entry.boundary > entry.done) end = std::min(end, entry.boundary);
  const std::uint32_t count = std::min(rows, end - entry.done);
  if (count == 0) return 0;
  entry.skipped = 0;
  // The token behind the prompt of a preempted request is known.
  const bool decides = !again && entry.known <= entry.asked.prompt && entry.done + count == entry.asked.prompt;
  const StepItem item{entry.asked.request, entry.done, count, again, decides, again};
  if (again) {
    items_.insert(std::find_if(items_.begin(), items_.end(), [](const StepItem& i) { return !i.generated; }), item);
  } else {
    items_.push_back(item);
  }
  return count;
}

std::span<const StepItem> Scheduler::next() {
  items_.clear();
  std::uint32_t rows = std::min(add_answers(limits_.rows), limits_.prompt_rows);
  const auto reads = [](Class kind) { return [kind](const Entry& e) { return e.kind == kind && e.reading(); }; };
  const bool shorts = std::any_of(running_.begin(), running_.end(), reads(kShort));
  const bool longs = std::any_of(running_.begin(), running_.end(), reads(kLong));
  const bool shared = limits_.sequences > 1 || shorts || step_has_answers_;
  std::uint32_t long_rows = shared ? std::min(rows, limits_.mixed_rows) : rows;
  if (longs && step_has_answers_ && owed_seconds_ > 0) {
    std::uint32_t skipped = 0;
    for (Entry& entry : running_) {
      if (entry.kind == kLong && entry.reading()) skipped = std::max(skipped, ++entry.skipped);
    }
    if (skipped <= kMostSkipped) long_rows = 0;
  }
  // Short prompts leave a quarter to long ones.
  std::uint32_t short_rows = longs ? rows - std::min(long_rows, rows / 4) : rows;
  for (Entry& entry : running_) {
    if (entry.kind != kShort || !entry.reading()) continue;
    const std::uint32_t count = add_reading(entry, short_rows);
    short_rows -= count;
    rows -= count;
  }
  rows = std::min(rows, long_rows);
  for (Entry& entry : running_) {
    if (entry.kind == kLong && entry.reading()) rows -= add_reading(entry, rows);
  }
  step_has_prompts_ =
      std::any_of(items_.begin(), items_.end(), [](const StepItem& item) { return !item.generated || item.again; });
  return items_;
}

void Scheduler::completed(double seconds) {
  for (const StepItem& item : items_) {
    if (Entry* entry = find(item.request); entry != nullptr) entry->done += item.count;
  }
  items_.clear();
  if (!step_has_answers_) {
    owed_seconds_ = 0;
  } else if (step_has_prompts_) {
    owed_seconds_ += std::max(0.0, seconds - answer_seconds_);
  } else {
    owed_seconds_ = std::max(0.0, owed_seconds_ - seconds);
    answer_seconds_ = answer_seconds_ == 0 ? seconds : 0.9 * answer_seconds_ + 0.1 * seconds;
  }
}

void Scheduler::retracted(RequestId request, std::uint32_t rows) {
  if (Entry* entry = find(request); entry != nullptr) entry->done -= rows;
}

std::optional<RequestId> Scheduler::victim() const {
  if (running_.size() < 2) return std::nullopt;
  return running_.back().asked.request;
}

void Scheduler::preempted(RequestId request, std::uint32_t tokens) {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const Entry& entry) { return entry.asked.request == request; });
  CARAT_CHECK(found != running_.end());
  Entry entry = *found;
  running_.erase(found);
  pages_taken_ -= pages_of(entry);
  entry.known = tokens > entry.asked.prompt ? tokens : 0;
  entry.done = entry.draft = entry.boundary = 0;
  // It must find room for what it had, or it would be the next to go again.
  entry.asked.prompt_pages = entry.asked.most_pages;
  waiting_[entry.kind].push_front(entry);
}

void Scheduler::finish(RequestId request) {
  if (const Entry* entry = find(request); entry != nullptr) pages_taken_ -= pages_of(*entry);
  const auto is_it = [&](const Entry& entry) { return entry.asked.request == request; };
  std::erase_if(running_, is_it);
  for (Queue& queue : waiting_) std::erase_if(queue, is_it);
}

}  // namespace carat
