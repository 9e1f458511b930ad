// Messages to the prompt text of a model, cut so that what a user typed can never act as a turn marker.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja_template.h"

namespace carat {

struct ChatMessage {
  std::string role;     ///< as the template knows them: system, user, assistant, tool
  std::string content;  ///< UTF-8
  /// A dict of further keys (tool_calls, name, reasoning_content, …), see jinja_json.h. A key "content" replaces
  /// `content`, for a list of parts or none. Undefined when there are no further keys.
  JinjaValue extras = {};
};

/// A stretch of the prompt with one author. Control pieces (`<start_of_turn>`, …) are recognised inside segments that
/// come from the template only. Cut the prompt at those and tokenize what lies between as ONE text, also across
/// segments: segment ends by themselves are no token boundary.
struct PromptSegment {
  std::string text;
  bool from_template = false;
  bool operator==(const PromptSegment&) const = default;
};

/// The whole prompt.
std::string joined(std::span<const PromptSegment> segments);

struct ChatTemplateOptions {
  bool add_generation_prompt = true;
  JinjaValue tools = JinjaValue::none();  ///< list of tool dicts
  /// A dict of further variables (enable_thinking, documents, …); those named here replace the usual ones.
  JinjaValue variables = {};
  /// Seconds since 1970-01-01 00:00 local time; the template's strftime_now() exists only when it is given.
  std::optional<std::int64_t> wall_clock = {};
  JinjaLimits limits = {};
};

class ChatTemplate {
 public:
  /// `source`: Jinja text of a model file (GGUF tokenizer.chat_template); `bos` and `eos`: text of these pieces, which
  /// count as the template's own. An empty source is an error that says the model has no template.
  static Result<ChatTemplate> create(std::string_view source, std::string_view bos, std::string_view eos);

  /// Gemma's turns, for files that have the turn pieces but no template: content trimmed, a system text before the
  /// first user text with a blank line, roles that alternate (else an error that names the message).
  static ChatTemplate gemma_turns(std::string_view bos = "<bos>");

  /// Errors begin with "chat template, line N: ".
  Result<std::vector<PromptSegment>> render(std::span<const ChatMessage> messages,
                                            const ChatTemplateOptions& options = {}) const;

  /// The Jinja text this was made from.
  std::string_view source() const { return source_; }

 private:
  ChatTemplate(JinjaTemplate parsed, std::string_view source, std::string_view bos, std::string_view eos)
      : template_(std::move(parsed)), source_(source), bos_(bos), eos_(eos) {}

  JinjaTemplate template_;
  std::string source_;
  std::string bos_;
  std::string eos_;
};

}  // namespace carat
