// Text to tokens and back, for the two kinds of tokenizer that GGUF files hold. docs/tokenizers.md tells how.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/meta_map.h"
#include "text/fragment_encoder.h"
#include "text/special_pieces.h"
#include "text/vocabulary.h"

namespace carat {

struct EncodeOptions {
  /// Recognise control pieces (`<start_of_turn>`, …) in this text. Only for text that the program itself writes, or on
  /// the user's own --special: in user text they are ordinary characters.
  bool special = false;
};

/// Immutable once made; every method may be called from several threads at once.
class Tokenizer {
 public:
  /// Builds from the keys tokenizer.ggml.*: model ("llama": SentencePiece BPE, "gpt2": byte-level BPE), pre, tokens,
  /// scores, token_type, merges, the special ids, add_bos_token, add_space_prefix; and carat's own eos_token_ids,
  /// space_prefix_once and nfc. Nothing of `meta` is kept. The memory is taken from `budget` (category tokenizer),
  /// which outlives the tokenizer. Errors: a missing, mistyped or contradictory key; an unknown model or pre-tokenizer
  /// (the known ones are listed).
  static Result<std::unique_ptr<Tokenizer>> create(const MetaMap& meta, Budget& budget);

  /// Exactly what create() reserves and keeps, in bytes; 0 when the file has no tokenizer or a wrong one. About 1 ms.
  static std::uint64_t bytes_needed(const MetaMap& meta);
  /// Does the file hold a tokenizer at all?
  static bool present(const MetaMap& meta) { return meta.contains("tokenizer.ggml.tokens"); }

  /// The tokens of `text`, without BOS. Any bytes are accepted: what is not UTF-8 becomes byte pieces. A long run
  /// without a break needs 40 bytes a character of the budget while it is merged (no_fit when there is no room).
  Result<std::vector<std::int32_t>> encode(std::string_view text, EncodeOptions options = {}) const;
  /// The same for long texts: tokens go to `sink`, and nothing grows with the text.
  Status encode(std::string_view text, EncodeOptions options, const TokenSink& sink) const;

  /// Appends the bytes of one token, which may be part of a character (see Utf8Stream). Control pieces give nothing,
  /// or their name if `special_as_text`; unknown pieces give U+FFFD, or their name; an id out of range gives nothing.
  void append_piece_bytes(std::int32_t id, bool special_as_text, std::string& out) const;
  /// The bytes of all tokens; the space that add_space_prefix put before the text (after BOS, if any) is taken off.
  std::string decode(std::span<const std::int32_t> ids, bool special_as_text = false) const;

  std::int32_t size() const { return vocabulary_.size(); }
  bool contains(std::int32_t id) const { return vocabulary_.contains(id); }
  /// The bytes piece `id` stands for, a space as ' ' (of control and unknown pieces: the name). `id` is in range.
  std::string_view piece(std::int32_t id) const { return vocabulary_.bytes(id); }
  PieceKind kind(std::int32_t id) const { return vocabulary_.kind(id); }
  /// The token whose bytes (see piece()) are `text`, or kNoToken.
  std::int32_t id_of(std::string_view text) const { return vocabulary_.find(text); }

  std::int32_t bos() const { return vocabulary_.named().bos; }          ///< kNoToken if the file names none
  std::int32_t eos() const { return vocabulary_.named().eos; }          ///< kNoToken if the file names none
  std::int32_t unknown() const { return vocabulary_.named().unknown; }  ///< kNoToken if the file names none
  bool add_bos() const { return add_bos_; }
  /// Every token that ends an answer, ascending: the file's EOS, all of tokenizer.ggml.eos_token_ids (a list of carat's
  /// own, for models with several), end of turn and end of message, and <end_of_turn> (<|eot_id|>) when the vocabulary
  /// has it as a control piece.
  const std::vector<std::int32_t>& eos_ids() const { return eos_ids_; }
  bool is_eos(std::int32_t id) const;

 private:
  explicit Tokenizer(Budget& budget) : budget_(&budget) {}
  Result<std::string_view> canonical(std::string_view text, EncodeOptions options, Buffer<char>& copy) const;
  Status collect_eos_ids(const MetaMap& meta);

  Budget* budget_;
  Vocabulary vocabulary_;
  SpecialPieces special_pieces_;
  std::unique_ptr<FragmentEncoder> encoder_;
  Spelling spelling_ = Spelling::sentencepiece;
  bool add_bos_ = false;
  bool add_space_prefix_ = false;
  bool space_prefix_once_ = false;  ///< not before a text that begins with a space
  std::vector<std::int32_t> eos_ids_;
};

}  // namespace carat
