// A tokenizer's keys as the files of a Hugging Face folder.
#pragma once

#include <string>

#include "base/status.h"
#include "memory/budget.h"
#include "tensor/meta_map.h"

namespace carat {

/// Writes tokenizer.json from the keys tokenizer.ggml.*: byte-level BPE, or SentencePiece's with byte fallback, whose
/// merges are derived from the scores: every way to join two pieces to a third, best score first. Memory: an index of
/// the pieces. Errors: a tokenizer that is neither; a piece that is not UTF-8.
Status write_tokenizer_json(const MetaMap& meta, const std::string& path, Budget& budget);

}  // namespace carat
