#include "formats/sentencepiece_model.h"

#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <string>

#include "formats/hf_tokenizer_lists.h"
#include "formats/text_file.h"

namespace carat {
namespace {

constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 30;

/// Reads the fields of one protobuf message. Fields that nobody asks for are checked and skipped.
class Message {
 public:
  /// `text`: the message; `offset`: where it begins in the file, for errors.
  Message(std::string_view text, std::uint64_t offset) : text_(text), offset_(offset) {}

  bool at_end() const { return at_ == text_.size(); }

  /// Reads the next field into number() and the value that its wire type has.
  Status next() {
    const std::size_t begin = at_;
    std::uint64_t key = 0;
    CARAT_TRY(varint(key));
    if (key >> 3 == 0 || key >> 32 != 0) return broken(begin, fmt::format("field number {}", key >> 3));
    number_ = static_cast<std::uint32_t>(key >> 3);
    wire_ = static_cast<std::uint32_t>(key & 7);
    switch (wire_) {
      case 0: return varint(value_);
      case 1: return fixed(8);
      case 2: {
        std::uint64_t length = 0;
        CARAT_TRY(varint(length));
        if (length > text_.size() - at_) {
          return broken(begin, fmt::format("field {} of {} bytes, but {} are left", number_, length,
                                           text_.size() - at_));
        }
        value_ = at_;
        bytes_ = text_.substr(at_, length);
        at_ += length;
        return ok_status();
      }
      case 5: return fixed(4);
      default: return broken(begin, fmt::format("wire type {} of field {}", wire_, number_));
    }
  }

  std::uint32_t number() const { return number_; }
  Result<std::uint64_t> whole() const {
    if (wire_ != 0) return mistyped("a whole number");
    return value_;
  }
  Result<float> real() const {
    if (wire_ != 5) return mistyped("a float");
    return std::bit_cast<float>(static_cast<std::uint32_t>(value_));
  }
  Result<std::string_view> bytes() const {
    if (wire_ != 2) return mistyped("bytes");
    return bytes_;
  }
  Result<Message> message() const {
    if (wire_ != 2) return mistyped("a message");
    return Message(bytes_, offset_ + value_);
  }

 private:
  Status broken(std::size_t at, std::string_view what) const {
    return invalid(fmt::format("byte {}: {}: not a SentencePiece model, or damaged", offset_ + at, what));
  }
  Status mistyped(std::string_view wanted) const {
    return broken(at_, fmt::format("field {} has wire type {}, expected {}", number_, wire_, wanted));
  }

  Status varint(std::uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_end()) return broken(at_, "a number is cut");
      const auto byte = static_cast<std::uint8_t>(text_[at_++]);
      if (shift == 63 && byte > 1) break;
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if ((byte & 0x80) == 0) return ok_status();
    }
    return broken(at_, "a number of more than 64 bits");
  }

  Status fixed(std::size_t bytes) {
    if (bytes > text_.size() - at_) return broken(at_, fmt::format("field {} is cut", number_));
    value_ = 0;
    std::memcpy(&value_, text_.data() + at_, bytes);
    at_ += bytes;
    return ok_status();
  }

  std::string_view text_;
  std::uint64_t offset_;
  std::size_t at_ = 0;
  std::uint32_t number_ = 0;
  std::uint32_t wire_ = 0;
  std::uint64_t value_ = 0;  ///< a number, or where bytes() begin
  std::string_view bytes_;
};

struct Piece {
  std::string_view text;
  float score = 0;
  std::uint64_t type = 1;
};

Result<Piece> read_piece(Message message) {
  Piece piece;
  while (!message.at_end()) {
    CARAT_TRY(message.next());
    switch (message.number()) {
      case 1: {
        CARAT_ASSIGN(piece.text, message.bytes());
        break;
      }
      case 2: {
        CARAT_ASSIGN(piece.score, message.real());
        break;
      }
      case 3: {
        CARAT_ASSIGN(piece.type, message.whole());
        break;
      }
      default: break;
    }
  }
  return piece;
}

/// The members of TrainerSpec and NormalizerSpec that say how to encode, with SentencePiece's defaults.
struct Specs {
  std::uint64_t model_type = 1;
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  std::uint64_t unknown = 0;
  std::uint64_t bos = 1;
  std::uint64_t eos = 2;
  bool dummy_prefix = true;
  bool removes_whitespace = true;
  bool escapes_whitespace = true;
  bool changes_text = false;
};

Status read_trainer(Message message, Specs& specs) {
  while (!message.at_end()) {
    CARAT_TRY(message.next());
    std::uint64_t* target = nullptr;
    bool* flag = nullptr;
    switch (message.number()) {
      case 3: target = &specs.model_type; break;
      case 24: flag = &specs.whitespace_as_suffix; break;
      case 35: flag = &specs.byte_fallback; break;
      case 40: target = &specs.unknown; break;
      case 41: target = &specs.bos; break;
      case 42: target = &specs.eos; break;
      default: continue;
    }
    CARAT_ASSIGN(const std::uint64_t value, message.whole());
    if (target != nullptr) *target = value;
    if (flag != nullptr) *flag = value != 0;
  }
  return ok_status();
}

