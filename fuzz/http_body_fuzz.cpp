// Bodies of requests: whatever they hold, they become a request or an error that is JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "server/api_request.h"
#include "server/tool_calls.h"

namespace {

using namespace carat;
using namespace carat::server;

constexpr RequestLimits kLimits{.vocab = 1000, .context = 256, .most_choices = 16, .most_messages = 64};

void expect_json(const std::optional<ApiError>& error) {
  if (!error) return;
  if (error->status != 400 || error->message.empty()) std::abort();
  if (nlohmann::json::parse(error_json(*error), nullptr, false).is_discarded()) std::abort();
}

void parse_calls(const ChatRequest& request) {
  (void)tools_text(request.tools, true);
  if (const auto schema = call_schema(request.tools, ""); schema.ok()) {
    if (nlohmann::json::parse(*schema, nullptr, false).is_discarded()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  CompletionRequest completion;
  expect_json(parse_completion(body, kLimits, completion));
  ChatRequest chat;
  const auto refused = parse_chat(body, kLimits, chat);
  expect_json(refused);
  if (!refused && !chat.tools.empty()) parse_calls(chat);
  TokenizeRequest tokenize;
  expect_json(parse_tokenize(body, tokenize));
  DetokenizeRequest detokenize;
  expect_json(parse_detokenize(body, kLimits, detokenize));
  if (const auto call = parse_call(body)) (void)call_text(*call);
  return 0;
}
