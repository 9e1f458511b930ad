// tokenizer.model: SentencePiece's ModelProto, a protobuf, as the keys tokenizer.ggml.* of a "llama" tokenizer.
#pragma once

#include "base/status.h"
#include "formats/byte_source.h"
#include "memory/budget.h"
#include "tensor/meta_map.h"

namespace carat {

/// Sets tokenizer.ggml.model, tokens, scores, token_type, add_space_prefix and the ids of bos, eos and unknown.
/// Errors: bytes that are no ModelProto (the byte is named), a model other than BPE, a normalizer that changes text.
Status add_sentencepiece_model(const ByteSource& source, MetaMap& meta, Budget& budget);

}  // namespace carat
