// The tokenizer of a Hugging Face folder as the keys tokenizer.ggml.* that GGUF files have, so that everything above
// knows one form. docs/formats/tokenizer_files.md tells how the parts correspond.
#pragma once

#include <string>

#include "base/status.h"
#include "formats/byte_source.h"
#include "memory/budget.h"
#include "tensor/meta_map.h"

namespace carat {

/// Reads `folder`/tokenizer.json (BPE, byte-level or SentencePiece-like) or, when that is not there, tokenizer.model
/// (SentencePiece BPE) and sets tokenizer.ggml.model, pre, tokens, scores, token_type, merges, add_space_prefix,
/// space_prefix_once (Metaspace puts no second space) and the ids and add_bos_token that the file itself names. With
/// neither file nothing is set. Added tokens beyond "config.vocab_size" (or "config.text_config.vocab_size"), where
/// that key is there already, are left out, and unused pieces fill up to it. The lists take memory of category io that
/// lives as long as `meta`; reading tokenizer.json takes two to three times that for a while.
/// Errors: a file that is cut, contradictory, or of a kind that the tokenizer cannot follow exactly.
Status add_hf_tokenizer(const std::string& folder, MetaMap& meta, Budget& budget);

/// The same from the bytes of one tokenizer.json.
Status add_tokenizer_json(const ByteSource& source, MetaMap& meta, Budget& budget);

/// After add_hf_tokenizer, completes the special ids from what other files of the folder say, where `meta` has it:
/// bos_token_id from "config.bos_token_id"; eos_token_id from "tokenizer_config.eos_token" or the first of
/// "config.eos_token_id"; eos_token_ids, a list, from all of "config.eos_token_id" and "generation.eos_token_id"
/// ("config.text_config." counts as "config."); add_bos_token from "tokenizer_config.add_bos_token". What the
/// tokenizer's own file named stays, add_bos_token apart. Nothing happens without tokenizer.ggml.tokens.
Status add_hf_special_ids(MetaMap& meta);

}  // namespace carat
