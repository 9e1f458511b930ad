#include "text/vocabulary.h"

#include <fmt/core.h>

#include <bit>
#include <cmath>

#include "base/log.h"
#include "text/utf8.h"

namespace carat {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

constexpr std::uint32_t kBatch = 32;  // pieces whose slots are prefetched together

/// Turn markers. Files exist that type them as ordinary text, which would let a user write them: they are repaired.
struct Marker {
  std::string_view text;
  bool ends_turn;
};
constexpr Marker kMarkers[] = {
    {"<start_of_turn>", false},     {"<end_of_turn>", true},      {"<|im_start|>", false}, {"<|im_end|>", false},
    {"<|start_header_id|>", false}, {"<|end_header_id|>", false}, {"<|eot_id|>", true},    {"<|eom_id|>", false},
};

const Marker* find_marker(std::string_view piece) {
  if (piece.size() < 3 || piece.front() != '<' || piece.back() != '>') return nullptr;
  for (const Marker& marker : kMarkers) {
    if (marker.text == piece) return &marker;
  }
  return nullptr;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/// The byte that "<0x0A>" stands for, or -1.
int parse_byte_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  const int high = hex_digit(piece[3]);
  const int low = hex_digit(piece[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/// GPT-2's alphabet: printable Latin-1 characters stand for themselves, the other 68 bytes for U+0100..U+0143 in order.
struct ByteAlphabet {
  std::int16_t byte_of[0x144];
};
constexpr ByteAlphabet kAlphabet = [] {
  ByteAlphabet alphabet{};
  for (std::int16_t& byte : alphabet.byte_of) byte = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    alphabet.byte_of[printable ? byte : next++] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}();

std::size_t spell_sentencepiece(std::string_view piece, char* out) {
  std::size_t written = 0;
  for (std::size_t i = 0; i < piece.size();) {
    if (piece[i] == kSpaceMark[0] && piece.substr(i, kSpaceMark.size()) == kSpaceMark) {
      out[written++] = ' ';
      i += kSpaceMark.size();
    } else {
      out[written++] = piece[i++];
    }
  }
  return written;
}

Status check_id(const MetaMap& meta, std::string_view key, std::uint64_t pieces, std::int32_t& id) {
  CARAT_ASSIGN(const auto value, meta.integer(key));
  if (!value) return ok_status();
  if (*value < 0 || static_cast<std::uint64_t>(*value) >= pieces) {
    return invalid(fmt::format("key '{}' is {}, but the vocabulary has {} pieces", key, *value, pieces));
  }
  id = static_cast<std::int32_t>(*value);
  return ok_status();
}

Status check_length(std::string_view key, const std::optional<NumberList>& list, std::uint64_t pieces) {
  if (list && list->size() != pieces) {
    return invalid(fmt::format("key '{}' has {} values for {} pieces", key, list->size(), pieces));
  }
  return ok_status();
}

Result<Spelling> read_spelling(const MetaMap& meta) {
  CARAT_ASSIGN(const auto model, meta.string("tokenizer.ggml.model"));
  if (!model) return invalid("key 'tokenizer.ggml.model' is missing: the file has no tokenizer");
  if (*model == "llama") return Spelling::sentencepiece;
  if (*model == "gpt2") return Spelling::byte_level;
  return unsupported(fmt::format("tokenizer.ggml.model {} is not known; known are 'llama' and 'gpt2'", quoted(*model)));
}

/// Floats in an order of unsigned integers where the highest score comes first. -0 and 0 are one score.
std::uint32_t order_of(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);
  const std::uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return ~ascending;
}

}  // namespace

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 40;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out += c;
    } else {
      out += fmt::format("\\x{:02X}", byte);
    }
  }
  return out + (text.size() > kShown ? "…'" : "'");
}

