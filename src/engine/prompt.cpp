#include "engine/prompt.h"

#include <fmt/core.h>

#include "memory/grow_reserved.h"
#include "text/prompt_tokens.h"

namespace carat {
namespace {

/// One in three bytes: prose of the large vocabularies has fewer.
std::size_t expected_tokens(std::string_view text) { return text.size() / 3 + 1; }

std::string piece_text(const Tokenizer& tokenizer, std::int32_t id) {
  return id == kNoToken ? std::string() : std::string(tokenizer.piece(id));
}

}  // namespace

std::uint64_t input_room(std::string_view text, bool chat) {
  if (text.size() < kSmallText) return 0;
  return chat ? kChatCopies * text.size() : (expected_tokens(text) + 1) * sizeof(std::int32_t);
}

Result<const Tokenizer*> need_tokenizer(const Session& session) {
  if (session.tokenizer() != nullptr) return session.tokenizer();
  return unsupported(
      fmt::format("{}: the file has no tokenizer; use `logits --ids`, `bench`, `plan` or `info`", session.file().path));
}

Result<InputIds> encode_text(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options, bool bos,
                             Budget& budget) {
  InputIds out;
  if (text.size() >= kSmallText) {
    CARAT_TRY(
        grow_reserved(budget, MemoryCategory::io, "the tokens of a text", expected_tokens(text), out.ids, out.room));
  }
  if (bos && tokenizer.add_bos() && tokenizer.bos() != kNoToken) out.ids.push_back(tokenizer.bos());
  CARAT_TRY(tokenizer.encode(text, options, [&](std::span<const std::int32_t> batch) {
    CARAT_TRY(grow_reserved(budget, MemoryCategory::io, "the tokens of a text", batch.size(), out.ids, out.room));
    out.ids.insert(out.ids.end(), batch.begin(), batch.end());
    return ok_status();
  }));
  return out;
}

Result<ChatTemplate> session_template(const Session& session) {
  CARAT_ASSIGN(const Tokenizer* tokenizer, need_tokenizer(session));
  if (session.chat_template().empty()) {
    return invalid(fmt::format("{}: a base model without a chat template; give the text itself with -p, without --chat",
                               session.file().path));
  }
  return ChatTemplate::create(session.chat_template(), piece_text(*tokenizer, tokenizer->bos()),
                              piece_text(*tokenizer, tokenizer->eos()));
}

Result<InputIds> encode_chat(Session& session, const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  std::uint64_t bytes = 0;
  for (const ChatMessage& message : messages) bytes += message.content.size();
  InputIds out;
  CARAT_ASSIGN(out.room, session.budget().try_reserve(MemoryCategory::io, bytes < kSmallText ? 0 : kChatCopies * bytes,
                                                      "rendering the prompt"));
  CARAT_ASSIGN(const std::vector<PromptSegment> segments, chat.render(messages));
  CARAT_ASSIGN(out.ids, encode_prompt(*session.tokenizer(), segments));
  return out;
}

}  // namespace carat
