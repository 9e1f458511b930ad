// The bodies of OpenAI's requests as plain data, checked. Pure: no socket, no model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sampling/params.h"
#include "server/api_error.h"

namespace carat::server {

/// What fields are held against.
struct RequestLimits {
  std::uint32_t vocab = 0;    ///< ids of prompts lie below it
  std::uint32_t context = 0;  ///< of longer prompts only the count is kept
  std::uint32_t most_choices = 256;
  std::uint32_t most_messages = 4096;
  std::size_t most_grammar_bytes = 64 << 10;  ///< of a grammar, a schema, and of all tools together
};

inline constexpr std::size_t kMostStops = 16;
inline constexpr std::size_t kMostStopBytes = 1024;
inline constexpr std::uint32_t kMostTopLogprobs = 20;
inline constexpr std::size_t kMostBiases = 1024;

/// What an answer is held to.
struct Constraint {
  enum class Kind : std::uint8_t { none, json_object, json_schema, gbnf };
  Kind kind = Kind::none;
  std::string source;
  std::string param;  ///< the field it came from
};

/// Fields that both kinds of completions have.
struct GenerationFields {
  SamplingParams sampling;
  std::optional<std::uint64_t> seed;
  std::optional<std::uint32_t> max_tokens;
  std::vector<std::string> stop;
  std::uint32_t n = 1;
  bool stream = false;
  bool include_usage = false;
  bool wants_logprobs = false;
  std::uint32_t top_logprobs = 0;
  Constraint constraint;
};

struct PromptInput {
  std::string text;
  std::vector<std::int32_t> ids;
  std::size_t id_count = 0;  ///< of the body; `ids` holds at most one more than the context
  bool is_ids = false;
};

struct CompletionRequest {
  GenerationFields fields;
  std::vector<PromptInput> prompts;
  bool echo = false;
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  ///< JSON text
};

struct MessageInput {
  std::string role;
  std::string content;
  std::string name;
  std::string tool_call_id;
  std::vector<ToolCall> tool_calls;
};

struct Tool {
  std::string name;
  std::string description;
  std::string parameters;  ///< a JSON Schema; empty: takes none
};

struct ToolChoice {
  enum class Kind : std::uint8_t { none, automatic, required, named };
  Kind kind = Kind::automatic;
  std::string name;
};

struct ChatRequest {
  GenerationFields fields;
  std::vector<MessageInput> messages;
  std::vector<Tool> tools;
  ToolChoice tool_choice;
};

struct TokenizeRequest {
  std::string content;
  bool add_special = false;
};

struct DetokenizeRequest {
  std::vector<std::int32_t> tokens;
};

/// Each fills `request` from a body; an ApiError says what is wrong with it. Unknown fields are ignored.
std::optional<ApiError> parse_completion(std::string_view body, const RequestLimits& limits,
                                         CompletionRequest& request);
std::optional<ApiError> parse_chat(std::string_view body, const RequestLimits& limits, ChatRequest& request);
std::optional<ApiError> parse_tokenize(std::string_view body, TokenizeRequest& request);
std::optional<ApiError> parse_detokenize(std::string_view body, const RequestLimits& limits,
                                         DetokenizeRequest& request);

}  // namespace carat::server