std::size_t spell_byte_level(std::string_view text, char* out) {
  std::size_t written = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const DecodedCharacter character = decode_character(rest);
    const bool known = character.valid && character.code < std::size(kAlphabet.byte_of);
    const int byte = known ? kAlphabet.byte_of[character.code] : -1;
    if (byte < 0) {
      text.copy(out, text.size());
      return text.size();
    }
    out[written++] = static_cast<char>(byte);
    rest.remove_prefix(character.bytes);
  }
  return written;
}

Result<VocabularySource> VocabularySource::read(const MetaMap& meta) {
  VocabularySource source;
  CARAT_ASSIGN(source.spelling, read_spelling(meta));
  CARAT_ASSIGN(const auto pieces, meta.strings("tokenizer.ggml.tokens"));
  if (!pieces || pieces->size() == 0) return invalid("key 'tokenizer.ggml.tokens' is missing or empty");
  source.pieces = *pieces;
  const std::uint64_t count = pieces->size();
  if (count > SlotTable::kMaxEntries) {
    return unsupported(
        fmt::format("tokenizer.ggml.tokens has {} pieces; at most {} are supported", count, SlotTable::kMaxEntries));
  }
  if (pieces->bytes().size() >= (std::uint64_t{1} << 32)) {
    return unsupported("tokenizer.ggml.tokens is larger than 4 GiB");
  }
  if (source.spelling == Spelling::sentencepiece) {
    CARAT_ASSIGN(source.scores, meta.numbers("tokenizer.ggml.scores"));
    if (!source.scores) return invalid("key 'tokenizer.ggml.scores' is missing: a 'llama' tokenizer merges by score");
    CARAT_TRY(check_length("tokenizer.ggml.scores", source.scores, count));
  }
  CARAT_ASSIGN(source.kinds, meta.numbers("tokenizer.ggml.token_type"));
  CARAT_TRY(check_length("tokenizer.ggml.token_type", source.kinds, count));
  if (source.kinds && !source.kinds->is_integer()) {
    return invalid(
        fmt::format("key 'tokenizer.ggml.token_type' holds {}, expected integers", name(source.kinds->type())));
  }
  CARAT_TRY(check_id(meta, "tokenizer.ggml.bos_token_id", count, source.named.bos));
  CARAT_TRY(check_id(meta, "tokenizer.ggml.eos_token_id", count, source.named.eos));
  CARAT_TRY(check_id(meta, "tokenizer.ggml.eot_token_id", count, source.named.eot));
  CARAT_TRY(check_id(meta, "tokenizer.ggml.eom_token_id", count, source.named.eom));
  CARAT_TRY(check_id(meta, "tokenizer.ggml.unknown_token_id", count, source.named.unknown));
  return source;
}

std::uint64_t VocabularySource::special_bound() const {
  std::uint64_t bound = std::size(kMarkers) + sizeof(NamedTokens) / sizeof(std::int32_t);
  if (kinds) {
    for (std::uint64_t i = 0; i < kinds->size(); ++i) {
      const std::int64_t kind = kinds->integer(i);
      bound += kind == static_cast<int>(PieceKind::control) || kind == static_cast<int>(PieceKind::user_defined) ||
               kind == static_cast<int>(PieceKind::unknown);
    }
  }
  return bound;
}

std::uint64_t VocabularySource::bytes_needed() const {
  const std::uint64_t count = pieces.size();
  return charged_bytes(pieces.bytes().size() - 8 * count, 1) + charged_bytes(count + 1, sizeof(std::uint32_t)) +
         charged_bytes(count, sizeof(PieceKind)) +
         charged_bytes(spelling == Spelling::sentencepiece ? count : 0, sizeof(std::uint32_t)) +
         charged_bytes(SlotTable::slots_for(count), sizeof(std::uint32_t));
}

