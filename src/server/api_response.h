// Answers in OpenAI's shapes, as one JSON object or as a stream of events. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "memory/budget.h"
#include "server/api_request.h"
#include "server/generation.h"
#include "text/tokenizer.h"

namespace carat::server {

struct ResponseStyle {
  bool chat = false;
  bool stream = false;
  bool include_usage = false;
  bool wants_logprobs = false;
  bool tops = false;  ///< alternatives were asked for
  std::string id;
  std::string model;
  std::int64_t created = 0;         ///< seconds since 1970
  std::uint32_t n = 1;              ///< answers a prompt
  std::vector<std::string> echoed;  ///< by prompt: text before each of its answers; empty: no echo
};

/// How a token is written where text is wanted: what it stands for, or "bytes:\xe2\x80" where that is no text of its
/// own.
std::string token_name(const Tokenizer& tokenizer, std::int32_t token);

/// Server-sent events.
void append_event(std::string& out, std::string_view json);
inline constexpr std::string_view kLastEvent = "data: [DONE]\n\n";

class ResponseBuilder {
 public:
  /// `tokenizer` and `budget` outlive it.
  ResponseBuilder(ResponseStyle style, const Tokenizer& tokenizer, Budget& budget, std::uint32_t choices);

  /// Of a stream, appends the events that tell of the news; else keeps them. Fails with no_fit when the budget has no
  /// room for a longer answer.
  Status add(const ChoiceNews& news, std::string& out);
  /// All answers have ended: the last events, or the whole object.
  Status finish(const GenerationCounts& counts, std::string& out);

  const ResponseStyle& style() const { return style_; }

 private:
  struct Part {
    Reservation room;
    std::string text;
  };
  struct Choice {
    Part text;
    Part tokens;  ///< entries of the lists of log probabilities; chat has the first alone
    Part logprobs;
    Part tops;
    Part offsets;
    bool begun = false;
    bool calls_tool = false;
    std::uint64_t prompt_characters = 0;  ///< of echoed tokens so far
    std::string reason;
  };

  Status keep(Part& part, std::string_view more);
  void append_head(std::string& out, std::string_view object) const;
  void append_choice_event(std::string& out, const Choice& choice, const ChoiceNews& news, std::string_view text) const;
  void append_logprobs(std::string& out, const Choice& choice) const;
  void append_whole_choice(std::string& out, std::uint32_t index) const;
  Status add_details(Choice& choice, const ChoiceNews& news);
  void append_chat_detail(std::string& out, const TokenDetail& detail, std::span<const TokenLogprob> top) const;
  void append_usage(std::string& out, const GenerationCounts& counts) const;

  ResponseStyle style_;
  const Tokenizer* tokenizer_;
  Budget* budget_;
  std::vector<Choice> choices_;
  Reservation whole_room_;  ///< of the whole object, until it has been sent
};

}  // namespace carat::server
