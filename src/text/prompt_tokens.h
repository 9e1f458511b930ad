// Rendered chat prompts to tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace carat {

/// The tokens of a rendered prompt. Control pieces are recognised in what the template wrote and nowhere else; the
/// text between two of them is tokenized as one, whoever wrote it. BOS is added only if the model wants it and the
/// template did not write it.
Result<std::vector<std::int32_t>> encode_prompt(const Tokenizer& tokenizer, std::span<const PromptSegment> segments);

}  // namespace carat