Result<PieceKind> Vocabulary::settle_kind(const VocabularySource& source, std::uint32_t id, std::string_view spelled) {
  const auto signed_id = static_cast<std::int32_t>(id);
  PieceKind kind = PieceKind::normal;
  if (source.kinds) {
    const std::int64_t number = source.kinds->integer(id);
    if (number < 1 || number > 6) {
      return invalid(fmt::format("tokenizer.ggml.token_type of piece {} ({}) is {}; known are 1 to 6", id,
                                 quoted(spelled), number));
    }
    kind = static_cast<PieceKind>(number);
  } else if (signed_id == named_.unknown) {
    kind = PieceKind::unknown;
  } else if (signed_id == named_.bos || signed_id == named_.eos || signed_id == named_.eot || signed_id == named_.eom) {
    kind = PieceKind::control;
  } else if (source.spelling == Spelling::sentencepiece && parse_byte_piece(spelled) >= 0) {
    kind = PieceKind::byte;
  }
  if (const Marker* marker = find_marker(spelled)) {
    if (kind == PieceKind::normal || kind == PieceKind::user_defined) {
      // Only the first of a name: a hostile file can repeat it, and special_bound() counts each marker once.
      const std::uint32_t bit = 1U << (marker - kMarkers);
      const bool repeated = (repaired_markers_ & bit) != 0;
      kind = repeated ? PieceKind::unused : PieceKind::control;
      if (source.kinds && !repeated) repaired_ += (repaired_.empty() ? "" : ", ") + std::string(spelled);
      repaired_markers_ |= bit;
    }
    if (marker->ends_turn && kind == PieceKind::control && turn_ends_.size() < std::size(kMarkers)) {
      turn_ends_.push_back(signed_id);
    }
  }
  return kind;
}

Status Vocabulary::index(std::int32_t id, std::uint64_t hash, Spelling spelling) {
  const std::string_view text = bytes(id);
  const PieceKind kind = this->kind(id);
  if (kind == PieceKind::byte) {
    std::int32_t& piece = byte_pieces_[static_cast<std::uint8_t>(text[0])];
    if (piece == kNoToken) piece = id;
    return ok_status();
  }
  if (text.empty()) return ok_status();
  const bool normal = kind == PieceKind::normal;
  if (normal) {
    longest_normal_ = std::max(longest_normal_, static_cast<std::uint32_t>(text.size()));
    if (spelling == Spelling::byte_level && text.size() == 1) {
      std::int32_t& piece = byte_pieces_[static_cast<std::uint8_t>(text[0])];
      if (piece == kNoToken || this->kind(piece) == PieceKind::byte) piece = id;
    }
  }
  const auto inserted = table_.insert(hash, static_cast<std::uint32_t>(id), [&](std::uint32_t other) {
    const auto other_id = static_cast<std::int32_t>(other);
    return bytes(other_id) == text && (this->kind(other_id) == PieceKind::normal) == normal;
  });
  if (inserted == SlotTable::Insert::crowded) {
    return invalid(
        fmt::format("piece {} ({}): the vocabulary was made to collide in the hash table", id, quoted(text)));
  }
  duplicates_ += inserted == SlotTable::Insert::present;
  return ok_status();
}

Status Vocabulary::index_batch(std::uint32_t begin, std::uint32_t end, Spelling spelling) {
  std::array<std::uint64_t, kBatch> hashes;
  CARAT_CHECK(end - begin <= kBatch);
  for (std::uint32_t id = begin; id < end; ++id) {
    hashes[id - begin] = hash_bytes(bytes(static_cast<std::int32_t>(id)));
    table_.prefetch(hashes[id - begin]);
  }
  for (std::uint32_t id = begin; id < end; ++id) {
    CARAT_TRY(index(static_cast<std::int32_t>(id), hashes[id - begin], spelling));
  }
  return ok_status();
}