Status read_normalizer(Message message, Specs& specs) {
  while (!message.at_end()) {
    CARAT_TRY(message.next());
    bool* flag = nullptr;
    switch (message.number()) {
      case 2: {
        CARAT_ASSIGN(const std::string_view map, message.bytes());
        specs.changes_text = !map.empty();
        continue;
      }
      case 3: flag = &specs.dummy_prefix; break;
      case 4: flag = &specs.removes_whitespace; break;
      case 5: flag = &specs.escapes_whitespace; break;
      default: continue;
    }
    CARAT_ASSIGN(const std::uint64_t value, message.whole());
    *flag = value != 0;
  }
  return ok_status();
}

Status check_specs(const Specs& specs) {
  constexpr std::string_view kTypes[] = {"unigram", "BPE", "word", "char"};
  if (specs.model_type != 2) {
    const bool named = specs.model_type >= 1 && specs.model_type <= std::size(kTypes);
    return unsupported(fmt::format("trainer_spec.model_type is {} ({}); known is 2 (BPE)", specs.model_type,
                                   named ? kTypes[specs.model_type - 1] : "unknown"));
  }
  if (specs.changes_text) {
    return unsupported("normalizer_spec has a character map that changes text; expected the rule 'identity'");
  }
  if (specs.removes_whitespace) {
    return unsupported("normalizer_spec.remove_extra_whitespaces is true; expected false, as Gemma and Llama have it");
  }
  if (!specs.escapes_whitespace || specs.whitespace_as_suffix) {
    return unsupported("escape_whitespaces false and treat_whitespace_as_suffix true are not supported");
  }
  return ok_status();
}

struct Totals {
  std::uint64_t pieces = 0;
  std::uint64_t text_bytes = 0;
};

/// Reads everything but keeps only the specs and how much room the pieces need.
Result<Totals> measure(std::string_view text, Specs& specs) {
  Totals totals;
  bool byte_pieces = false;
  for (Message model(text, 0); !model.at_end();) {
    CARAT_TRY(model.next());
    if (model.number() > 3) continue;
    CARAT_ASSIGN(const Message message, model.message());
    if (model.number() == 2) {
      CARAT_TRY(read_trainer(message, specs));
    } else if (model.number() == 3) {
      CARAT_TRY(read_normalizer(message, specs));
    } else {
      CARAT_ASSIGN(const Piece piece, read_piece(message));
      byte_pieces |= piece.type == static_cast<std::uint64_t>(PieceType::byte);
      totals.text_bytes += piece.text.size();
      if (++totals.pieces > kMostPieces) return unsupported(fmt::format("more than {} pieces", kMostPieces));
    }
  }
  if (totals.pieces == 0) return invalid("there are no pieces: not a SentencePiece model, or empty");
  CARAT_TRY(check_specs(specs));
  if (byte_pieces && !specs.byte_fallback) return invalid("byte pieces without trainer_spec.byte_fallback");
  return totals;
}

Status fill(std::string_view text, VocabularyLists& lists) {
  for (Message model(text, 0); !model.at_end();) {
    CARAT_TRY(model.next());
    if (model.number() != 1) continue;
    CARAT_ASSIGN(const Message message, model.message());
    CARAT_ASSIGN(const Piece piece, read_piece(message));
    const auto failed = [&](std::string_view why) {
      return invalid(fmt::format("piece {}: {}", lists.size(), why));
    };
    if (piece.type < 1 || piece.type > 6) return failed(fmt::format("type {}; known are 1 to 6", piece.type));
    if (std::isnan(piece.score)) return failed("its score is NaN");
    auto type = static_cast<PieceType>(piece.type);
    if (type == PieceType::byte && !is_byte_piece(piece.text)) {
      return failed("a byte piece not spelled <0x00> to <0xFF>");
    }
    const bool text_piece = type == PieceType::normal || type == PieceType::user_defined;
    if (text_piece && is_turn_marker(piece.text)) type = PieceType::control;
    lists.append(piece.text, piece.score, type);
  }
  return ok_status();
}

Status add_checked(const ByteSource& source, MetaMap& meta, Budget& budget) {
  CARAT_ASSIGN(const TextFile file, read_text_file(source, budget, kLargestFile));
  Specs specs;
  CARAT_ASSIGN(const Totals totals, measure(file.text, specs));
  CARAT_ASSIGN(VocabularyLists lists, VocabularyLists::allocate(totals.pieces, totals.text_bytes, budget));
  CARAT_TRY(fill(file.text, lists));
  meta.set_string("tokenizer.ggml.model", "llama");
  meta.set("tokenizer.ggml.add_space_prefix", specs.dummy_prefix);
  const std::pair<const char*, std::uint64_t> ids[] = {{"tokenizer.ggml.bos_token_id", specs.bos},
                                                       {"tokenizer.ggml.eos_token_id", specs.eos},
                                                       {"tokenizer.ggml.unknown_token_id", specs.unknown}};
  for (const auto& [key, id] : ids) {
    if (id >> 63 != 0) continue;  // -1: there is none
    if (id >= totals.pieces) return invalid(fmt::format("trainer_spec: id {} of {} pieces", id, totals.pieces));
    meta.set(key, static_cast<std::int64_t>(id));
  }
  std::move(lists).move_into(meta, true);
  return ok_status();
}

}  // namespace

Status add_sentencepiece_model(const ByteSource& source, MetaMap& meta, Budget& budget) {
  return add_checked(source, meta, budget).with_context(source.name());
}

}  // namespace carat
