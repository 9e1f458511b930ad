// Messages of a chat to the tokens of its prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "memory/budget.h"
#include "server/api_request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace carat::server {

/// The model's turns of a chat: tools are told of in the system turn, their calls are text of the assistant, and their
/// results are text of the user. `param` of the error names the message that the template refuses.
std::optional<ApiError> chat_prompt(const ChatTemplate& chat, const Tokenizer& tokenizer, const ChatRequest& request,
                                    std::uint32_t context, Budget& budget, std::vector<std::int32_t>& ids);

}  // namespace carat::server
