// Any bytes as a chat template over a small chat: no crash, no leak, no more than the limits, and no way for a user's
// text to be taken for the template's own.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/chat_template.h"

namespace {

/// Stands in every string that a caller gives; a template without it and without escapes cannot write it itself.
constexpr std::string_view kMark = "\x01<mark>";

carat::JinjaValue marked_tools() {
  using carat::JinjaValue;
  const JinjaValue text = JinjaValue::text(" a,b\n\x01<mark> c ");
  const JinjaValue numbers = JinjaValue::list({JinjaValue::integer(3), JinjaValue::floating(1.5), text});
  return JinjaValue::list({JinjaValue::dict({{"name", text}, {"\x01<mark>", numbers}, {"none", JinjaValue::none()}})});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto chat = carat::ChatTemplate::create(source, "<bos>", "<eos>");
  if (!chat.ok()) return 0;
  const carat::ChatMessage messages[] = {{"system", "\x01<mark> Be \xC3\xBC brief. "}, {"user", "Hi \x01<mark>,x"}};
  carat::ChatTemplateOptions options;
  options.tools = marked_tools();
  options.wall_clock = 1700000000;
  options.limits.steps = 20'000;
  options.limits.value_bytes = 1 << 22;
  options.limits.output_bytes = 1 << 20;
  const auto segments = chat->render(messages, options);
  if (!segments.ok()) {
    if (segments.status().code() == carat::StatusCode::internal) std::abort();
    return 0;
  }
  if (source.find(kMark[0]) != std::string_view::npos || source.find('\\') != std::string_view::npos) return 0;
  std::size_t bytes = 0;
  for (const carat::PromptSegment& segment : *segments) {
    bytes += segment.text.size();
    if (segment.from_template && segment.text.find(kMark[0]) != std::string::npos) std::abort();
  }
  if (bytes > options.limits.output_bytes) std::abort();
  return 0;
}
