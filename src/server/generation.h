// One request of a client on its way through the engine: its answers, made at most `window` at a time, and what of them
// has not been handed on yet.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/runner.h"
#include "grammar/grammar.h"
#include "text/answer_text.h"
#include "text/tokenizer.h"

namespace carat::server {

using Clock = std::chrono::steady_clock;

/// A token with its log probabilities, as a client will see it.
struct TokenDetail {
  std::int32_t token = 0;
  float logprob = 0;
  std::uint64_t offset = 0;      ///< bytes of the answer's text before it
  std::uint64_t characters = 0;  ///< the same in characters
  std::uint32_t top_count = 0;   ///< of ChoiceNews::top, in order
  bool of_prompt = false;
  bool first = false;  ///< of the prompt: nothing tells of its probability
};

/// What came of one answer since the last look.
struct ChoiceNews {
  std::uint32_t index = 0;
  std::string text;
  std::vector<TokenDetail> tokens;  ///< of text that is shown up to now; empty unless log probabilities are wanted
  std::vector<TokenLogprob> top;
  bool calls_tool = false;  ///< the text is the JSON of a call: see tool_calls.h
  bool finished = false;
  FinishReason reason = FinishReason::stop;
  Status status;  ///< with FinishReason::error
};

/// Counts of a whole request, and when things happened. Times of a request that never got there are zero.
struct GenerationCounts {
  std::uint64_t prompt_tokens = 0;  ///< a prompt with several answers counts once
  std::uint64_t cached_tokens = 0;
  std::uint64_t completion_tokens = 0;
  Clock::time_point submitted{};
  Clock::time_point started{};
  Clock::time_point first_token{};
  Clock::time_point last_token{};
};

/// Whether an answer is the call of a tool. `automatic`: one that begins with { is, and is begun again, held to the
/// grammar of calls.
enum class ToolUse : std::uint8_t { never, always, automatic };

/// Of a stream: what may wait for a reader that has taken nothing for kSlowReader, and what may wait at all, so that a
/// network thread without a processor for a moment costs nobody an answer. A whole answer is taken at once, whoever
/// reads it, and counted where it is kept.
inline constexpr std::size_t kMostUnsent = 1 << 18;
inline constexpr std::size_t kMostUnsentEver = 4 * kMostUnsent;
inline constexpr std::chrono::milliseconds kSlowReader{500};

struct GenerationPlan {
  Request request;  ///< but for prompt and seed
  std::vector<std::vector<std::int32_t>> prompts;
  std::uint32_t n = 1;  ///< answers to each
  std::uint64_t seed = 0;
  std::vector<std::string> stops;
  Grammar::Pointer grammar;  ///< what answers are held to, null: nothing
  ToolUse tools = ToolUse::never;
  Grammar::Pointer calls;    ///< of tools
  std::uint32_t window = 1;  ///< answers that are with the engine at once
  /// About kMostUnsent bytes of JSON may wait to be handed on, beyond which the request is cancelled; the prompt's own
  /// log probabilities aside.
  bool stream = false;
};

/// Answers have index prompt * n + k, and seed `seed` + k. Thread-safe: sinks call it on the runner's thread, a
/// connection on its own.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  /// `wake` is called, on any thread, when there is something to take; not again before it was taken. `runner` and
  /// `tokenizer` outlive the generation.
  Generation(Runner& runner, const Tokenizer& tokenizer, GenerationPlan plan);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  /// Submits the first answers. A refusal says that none will come.
  Status start(std::function<void()> wake);
  /// Nothing more will be taken.
  void cancel();
  /// What is new. True: all answers have ended, and this was the last of them.
  bool take(std::vector<ChoiceNews>& news);
  GenerationCounts counts() const;
  /// It was cancelled because what it made was not taken.
  bool overrun() const;
  std::uint32_t choices() const { return static_cast<std::uint32_t>(choices_.size()); }

 private:
  struct Choice {
    RequestId id = 0;
    AnswerText text;
    ChoiceNews news;                ///< what is shown
    std::vector<TokenDetail> held;  ///< of text that is not shown yet
    std::vector<TokenLogprob> held_top;
    std::uint64_t top_begin = 0;  ///< of the first held token, in held_top
    std::string piece;            ///< reused
    std::uint64_t made = 0;       ///< tokens, of this attempt
    bool undecided = false;       ///< whether it is the call of a tool
    bool again = false;           ///< it is: the attempt ends, and another begins
    bool ended = false;
  };

  Status submit_next();
  Status submit(std::uint32_t index);
  RequestSink sink_of(std::uint32_t index);
  bool on_token(std::uint32_t index, const TokenEvent& event);
  void on_prompt_token(std::uint32_t index, const TokenEvent& event);
  void on_started(std::uint32_t index, const StartEvent& event);
  void on_finished(std::uint32_t index, FinishReason reason, const Status& status);
  void keep_detail(Choice& choice, const TokenDetail& detail, std::span<const TokenLogprob> top);
  void show_details(Choice& choice, bool all);
  bool decide(Choice& choice);
  void begin_call(Choice& choice);
  void notify(std::unique_lock<std::mutex>& lock);

  Runner* runner_;
  const Tokenizer* tokenizer_;
  GenerationPlan plan_;
  std::function<void()> wake_;

  mutable std::mutex mutex_;
  std::vector<Choice> choices_;
  GenerationCounts counts_;
  std::uint32_t next_ = 0;     ///< the first answer that is not with the engine yet
  std::uint32_t ended_ = 0;    ///< and taken or not
  std::size_t unsent_ = 0;     ///< bytes of news
  Clock::time_point taken_{};  ///< when news was taken last
  bool woken_ = false;
  bool cancelled_ = false;
  bool overrun_ = false;
};

}  // namespace carat::server
