// The second step of reading a tokenizer.json: its parts as the keys tokenizer.ggml.*.
//
// SentencePiece merges the pair whose joined piece has the highest score; the file lists pairs, and the earliest is
// merged first. The two agree when (a) every pair of pieces that joins to a piece is in the list, so that looking the
// joined text up finds exactly the listed pairs, and (b) the pairs that make one piece stand together, so that one
// number, minus the rank of the first, orders them against all others. Lists made from a SentencePiece model (Gemma,
// Llama 2, Mistral) are so by construction; both are checked here, and a list that is not so is refused.
#include <fmt/core.h>

#include <bit>

#include "base/log.h"
#include "formats/hf_tokenizer.h"
#include "formats/hf_tokenizer_json.h"
#include "formats/hf_tokenizer_lists.h"

namespace carat {
namespace {

constexpr std::uint32_t kNoPiece = 0xFFFFFFFF;

std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 40;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) out += c >= 0x20 && c < 0x7F ? std::string(1, c)
                                                                           : fmt::format("\\x{:02X}", c & 0xFF);
  return out + (text.size() > kShown ? "...'" : "'");
}

/// Pieces by their text, for reading only: an open-addressing table of ids.
class PieceIndex {
 public:
  static Result<PieceIndex> allocate(std::uint64_t count, Budget& budget) {
    PieceIndex made;
    CARAT_ASSIGN(made.slots_, Buffer<std::uint32_t>::allocate(budget, MemoryCategory::io,
                                                              std::bit_ceil(2 * count + 16), "an index of pieces"));
    CARAT_ASSIGN(made.begins_,
                 Buffer<std::uint32_t>::allocate(budget, MemoryCategory::io, count, "an index of pieces"));
    return made;
  }

  /// The piece that VocabularyLists holds at `begin`; false when a hostile file makes too many collide.
  bool insert(const VocabularyLists& lists, std::uint32_t id, std::uint64_t begin) {
    begins_[id] = static_cast<std::uint32_t>(begin);
    const std::string_view text = lists.at(begin);
    std::uint64_t at = hash(text) & (slots_.size() - 1);
    for (int probes = 0; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
      if (lists.at(begins_[slots_[at] - 1]) == text) return true;  // the first one counts, as in the tokenizer
      if (++probes > 1024) return false;
    }
    slots_[at] = id + 1;
    return true;
  }

  std::uint32_t find(const VocabularyLists& lists, std::string_view text) const {
    for (std::uint64_t at = hash(text) & (slots_.size() - 1); slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
      if (lists.at(begins_[slots_[at] - 1]) == text) return slots_[at] - 1;
    }
    return kNoPiece;
  }

  std::string_view text(const VocabularyLists& lists, std::uint32_t id) const { return lists.at(begins_[id]); }

 private:
  static std::uint64_t hash(std::string_view text) {
    std::uint64_t state = 0xCBF29CE484222325;  // FNV-1a, then mixed for the low bits
    for (const char c : text) state = (state ^ static_cast<std::uint8_t>(c)) * 0x100000001B3;
    return state ^ state >> 29;
  }
  Buffer<std::uint32_t> slots_;   ///< id + 1, or 0
  Buffer<std::uint32_t> begins_;  ///< by id
};

/// "config.vocab_size", which hf_folder reads before, or nothing.
Result<std::optional<std::uint64_t>> rows_of_model(const MetaMap& meta) {
  for (const char* key : {"config.vocab_size", "config.text_config.vocab_size"}) {
    CARAT_ASSIGN(const auto rows, meta.integer(key));
    if (!rows) continue;
    if (*rows < 1 || static_cast<std::uint64_t>(*rows) > kMostPieces) {
      return invalid(fmt::format("key '{}' is {}, expected 1 to {}", key, *rows, kMostPieces));
    }
    return std::optional(static_cast<std::uint64_t>(*rows));
  }
  return std::optional<std::uint64_t>();
}

class Builder {
 public:
  Builder(const HfTokenizerJson& json, const HfTokenizerRules& rules, Budget& budget)
      : json_(json), rules_(rules), budget_(budget) {}

  Status build(MetaMap& meta) {
    CARAT_ASSIGN(const auto rows, rows_of_model(meta));
    CARAT_TRY(place(rows));
    CARAT_TRY(fill());
    meta.set_string("tokenizer.ggml.model", rules_.byte_level ? "gpt2" : "llama");
    if (rules_.byte_level) {
      meta.set_string("tokenizer.ggml.pre", rules_.pre);
      meta.set("tokenizer.ggml.nfc", rules_.nfc);
      CARAT_TRY(copy_merges(meta));
    } else {
      CARAT_TRY(check_bytes());
      CARAT_TRY(score());
      meta.set("tokenizer.ggml.add_space_prefix", rules_.space_prefix);
      if (rules_.prefix_once) meta.set("tokenizer.ggml.space_prefix_once", true);
    }
    CARAT_TRY(name_ids(meta));
    std::move(lists_).move_into(meta, !rules_.byte_level);
    return ok_status();
  }

