// Which requests run, and which rows run next. Pure: no clock, no threads, no memory but its own lists, so that it can
// be simulated.
#pragma once

#include <algorithm>
#include <array>
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
  std::uint32_t pages = 0;          ///< of KV, for all sequences; 0: requests do not wait for pages
  /// A request is started when its prompt has pages, and may have to give them back; else when its longest answer has.
  bool preemptible = false;
  std::uint32_t long_tokens = 1024;  ///< prompt and answer beyond which a request is a long one
  std::uint32_t mixed_rows = 64;     ///< of long prompts, in a step that others wait for or may wait for
};

/// What is asked for a request. Ids are the caller's, and unique.
struct Submission {
  RequestId request = 0;
  std::uint32_t prompt = 0;        ///< tokens, one at least
  std::uint32_t most_tokens = 0;   ///< prompt and longest answer
  std::uint32_t prompt_pages = 0;  ///< of KV that the prompt and a first token need
  std::uint32_t most_pages = 0;    ///< and the longest answer
  RequestId after = 0;             ///< not before that one has read its prompt, or has ended
};

/// Rows of one request in one step: tokens [first, first + count) of prompt + answer.
struct StepItem {
  RequestId request = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool generated = false;     ///< a token the model made, and the drafted ones behind it
  bool wants_logits = false;  ///< its last row decides the next token; of generated ones each does
  bool again = false;         ///< generated ones whose KV was given up and is computed again: no row has logits
};

/// Two queues, of short and of long requests, each first come, first served, each with a share of the sequences that
/// the other cannot take. A request that was passed over often is next. Every step carries one row of each running
/// answer, then drafts that were asked for as far as there is room, then prompt rows: short prompts first. While others
/// run a long prompt is read in small pieces, and takes no more of the time than it leaves.
class Scheduler {
 public:
  /// Starts of others after which the first of a queue is the next to start.
  static constexpr std::uint32_t kPatience = 16;
  /// Steps that a long prompt waits at most for answers to catch up.
  static constexpr std::uint32_t kMostSkipped = 64;

  explicit Scheduler(const SchedulerLimits& limits) : limits_(limits) {}

  /// A request waits until a sequence and pages are free.
  void submit(const Submission& submission);
  /// Moves requests that can start to the running ones and appends them to `started`. The caller opens their sequences
  /// before next().
  void start(std::vector<RequestId>& started);
  /// Of a request that has just started: its first `tokens` tokens need not be computed, and a step ends at token
  /// `boundary` if that lies in its prompt (0: none).
  void begin_at(RequestId request, std::uint32_t tokens, std::uint32_t boundary);
  /// Whether begin_at() was given this boundary.
  bool is_boundary(RequestId request, std::uint32_t tokens) const;
  /// The next step of an answer verifies up to `rows` drafted tokens behind its own row.
  void draft(RequestId request, std::uint32_t rows);
  /// Whether the next step reads no prompt.
  bool answers_only() const;
  /// The next step's items, generated rows first; empty when nothing runs.
  std::span<const StepItem> next();
  /// The step's rows have run, in so many seconds; requests whose item wanted logits go on with one more token unless
  /// finish() follows.
  void completed(double seconds = 0);
  /// The last `rows` rows of the request's completed item did not hold.
  void retracted(RequestId request, std::uint32_t rows);
  /// The running request that should give its pages back so that others can go on: the youngest but one at least.
  std::optional<RequestId> victim() const;
  /// It has given them back with `tokens` of prompt and answer known, and waits, first of its queue.
  void preempted(RequestId request, std::uint32_t tokens);
  /// The request ends, whatever its state; its sequence is free for the next step.
  void finish(RequestId request);

  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_[0].size() + waiting_[1].size(); }

 private:
  enum Class : std::uint8_t { kShort, kLong };
  struct Entry {
    Submission asked;
    Class kind = kShort;
    std::uint32_t done = 0;   ///< tokens whose KV exists
    std::uint32_t known = 0;  ///< of a request that was preempted: tokens of prompt and answer then
    std::uint32_t draft = 0;
    std::uint32_t boundary = 0;
    std::uint32_t passed = 0;   ///< starts of others while it was the first of its queue
    std::uint32_t skipped = 0;  ///< steps that its prompt was not read in
    /// Its first `known` - 1 tokens, and its prompt, are there to be computed.
    std::uint32_t given() const { return std::max(asked.prompt, known > 0 ? known - 1 : 0); }
    bool reading() const { return done < given(); }
  };

  Entry* find(RequestId request);
  const Entry* find(RequestId request) const;
  std::uint32_t pages_of(const Entry& entry) const;
  using Queue = std::deque<Entry>;
  bool follows(const Entry& entry) const;
  Queue::iterator candidate(Class kind);
  bool can_start(const Entry& entry) const;
  bool may_take_sequence(Class kind) const;
  std::optional<Class> next_class();
  std::uint32_t add_answers(std::uint32_t rows);
  std::uint32_t add_reading(Entry& entry, std::uint32_t rows);

  SchedulerLimits limits_;
  std::array<Queue, 2> waiting_;
  std::vector<Entry> running_;  ///< in the order of their start
  std::vector<StepItem> items_;
  std::uint32_t pages_taken_ = 0;  ///< by admission
  bool step_has_answers_ = false;
  bool step_has_prompts_ = false;
  double answer_seconds_ = 0;  ///< of a step without prompt rows
  double owed_seconds_ = 0;    ///< to the answers, for the prompt rows that their steps carried
};

}  // namespace carat