/// Writes kind, bytes and order of piece `id`, whose bytes begin at offsets_[id].
Status Vocabulary::place(const VocabularySource& source, std::uint32_t id, std::string_view spelled) {
  CARAT_ASSIGN(const PieceKind kind, settle_kind(source, id, spelled));
  kinds_[id] = kind;
  char* const out = blob_.data() + offsets_[id];
  std::size_t written = 0;
  if (kind == PieceKind::byte) {
    const int byte = parse_byte_piece(spelled);
    if (byte < 0) {
      return invalid(fmt::format("byte piece {} is spelled {}; expected <0x00> to <0xFF>", id, quoted(spelled)));
    }
    out[written++] = static_cast<char>(byte);
  } else if (source.spelling == Spelling::sentencepiece) {
    written = spell_sentencepiece(spelled, out);
  } else if (kind == PieceKind::normal || kind == PieceKind::unused) {
    written = spell_byte_level(spelled, out);
  } else {
    written = spelled.copy(out, spelled.size());
  }
  offsets_[id + 1] = offsets_[id] + static_cast<std::uint32_t>(written);
  if (source.scores) {
    const auto score = static_cast<float>(source.scores->real(id));
    if (std::isnan(score)) return invalid(fmt::format("the score of piece {} ({}) is NaN", id, quoted(spelled)));
    orders_[id] = order_of(score);
  }
  return ok_status();
}

Result<Vocabulary> Vocabulary::build(const VocabularySource& source, Budget& budget) {
  constexpr MemoryCategory kCategory = MemoryCategory::tokenizer;
  const std::uint64_t count = source.pieces.size();
  const std::uint64_t blob_bytes = source.pieces.bytes().size() - 8 * count;
  Vocabulary made;
  made.named_ = source.named;
  made.byte_pieces_.fill(kNoToken);
  CARAT_ASSIGN(made.blob_, Buffer<char>::allocate(budget, kCategory, blob_bytes, "the vocabulary's pieces"));
  CARAT_ASSIGN(made.offsets_,
               Buffer<std::uint32_t>::allocate(budget, kCategory, count + 1, "the vocabulary's offsets"));
  CARAT_ASSIGN(made.kinds_, Buffer<PieceKind>::allocate(budget, kCategory, count, "the vocabulary's kinds"));
  CARAT_ASSIGN(made.table_, SlotTable::allocate(budget, count, "the vocabulary's index"));
  if (source.scores) {
    CARAT_ASSIGN(made.orders_, Buffer<std::uint32_t>::allocate(budget, kCategory, count, "the vocabulary's scores"));
  }

  std::uint32_t id = 0;
  std::uint32_t indexed = 0;
  for (const std::string_view spelled : source.pieces) {
    CARAT_TRY(made.place(source, id, spelled));
    if (++id - indexed == kBatch || id == count) {
      CARAT_TRY(made.index_batch(indexed, id, source.spelling));
      indexed = id;
    }
  }
  made.log_repairs();
  return made;
}

void Vocabulary::log_repairs() const {
  if (!repaired_.empty()) {
    log_note(fmt::format("tokenizer: {} typed as ordinary text in the file, treated as control", repaired_));
  }
  if (duplicates_ > 0) {
    log_detail(fmt::format("tokenizer: {} pieces repeat an earlier one and are never produced", duplicates_));
  }
}

std::int32_t Vocabulary::find_normal(std::string_view text) const {
  const auto found = table_.find(hash_bytes(text), [&](std::uint32_t entry) {
    const auto id = static_cast<std::int32_t>(entry);
    return kind(id) == PieceKind::normal && bytes(id) == text;
  });
  return found ? static_cast<std::int32_t>(*found) : kNoToken;
}

std::int32_t Vocabulary::find(std::string_view text) const {
  const std::int32_t normal = find_normal(text);
  if (normal != kNoToken) return normal;
  const auto found = table_.find(hash_bytes(text),
                                 [&](std::uint32_t entry) { return bytes(static_cast<std::int32_t>(entry)) == text; });
  return found ? static_cast<std::int32_t>(*found) : kNoToken;
}

}  // namespace carat