 private:
  /// Finds which entry is which id, and how much room their text takes.
  Status place(std::optional<std::uint64_t> rows) {
    std::uint64_t count = 0;
    for (std::uint64_t i = 0; i < json_.piece_count; ++i) {
      const HfPiece piece = json_.piece(i);
      if (!rows || piece.id < *rows) {
        count = std::max<std::uint64_t>(count, piece.id + 1);
      } else if (!piece.added) {
        return invalid(fmt::format("piece {} has id {}, but the model's config has vocab_size {}",
                                   shown(json_.text(piece)), piece.id, *rows));
      } else {
        log_detail(fmt::format("tokenizer.json: token {} ({}) is left out: the model has no row for it", piece.id,
                               shown(json_.text(piece))));
      }
    }
    if (count == 0) return invalid("there are no pieces: model.vocab is missing or empty");
    if (rows) count = *rows;
    CARAT_ASSIGN(entries_, Buffer<std::uint32_t>::allocate(budget_, MemoryCategory::io, count, "the order of pieces"));
    CARAT_ASSIGN(types_, Buffer<PieceType>::allocate(budget_, MemoryCategory::io, count, "the types of pieces"));
    // The vocabulary first, then added tokens, which may stand for a piece of it: whatever the order in the file.
    for (const bool added : {false, true}) {
      for (std::uint64_t i = 0; i < json_.piece_count; ++i) {
        const HfPiece piece = json_.piece(i);
        if (piece.added == added && piece.id < count) CARAT_TRY(place_one(piece, static_cast<std::uint32_t>(i)));
      }
    }
    return ok_status();
  }

  Status place_one(const HfPiece& piece, std::uint32_t index) {
    const std::string_view text = json_.text(piece);
    std::uint32_t& entry = entries_[piece.id];
    if (entry != 0 && (!piece.added || json_.text(json_.piece(entry - 1)) != text)) {
      return invalid(fmt::format("id {} stands for {} and for {}", piece.id,
                                 shown(json_.text(json_.piece(entry - 1))), shown(text)));
    }
    entry = index + 1;
    types_[piece.id] = type_of(piece, text);
    if (types_[piece.id] == PieceType::user_defined && piece.trims) {
      return unsupported(fmt::format("added token {} ({}) has lstrip, rstrip or single_word", piece.id, shown(text)));
    }
    return ok_status();
  }

  PieceType type_of(const HfPiece& piece, std::string_view text) const {
    if (!rules_.byte_level && text == rules_.unknown) return PieceType::unknown;
    if (!rules_.byte_level && is_byte_piece(text)) return PieceType::byte;
    if (piece.special || is_turn_marker(text)) return PieceType::control;
    return piece.added ? PieceType::user_defined : PieceType::normal;
  }

  static std::string gap_name(std::uint64_t id) { return fmt::format("[PAD{}]", id); }

  Status fill() {
    const std::uint64_t count = entries_.size();
    std::uint64_t bytes = 0;
    for (std::uint64_t id = 0; id < count; ++id) {
      bytes += entries_[id] == 0 ? gap_name(id).size() : json_.text(json_.piece(entries_[id] - 1)).size();
    }
    if (bytes + 8 * count >= (std::uint64_t{1} << 32)) return unsupported("the pieces take more than 4 GiB");
    CARAT_ASSIGN(lists_, VocabularyLists::allocate(count, bytes, budget_));
    CARAT_ASSIGN(index_, PieceIndex::allocate(count, budget_));
    for (std::uint32_t id = 0; id < count; ++id) {
      const std::uint64_t begin = lists_.used();
      if (entries_[id] == 0) {
        lists_.append(gap_name(id), -static_cast<float>(json_.merge_count), PieceType::unused);
        continue;
      }
      const std::string_view text = json_.text(json_.piece(entries_[id] - 1));
      lists_.append(text, -static_cast<float>(json_.merge_count), types_[id]);
      if (!index_.insert(lists_, id, begin)) {
        return invalid(fmt::format("piece {} ({}): the vocabulary was made to collide in the hash table", id,
                                   shown(text)));
      }
    }
    entries_ = {};
    types_ = {};
    return ok_status();
  }

  Status copy_merges(MetaMap& meta) const {
    const auto bytes = json_.merges.bytes();
    CARAT_ASSIGN(auto copy, Buffer<std::byte>::allocate(budget_, MemoryCategory::io, bytes.size(), "the merges"));
    if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
    meta.set("tokenizer.ggml.merges", StringList(copy.span(), json_.merge_count));
    meta.keep_alive(std::make_shared<Buffer<std::byte>>(std::move(copy)));
    return ok_status();
  }

  /// What no piece spells must become bytes. Gemma has a tab where others have <0x09>.
  Status check_bytes() const {
    for (int byte = 0; byte < 256; ++byte) {
      const std::string spelled = fmt::format("<0x{:02X}>", byte);
      const char itself = static_cast<char>(byte);
      if (index_.find(lists_, spelled) == kNoPiece &&
          (byte >= 0x80 || index_.find(lists_, {&itself, 1}) == kNoPiece)) {
        return unsupported(fmt::format("model.byte_fallback is true, but there is no piece {}", spelled));
      }
    }
    return ok_status();
  }

