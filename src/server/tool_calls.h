// Tools as the model sees them, and its calls as clients see them. An answer that calls a tool is one JSON object,
// {"name": …, "arguments": {…}}, which a grammar made of the tools' schemas holds it to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/api_request.h"

namespace carat::server {

/// What the system turn says of the tools. `must_call`: the answer has to be a call.
std::string tools_text(std::span<const Tool> tools, bool must_call);
/// A JSON Schema of a call of one of the tools; of `only` alone when that is not empty. What a schema says of itself by
/// local $ref still holds. Fails where the parameters of a tool are no JSON object.
Result<std::string> call_schema(std::span<const Tool> tools, std::string_view only);
/// The call that an answer is; nothing where it is none, because it was cut.
std::optional<ToolCall> parse_call(std::string_view answer);
/// A call as the model would have written it.
std::string call_text(const ToolCall& call);

}  // namespace carat::server
