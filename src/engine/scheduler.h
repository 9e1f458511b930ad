// Which rows run next. Pure: no clock, no threads, no memory but its own lists, so that it can be simulated.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "kv/kv_pool.h"

namespace carat {

using RequestId = std::uint64_t;

struct SchedulerLimits {
  std::uint32_t rows = 512;         ///< of one step
  std::uint32_t sequences = 1;      ///< running at once
  std::uint32_t prompt_rows = 512;  ///< of one step, and of any answer: what rings have room for beyond their window
};

/// Rows of one request in one step: tokens [first, first + count) of prompt + answer.
struct StepItem {
  RequestId request = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool generated = false;     ///< a token the model made, and the drafted ones behind it
  bool wants_logits = false;  ///< its last row decides the next token; of generated ones each does
};

/// First come, first served. Every step carries one row of each running answer, then drafts that were asked for as far
/// as there is room, and fills what is left with prompt rows of the oldest request that still reads its prompt, so that
/// a long prompt never stalls the answers.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits) : limits_(limits) {}

  /// A request waits until a sequence is free. Ids are the caller's, and unique.
  void submit(RequestId request, std::uint32_t prompt_tokens);
  /// The next step of an answer verifies up to `rows` drafted tokens behind its own row.
  void draft(RequestId request, std::uint32_t rows);
  /// Whether the next step reads no prompt.
  bool answers_only() const;
  /// The next step's items, answers first; empty when nothing runs or waits. Requests that start in this step are
  /// appended to `started`; the caller opens their sequences before the step runs.
  std::span<const StepItem> next(std::vector<RequestId>& started);
  /// The step's rows have run; requests whose item wanted logits go on with one more token unless finish() follows.
  void completed();
  /// The last `rows` rows of the request's completed item did not hold.
  void retracted(RequestId request, std::uint32_t rows);
  /// The request ends, whatever its state; its sequence is free for the next step.
  void finish(RequestId request);

  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }

 private:
  struct Entry {
    RequestId request = 0;
    std::uint32_t prompt = 0;
    std::uint32_t done = 0;  ///< tokens whose KV exists
    std::uint32_t draft = 0;
    bool reading() const { return done < prompt; }
  };

  Entry* find(RequestId request);

  SchedulerLimits limits_;
  std::deque<Entry> waiting_;
  std::vector<Entry> running_;
  std::vector<StepItem> items_;
};

}  // namespace carat
