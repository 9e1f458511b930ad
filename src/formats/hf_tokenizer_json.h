// The first step of reading a tokenizer.json: its parts, in the order of the file. Private to hf_tokenizer*.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/byte_buffer.h"
#include "formats/byte_source.h"

namespace carat {

/// A piece of model.vocab or an added token.
struct HfPiece {
  std::uint64_t text = 0;  ///< where its length and bytes lie in `texts`
  std::uint32_t id = 0;
  bool added = false;
  bool special = false;
  bool trims = false;  ///< lstrip, rstrip or single_word: it takes more than its own text, or less
};

/// Scalars of the small sections by their path: "pre_tokenizer.pretokenizers.0.type" = "Split". "true" and "false" are
/// booleans; null is absent; empty objects and lists leave nothing.
using HfFacts = std::map<std::string, std::string, std::less<>>;

struct HfTokenizerJson {
  explicit HfTokenizerJson(Budget& budget)
      : texts(budget, MemoryCategory::io, "the pieces of tokenizer.json"),
        pieces(budget, MemoryCategory::io, "the ids of tokenizer.json"),
        merges(budget, MemoryCategory::io, "the merges of tokenizer.json") {}

  ByteBuffer texts;   ///< for each piece a u64 length and its bytes
  ByteBuffer pieces;  ///< HfPiece
  ByteBuffer merges;  ///< a StringList of "left right"; neither side has a space
  std::uint64_t piece_count = 0;
  std::uint64_t merge_count = 0;
  HfFacts facts;  ///< sections model (without vocab and merges), normalizer, pre_tokenizer, post_processor

  HfPiece piece(std::uint64_t index) const;
  std::string_view text(const HfPiece& piece) const;
  /// Empty when there is no such fact.
  std::string_view fact(std::string_view path) const;
};

/// Streams `source` through a window of 64 KiB; what stays is the parts above, all of it in the Budget but for at most
/// 64 KiB of facts. Errors name the byte.
Result<HfTokenizerJson> read_tokenizer_json(const ByteSource& source, Budget& budget);

/// What the sections other than the vocabulary ask of the tokenizer.
struct HfTokenizerRules {
  bool byte_level = false;
  std::string pre;            ///< byte-level: the value of tokenizer.ggml.pre
  bool nfc = false;           ///< byte-level: text is composed first
  bool space_prefix = false;  ///< SentencePiece-like: a space before the text
  bool prefix_once = false;   ///< but not before one that begins with a space
  std::string unknown;        ///< text of the unknown piece, or empty
  std::string bos;            ///< text of the token that the post-processor puts first, or empty
};

/// Errors list what is known.
Result<HfTokenizerRules> read_tokenizer_rules(const HfTokenizerJson& json);

}  // namespace carat
