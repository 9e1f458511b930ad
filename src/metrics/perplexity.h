// Log probabilities of given tokens under a model.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"
#include "kv/kv_pool.h"
#include "model/decoder.h"

namespace carat {

/// Called with each computed logits row: the index into the ids given, and the row [vocab], valid during the call.
using LogitsSink = std::function<Status(std::uint32_t index, std::span<const float> logits)>;

/// Tokens of a prompt, or such as the model generated: rows of the two are rounded differently (Batch::generated_rows).
enum class TokenOrigin : std::uint8_t { prompt, generated };

/// Runs ids[0, n) as one fresh sequence, in chunks, and hands on the logits after each position in [begin, end).
/// Logits are computed a tile of rows at a time, so memory does not grow with the number of positions.
Status for_each_logits(Decoder& decoder, KvPool& kv, std::span<const std::int32_t> ids, std::uint32_t begin,
                       std::uint32_t end, const LogitsSink& sink, TokenOrigin origin = TokenOrigin::prompt);

struct PerplexitySum {
  double nll = 0;  ///< sum of negative log probabilities, nats
  std::uint64_t tokens = 0;
};

/// Scores ids[first_scored, n) given everything before each. A NaN logits row is an error that names its position.
Result<PerplexitySum> score_tokens(Decoder& decoder, KvPool& kv, std::span<const std::int32_t> ids,
                                   std::uint32_t first_scored);

}  // namespace carat
