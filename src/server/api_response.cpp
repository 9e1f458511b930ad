#include "server/api_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "memory/grow_reserved.h"
#include "server/tool_calls.h"
#include "text/json_text.h"
#include "text/utf8.h"

namespace carat::server {
namespace {

/// A log softmax rounds to a little above 0, and JSON has no minus infinity.
void append_logprob(std::string& out, float logprob) {
  constexpr float kLeast = -9999;
  append_json_number(out, std::clamp(logprob, kLeast, 0.0F));
}

void append_bytes(std::string& out, std::string_view bytes) {
  out += '[';
  for (const char byte : bytes) {
    if (out.back() != '[') out += ',';
    fmt::format_to(std::back_inserter(out), "{}", static_cast<unsigned char>(byte));
  }
  out += ']';
}

std::string piece_bytes(const Tokenizer& tokenizer, std::int32_t token) {
  std::string bytes;
  tokenizer.append_piece_bytes(token, true, bytes);
  return bytes;
}

}  // namespace

std::string token_name(const Tokenizer& tokenizer, std::int32_t token) {
  std::string bytes = piece_bytes(tokenizer, token);
  const bool raw = tokenizer.contains(token) && tokenizer.kind(token) == PieceKind::byte;
  if (!raw && is_valid_utf8(bytes)) return bytes;
  std::string name = "bytes:";
  for (const char byte : bytes) fmt::format_to(std::back_inserter(name), "\\x{:02x}", static_cast<unsigned char>(byte));
  return name;
}

void append_event(std::string& out, std::string_view json) {
  out += "data: ";
  out += json;
  out += "\n\n";
}

ResponseBuilder::ResponseBuilder(ResponseStyle style, const Tokenizer& tokenizer, Budget& budget, std::uint32_t choices)
    : style_(std::move(style)), tokenizer_(&tokenizer), budget_(&budget), choices_(choices) {}

Status ResponseBuilder::keep(Part& part, std::string_view more) {
  CARAT_TRY(
      grow_reserved(*budget_, MemoryCategory::io, "an answer (smaller max_tokens)", more.size(), part.text, part.room));
  part.text += more;
  return ok_status();
}

void ResponseBuilder::append_head(std::string& out, std::string_view object) const {
  fmt::format_to(std::back_inserter(out), R"({{"id":"{}","object":"{}","created":{},"model":)", style_.id, object,
                 style_.created);
  append_json_string(out, style_.model);
  out += ",\"system_fingerprint\":\"carat\",\"choices\":[";
}

Status ResponseBuilder::add(const ChoiceNews& news, std::string& out) {
  Choice& choice = choices_[news.index];
  std::string text = news.text;
  const bool first = !choice.begun;
  choice.begun = true;
  choice.calls_tool = news.calls_tool;
  if (first && !style_.echoed.empty()) text.insert(0, style_.echoed[news.index / style_.n]);
  if (news.finished) choice.reason = name(news.reason == FinishReason::stop ? news.reason : FinishReason::length);
  if (style_.wants_logprobs) {
    CARAT_TRY(add_details(choice, news));
  }
  if (style_.stream && !choice.calls_tool) {
    if (style_.chat && first) {
      // The role comes in an event of its own, before any text.
      ChoiceNews role;
      role.index = news.index;
      Choice none;
      append_choice_event(out, none, role, "");
    }
    append_choice_event(out, choice, news, text);
    for (Part* part : {&choice.tokens, &choice.logprobs, &choice.tops, &choice.offsets}) part->text.clear();
    return ok_status();
  }
  CARAT_TRY(keep(choice.text, text));
  if (!style_.stream || !news.finished) return ok_status();
  append_whole_choice(out, news.index);
  return ok_status();
}

/// Log probabilities of the news behind those the choice has.
Status ResponseBuilder::add_details(Choice& choice, const ChoiceNews& news) {
  std::size_t top = 0;
  for (const TokenDetail& detail : news.tokens) {
    const auto tops = std::span(news.top).subspan(top, detail.top_count);
    top += detail.top_count;
    std::string entry = choice.tokens.text.empty() ? "" : ",";
    if (style_.chat) {
      append_chat_detail(entry, detail, tops);
      CARAT_TRY(keep(choice.tokens, entry));
      continue;
    }
    const std::string comma = entry;
    append_json_string(entry, token_name(*tokenizer_, detail.token));
    CARAT_TRY(keep(choice.tokens, entry));
    entry = comma;
    if (detail.first) {
      entry += "null";
    } else {
      append_logprob(entry, detail.logprob);
    }
    CARAT_TRY(keep(choice.logprobs, entry));
    entry = comma;
    if (detail.first || !style_.tops) {
      entry += "null";
    } else {
      entry += '{';
      for (const TokenLogprob& one : tops) {
        if (entry.back() != '{') entry += ',';
        append_json_string(entry, token_name(*tokenizer_, one.token));
        entry += ':';
        append_logprob(entry, one.logprob);
      }
      entry += '}';
    }
    CARAT_TRY(keep(choice.tops, entry));
    const std::uint64_t offset = choice.prompt_characters + (detail.of_prompt ? 0 : detail.characters);
    CARAT_TRY(keep(choice.offsets, comma + std::to_string(offset)));
    if (detail.of_prompt) {
      std::string bytes;
      tokenizer_->append_piece_bytes(detail.token, false, bytes);
      choice.prompt_characters += count_characters(bytes);
    }
  }
  return ok_status();
}

void ResponseBuilder::append_chat_detail(std::string& out, const TokenDetail& detail,
                                         std::span<const TokenLogprob> top) const {
  const auto append_token = [&](std::int32_t token, float logprob) {
    out += "{\"token\":";
    append_json_string(out, token_name(*tokenizer_, token));
    out += ",\"logprob\":";
    append_logprob(out, logprob);
    out += ",\"bytes\":";
    append_bytes(out, piece_bytes(*tokenizer_, token));
  };
  append_token(detail.token, detail.logprob);
  out += ",\"top_logprobs\":[";
  for (const TokenLogprob& one : top) {
    if (out.back() != '[') out += ',';
    append_token(one.token, one.logprob);
    out += '}';
  }
  out += "]}";
}

void ResponseBuilder::append_logprobs(std::string& out, const Choice& choice) const {
  out += ",\"logprobs\":";
  if (!style_.wants_logprobs) {
    out += "null";
    return;
  }
  if (style_.chat) {
    out += "{\"content\":[" + choice.tokens.text + "],\"refusal\":null}";
    return;
  }
  out += "{\"tokens\":[" + choice.tokens.text + "],\"token_logprobs\":[" + choice.logprobs.text + "],\"top_logprobs\":";
  out += style_.tops ? "[" + choice.tops.text + "]" : "null";
  out += ",\"text_offset\":[" + choice.offsets.text + "]}";
}

void ResponseBuilder::append_choice_event(std::string& out, const Choice& choice, const ChoiceNews& news,
                                          std::string_view text) const {
  std::string json;
  append_head(json, style_.chat ? "chat.completion.chunk" : "text_completion");
  fmt::format_to(std::back_inserter(json), "{{\"index\":{},", news.index);
  if (!style_.chat) {
    json += "\"text\":";
    append_json_string(json, text);
  } else if (!choice.begun) {
    json += R"("delta":{"role":"assistant","content":"","refusal":null})";
  } else if (text.empty() && news.finished) {
    json += "\"delta\":{}";
  } else {
    json += "\"delta\":{\"content\":";
    append_json_string(json, text);
    json += '}';
  }
  if (style_.wants_logprobs && news.tokens.empty()) {
    json += ",\"logprobs\":null";
  } else {
    append_logprobs(json, choice);
  }
  json += ",\"finish_reason\":";
  append_string_or_null(json, news.finished ? choice.reason : "");
  json += style_.include_usage ? "}],\"usage\":null}" : "}]}";
  append_event(out, json);
}

/// One of the choices of a whole answer, or the events of a call of a tool, which is known when it is whole.
void ResponseBuilder::append_whole_choice(std::string& out, std::uint32_t index) const {
  const Choice& choice = choices_[index];
  const auto call = choice.calls_tool ? parse_call(choice.text.text) : std::nullopt;
  std::string json;
  if (style_.stream) append_head(json, "chat.completion.chunk");
  std::string& to = style_.stream ? json : out;
  fmt::format_to(std::back_inserter(to), "{{\"index\":{},", index);
  if (!style_.chat) {
    to += "\"text\":";
    append_json_string(to, choice.text.text);
  } else {
    to += style_.stream ? "\"delta\":" : "\"message\":";
    to += "{\"role\":\"assistant\",\"content\":";
    if (call) {
      to += "null";
    } else {
      append_json_string(to, choice.text.text);
    }
    to += ",\"refusal\":null";
    if (call) {
      to += ",\"tool_calls\":[{";
      if (style_.stream) to += "\"index\":0,";
      fmt::format_to(std::back_inserter(to), R"("id":"call_{}_{}","type":"function","function":{{"name":)",
                     style_.id.substr(style_.id.find('-') + 1), index);
      append_json_string(to, call->name);
      to += ",\"arguments\":";
      append_json_string(to, call->arguments);
      to += "}}]";
    }
    to += '}';
  }
  append_logprobs(to, choice);
  const std::string reason = call ? "tool_calls" : choice.reason;
  if (!style_.stream) {
    to += ",\"finish_reason\":\"" + reason + "\"}";
    return;
  }
  const std::string tail = style_.include_usage ? "}],\"usage\":null}" : "}]}";
  append_event(out, to + ",\"finish_reason\":null" + tail);
  std::string last;
  append_head(last, "chat.completion.chunk");
  append_event(
      out, last +
               fmt::format("{{\"index\":{},\"delta\":{{}},\"logprobs\":null,\"finish_reason\":\"{}\"", index, reason) +
               tail);
}

void ResponseBuilder::append_usage(std::string& out, const GenerationCounts& counts) const {
  fmt::format_to(
      std::back_inserter(out),
      R"("usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
      R"("prompt_tokens_details":{{"cached_tokens":{}}},"completion_tokens_details":{{"reasoning_tokens":0}}}})",
      counts.prompt_tokens, counts.completion_tokens, counts.prompt_tokens + counts.completion_tokens,
      counts.cached_tokens);
}

Status ResponseBuilder::finish(const GenerationCounts& counts, std::string& out) {
  if (style_.stream) {
    if (style_.include_usage) {
      std::string json;
      append_head(json, style_.chat ? "chat.completion.chunk" : "text_completion");
      json += "],";
      append_usage(json, counts);
      append_event(out, json + "}");
    }
    out += kLastEvent;
    return ok_status();
  }
  std::size_t bytes = 0;
  for (const Choice& choice : choices_) {
    bytes += choice.tokens.text.size() + choice.logprobs.text.size() + choice.tops.text.size() +
             choice.offsets.text.size() + 6 * choice.text.text.size();  // a control character is six bytes of JSON
  }
  // The object, and what it grows through.
  CARAT_ASSIGN(whole_room_, budget_->try_reserve(MemoryCategory::io, bytes < kSmallBlock ? 0 : 2 * bytes,
                                                 "an answer (smaller max_tokens)"));
  append_head(out, style_.chat ? "chat.completion" : "text_completion");
  for (std::uint32_t i = 0; i < choices_.size(); ++i) {
    if (i > 0) out += ',';
    append_whole_choice(out, i);
  }
  out += "],";
  append_usage(out, counts);
  out += '}';
  return ok_status();
}

}  // namespace carat::server
