#include "server/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/prompt.h"
#include "server/tool_calls.h"
#include "text/prompt_tokens.h"

namespace carat::server {
namespace {

/// Messages as the template gets them, and which of the request's each came from.
struct Turns {
  std::vector<ChatMessage> messages;
  std::vector<std::size_t> sources;

  void add(std::string role, std::string content, std::size_t source) {
    messages.push_back({std::move(role), std::move(content)});
    sources.push_back(source);
  }
};

/// No piece of a vocabulary that people use is longer: text of more bytes than this a token of the context cannot fit.
constexpr std::uint64_t kMostBytesOfToken = 64;

std::string tool_result(const MessageInput& message) {
  return message.name.empty() ? "Result of the tool:\n" + message.content
                              : fmt::format("Result of the tool {}:\n{}", message.name, message.content);
}

Turns make_turns(const ChatRequest& request) {
  Turns turns;
  bool after_tool = false;
  for (std::size_t i = 0; i < request.messages.size(); ++i) {
    const MessageInput& message = request.messages[i];
    std::string content = message.content;
    for (const ToolCall& call : message.tool_calls) content += (content.empty() ? "" : "\n") + call_text(call);
    const bool tool = message.role == "tool";
    if (tool) content = tool_result(message);
    // Results of several calls, and what the user says to them, are one turn.
    if (after_tool && (tool || message.role == "user")) {
      turns.messages.back().content += "\n\n" + content;
    } else {
      turns.add(tool ? "user" : message.role, std::move(content), i);
    }
    after_tool = tool;
  }
  return turns;
}

void add_tools(const ChatRequest& request, bool in_system, Turns& turns) {
  if (request.tool_choice.kind == ToolChoice::Kind::none) return;
  const bool must = request.tool_choice.kind != ToolChoice::Kind::automatic;
  const std::string text = tools_text(request.tools, must);
  const auto wanted = std::find_if(turns.messages.begin(), turns.messages.end(), [&](const ChatMessage& message) {
    return message.role == (in_system ? "system" : "user");
  });
  if (wanted == turns.messages.end()) {
    if (!in_system) return;
    turns.messages.insert(turns.messages.begin(), {"system", text});
    turns.sources.insert(turns.sources.begin(), 0);
  } else if (in_system) {
    wanted->content += "\n\n" + text;
  } else {
    wanted->content = text + "\n\n" + wanted->content;
  }
}

/// The first message without which the template would have taken those before it.
std::size_t refused_message(const ChatTemplate& chat, const Turns& turns) {
  std::size_t good = 0;
  std::size_t bad = turns.messages.size();
  while (bad - good > 1) {
    const std::size_t middle = good + (bad - good) / 2;
    const auto part = std::span(turns.messages).first(middle);
    (chat.render(part).ok() ? good : bad) = middle;
  }
  return turns.sources[bad - 1];
}

}  // namespace

std::optional<ApiError> chat_prompt(const ChatTemplate& chat, const Tokenizer& tokenizer, const ChatRequest& request,
                                    std::uint32_t context, Budget& budget, std::vector<std::int32_t>& ids) {
  Turns turns = make_turns(request);
  const Turns without_tools = turns;
  add_tools(request, true, turns);
  std::uint64_t bytes = 0;
  for (const ChatMessage& message : turns.messages) bytes += message.content.size();
  if (bytes / kMostBytesOfToken > context) {
    ApiError error =
        bad_field("messages", fmt::format("the prompt has more than {} tokens, more than the context of {}",
                                          bytes / kMostBytesOfToken, context));
    error.code = "context_length_exceeded";
    return error;
  }
  const auto room =
      budget.try_reserve(MemoryCategory::io, bytes < kSmallText ? 0 : kChatCopies * bytes, "rendering the prompt");
  if (!room.ok()) return api_error(room.status());
  auto segments = chat.render(turns.messages);
  if (!segments.ok() && turns.messages.size() > without_tools.messages.size()) {
    // A family without a system turn reads of the tools in the first turn of the user.
    turns = without_tools;
    add_tools(request, false, turns);
    segments = chat.render(turns.messages);
  }
  if (!segments.ok()) {
    const std::string param = fmt::format("messages[{}]", refused_message(chat, turns));
    return bad_field(param, param + ": " + segments.status().message());
  }
  auto encoded = encode_prompt(tokenizer, *segments);
  if (!encoded.ok()) return api_error(encoded.status());
  ids = std::move(encoded).value();
  return std::nullopt;
}

}  // namespace carat::server