  bool is_normal(std::uint32_t id) const { return id != kNoPiece && lists_.type(id) == PieceType::normal; }

  Status score() {
    constexpr float kNotMade = 1;
    std::uint64_t listed = 0;
    std::uint64_t rank = 0;
    std::uint32_t previous = kNoPiece;
    for (std::uint32_t id = 0; id < lists_.size(); ++id) lists_.score(id) = kNotMade;
    std::string joined;
    for (const std::string_view merge : StringList(json_.merges.bytes(), json_.merge_count)) {
      const std::size_t space = merge.find(' ');
      const std::uint32_t left = index_.find(lists_, merge.substr(0, space));
      const std::uint32_t right = index_.find(lists_, merge.substr(space + 1));
      joined.assign(merge.substr(0, space)).append(merge.substr(space + 1));
      const std::uint32_t made = index_.find(lists_, joined);
      if (left == kNoPiece || right == kNoPiece || made == kNoPiece) {
        return invalid(fmt::format("merge {} ({}) names a piece that is not there", rank, shown(merge)));
      }
      if (is_normal(left) && is_normal(right) && is_normal(made)) {
        ++listed;
        if (lists_.score(made) == kNotMade) {
          lists_.score(made) = -static_cast<float>(rank);
        } else if (previous != made) {
          return unsupported(fmt::format("merge {} ({}) makes a piece that an earlier one made, with others between: "
                                         "only lists made from a SentencePiece model are supported",
                                         rank, shown(merge)));
        }
        previous = made;
      }
      ++rank;
    }
    CARAT_TRY(check_complete(listed));
    for (std::uint32_t id = 0; id < lists_.size(); ++id) {
      if (lists_.score(id) == kNotMade) lists_.score(id) = -static_cast<float>(json_.merge_count);
    }
    return ok_status();
  }

  /// `listed` merges of two normal pieces to a normal one are in the list: are those all that there can be?
  Status check_complete(std::uint64_t listed) const {
    std::uint64_t possible = 0;
    for (std::uint32_t id = 0; id < lists_.size(); ++id) {
      if (!is_normal(id)) continue;
      const std::string_view text = index_.text(lists_, id);
      if (text.size() > kLongestNormal) {
        return unsupported(fmt::format("piece {} ({}) has {} bytes; at most {} are supported", id, shown(text),
                                       text.size(), kLongestNormal));
      }
      for (std::size_t cut = 1; cut < text.size(); ++cut) {
        if ((text[cut] & 0xC0) == 0x80) continue;  // inside a character
        possible += is_normal(index_.find(lists_, text.substr(0, cut))) &&
                    is_normal(index_.find(lists_, text.substr(cut)));
      }
    }
    if (possible == listed) return ok_status();
    return unsupported(fmt::format(
        "model.merges lists {} of the {} ways to join two pieces to a third: only complete lists, as made from a "
        "SentencePiece model, are supported",
        listed, possible));
  }

  Status name_ids(MetaMap& meta) const {
    if (!rules_.byte_level && !rules_.unknown.empty()) {
      const std::uint32_t id = index_.find(lists_, rules_.unknown);
      if (id == kNoPiece) return invalid(fmt::format("model.unk_token {} is no piece", shown(rules_.unknown)));
      meta.set("tokenizer.ggml.unknown_token_id", std::int64_t{id});
    }
    meta.set("tokenizer.ggml.add_bos_token", !rules_.bos.empty());
    if (!rules_.bos.empty()) {
      const std::uint32_t id = index_.find(lists_, rules_.bos);
      if (id == kNoPiece) {
        return invalid(fmt::format("post_processor puts {} first, which is no piece", shown(rules_.bos)));
      }
      meta.set("tokenizer.ggml.bos_token_id", std::int64_t{id});
    }
    return ok_status();
  }

  static constexpr std::size_t kLongestNormal = 1024;  // the check is quadratic in a piece's length

  const HfTokenizerJson& json_;
  const HfTokenizerRules& rules_;
  Budget& budget_;
  Buffer<std::uint32_t> entries_;  ///< by id: index into json_.pieces + 1, or 0
  Buffer<PieceType> types_;        ///< by id
  VocabularyLists lists_;
  PieceIndex index_;
};

Status add_checked(const ByteSource& source, MetaMap& meta, Budget& budget) {
  CARAT_ASSIGN(const HfTokenizerJson json, read_tokenizer_json(source, budget));
  CARAT_ASSIGN(const HfTokenizerRules rules, read_tokenizer_rules(json));
  return Builder(json, rules, budget).build(meta);
}

}  // namespace

Status add_tokenizer_json(const ByteSource& source, MetaMap& meta, Budget& budget) {
  return add_checked(source, meta, budget).with_context(source.name());
}

}  // namespace carat
