// How requests get their KV: prefixes of earlier ones, room in the pool, and what is given back.
#include <algorithm>

#include "engine/engine.h"

namespace carat {

/// A sequence for a request that starts: behind what is known of its prompt, else empty. `computed` tokens are there
/// already; at `branch` tokens, if that is more, its prompt parts from others.
Result<SequenceId> Engine::open_or_share(Running& running, std::uint32_t& computed, std::uint32_t& branch) {
  const std::span<const std::int32_t> prompt = running.tokens().first(running.prompt_tokens);
  KvPool& kv = session_->kv();
  if (running.request.prompt_logprobs) return kv.open();  // all of it is computed
  const PrefixMatch match = prefix_.find(prompt);
  branch = match.branch;
  if (match.tokens > 0) {
    computed = match.tokens;
    return prefix_.open(match);
  }
  const auto leader = requests_.find(running.request.same_prompt_as);
  if (leader != requests_.end() && leader->second.open && prompt.size() > 1) {
    const Running& other = leader->second;
    const auto shared = static_cast<std::uint32_t>(prompt.size() - 1);
    const bool same = other.prompt_tokens == prompt.size() && other.token_count > other.prompt_tokens &&
                      std::equal(prompt.begin(), prompt.end(), other.tokens().begin());
    // Fails where the leader's rings have gone on too far: the prompt is then read again.
    if (auto copy = same ? kv.fork(other.sequence, shared) : Result<SequenceId>(invalid("another prompt")); copy.ok()) {
      computed = shared;
      return copy;
    }
  }
  return kv.open();
}

void Engine::open_sequence(RequestId id) {
  Running& running = requests_.at(id);
  std::uint32_t computed = 0;
  std::uint32_t branch = 0;
  auto sequence = open_or_share(running, computed, branch);
  CARAT_CHECK(sequence.ok());  // the scheduler starts no more requests than there are sequences
  running.sequence = *sequence;
  running.open = true;
  if (!lookups_.empty()) lookups_[*sequence].clear();
  // A snapshot costs a copy of the window: a few tokens are quicker computed again.
  constexpr std::uint32_t kLeastBranch = 64;
  if (branch < computed + kLeastBranch || !running.request.keep_prefix) branch = 0;
  scheduler_.begin_at(id, computed, branch);
  if (running.sink.started) running.sink.started({running.token_count > running.prompt_tokens ? 0 : computed});
}

/// Pages for the item's rows, taken from the prefix cache if need be.
bool Engine::make_room(const StepItem& item) {
  KvPool& kv = session_->kv();
  const SequenceId sequence = requests_.at(item.request).sequence;
  const std::uint32_t tokens = item.first + item.count;
  if (kv.shares_prefixes()) prefix_.make_room(kv.pages_wanted(sequence, tokens));
  return kv.reserve(sequence, tokens).ok();
}

/// The step's items, with room in the pool for each; who started last gives its pages back where that is needed.
std::span<const StepItem> Engine::next_items() {
  for (;;) {
    const std::span<const StepItem> items = scheduler_.next();
    const bool room = std::all_of(items.begin(), items.end(), [&](const StepItem& item) { return make_room(item); });
    if (room) return items;
    const std::optional<RequestId> victim = scheduler_.victim();
    CARAT_CHECK(victim.has_value());  // one sequence alone has room for its whole context
    preempt(*victim);
  }
}

void Engine::preempt(RequestId id) {
  Running& running = requests_.at(id);
  session_->kv().close(running.sequence);
  running.open = false;
  running.drafted = running.accepted = 0;
  scheduler_.preempted(id, static_cast<std::uint32_t>(running.token_count));
  ++preemptions_;
}

/// Prompts that were read to their end, or to where they part from others, may be what later ones begin with.
void Engine::keep_prompts(std::span<const StepItem> items) {
  // Where weights could not be read the KV is of no use to anyone.
  if (!prefix_.on() || !session_->decoder().stream_status().ok()) return;
  for (const StepItem& item : items) {
    const auto found = requests_.find(item.request);
    if (found == requests_.end() || !found->second.request.keep_prefix) continue;
    const Running& running = found->second;
    const std::uint32_t end = item.first + item.count;
    const bool whole = end == running.prompt_tokens;
    if (whole || scheduler_.is_boundary(item.request, end)) prefix_.keep(running.sequence, running.tokens().first(end));
  }
}

/// The answer is complete: the next turn of a conversation goes on from here.
void Engine::keep_answer(Running& running) {
  if (!prefix_.on() || options_.exact_prefix || !running.request.keep_prefix) return;
  KvPool& kv = session_->kv();
  auto stored = std::min(kv.tokens(running.sequence), static_cast<std::uint32_t>(running.token_count));
  // Rows of drafts that were not looked at yet, or did not hold.
  if (running.drafted > 0) stored = std::min(stored, static_cast<std::uint32_t>(running.token_count - 1));
  if (stored <= running.prompt_tokens || !kv.trim(running.sequence, stored).ok()) return;
  prefix_.keep(running.sequence, running.tokens().first(stored));
}

EngineState Engine::state() const {
  return {.running = scheduler_.running(),
          .waiting = scheduler_.waiting(),
          .preemptions = preemptions_,
          .prefix = prefix_.use(),
          .pages = session_->kv().pages(),
          .free_pages = session_->kv().free_pages()};
}

}  // namespace carat
