#include "quantize/convert_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "formats/names.h"
#include "memory/arena.h"
#include "quantize/convert_json.h"
#include "text/pre_tokenizer.h"

namespace carat {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
/// tokenizer.ggml.token_type.
enum Kind : std::int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

/// The pieces of a vocabulary by id and by text.
class Pieces {
 public:
  static Result<Pieces> index(const MetaMap& meta, Budget& budget) {
    Pieces made;
    CARAT_ASSIGN(const auto tokens, meta.strings("tokenizer.ggml.tokens"));
    CARAT_ASSIGN(made.kinds_, meta.numbers("tokenizer.ggml.token_type"));
    CARAT_ASSIGN(made.scores_, meta.numbers("tokenizer.ggml.scores"));
    made.bytes_ = tokens->bytes();
    const std::uint64_t count = tokens->size();
    for (const auto& list : {made.kinds_, made.scores_}) {
      if (list && list->size() != count) return invalid("the tokenizer's lists differ in length");
    }
    if (made.bytes_.size() >= std::uint64_t{1} << 32) return unsupported("the pieces take more than 4 GiB");
    constexpr MemoryCategory kCategory = MemoryCategory::io;
    CARAT_ASSIGN(made.begins_, Buffer<std::uint32_t>::allocate(budget, kCategory, count, "where pieces begin"));
    CARAT_ASSIGN(made.slots_, Buffer<std::uint32_t>::allocate(budget, kCategory, std::bit_ceil(2 * count + 16),
                                                              "an index of pieces"));
    std::uint32_t id = 0;
    for (const std::string_view text : *tokens) {
      made.begins_[id] = static_cast<std::uint32_t>(reinterpret_cast<const std::byte*>(text.data()) -
                                                    made.bytes_.data());
      CARAT_TRY(made.insert(id++, text));
    }
    return made;
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(begins_.size()); }
  std::string_view text(std::uint32_t id) const {
    std::uint64_t length = 0;
    const std::byte* at = bytes_.data() + begins_[id];
    std::memcpy(&length, at - sizeof length, sizeof length);
    return {reinterpret_cast<const char*>(at), static_cast<std::size_t>(length)};
  }
  std::int64_t kind(std::uint32_t id) const { return kinds_ ? kinds_->integer(id) : kNormal; }
  double score(std::uint32_t id) const {
    const double score = scores_ ? scores_->real(id) : -static_cast<double>(id);
    return score == score ? score : std::numeric_limits<double>::lowest();  // NaN has no place in an order
  }
  /// The first piece of that text, or size().
  std::uint32_t find(std::string_view wanted) const {
    for (std::uint64_t at = hash(wanted);; ++at) {
      const std::uint32_t slot = slots_[at & (slots_.size() - 1)];
      if (slot == 0) return size();
      if (text(slot - 1) == wanted) return slot - 1;
    }
  }
  bool is_normal(std::uint32_t id) const { return id < size() && kind(id) == kNormal; }

 private:
  Status insert(std::uint32_t id, std::string_view piece) {
    std::uint64_t at = hash(piece) & (slots_.size() - 1);
    for (int probes = 0; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
      if (text(slots_[at] - 1) == piece) return ok_status();
      if (++probes > 1024) return invalid("the vocabulary was made to collide in the hash table");
    }
    slots_[at] = id + 1;
    return ok_status();
  }
  static std::uint64_t hash(std::string_view piece) {
    std::uint64_t state = 0xCBF29CE484222325;  // FNV-1a, then mixed for the low bits
    for (const char c : piece) state = (state ^ static_cast<std::uint8_t>(c)) * 0x100000001B3;
    return state ^ state >> 29;
  }

  std::span<const std::byte> bytes_;
  std::optional<NumberList> kinds_;
  std::optional<NumberList> scores_;
  Buffer<std::uint32_t> begins_;
  Buffer<std::uint32_t> slots_;  ///< id + 1, or 0
};

/// The pre_tokenizer of a byte-level BPE. The regular expressions are those of the models' own files, which
/// formats/hf_tokenizer_rules.cpp recognises.
struct ByteLevelForm {
  std::string_view pre;
  std::string_view regex;  ///< of a Split before ByteLevel; empty: ByteLevel's own
  bool digits = false;     ///< a Digits step first
  bool ignore_merges = false;
};
constexpr std::string_view kThreeDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kOneDigit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr ByteLevelForm kForms[] = {
    {.pre = "gpt-2"},
    {.pre = "smollm", .digits = true},
    {.pre = "llama-bpe", .regex = kThreeDigits, .ignore_merges = true},
    {.pre = "dbrx", .regex = kThreeDigits},
    {.pre = "qwen2", .regex = kOneDigit},
    {.pre = "deepseek-r1-qwen", .regex = kOneDigit},
};

class TokenizerWriter {
 public:
  TokenizerWriter(const MetaMap& meta, const Pieces& pieces, TextWriter& out)
      : meta_(meta), pieces_(pieces), out_(out) {}

  Status write(Budget& budget) {
    CARAT_ASSIGN(const auto model, meta_.string("tokenizer.ggml.model"));
    if (model != "llama" && model != "gpt2") {
      return unsupported(fmt::format("tokenizer.ggml.model '{}' has no form as tokenizer.json; known: llama, gpt2",
                                     escaped(model.value_or(""))));
    }
    const bool byte_level = model == "gpt2";
    bool adds_bos = !byte_level;
    if (byte_level) {
      CARAT_TRY(choose_form());
      CARAT_ASSIGN(const PreTokenizer rules, PreTokenizer::named(form_.pre));
      adds_bos = rules.rules().adds_bos;
    }
    CARAT_ASSIGN(const auto add_bos, meta_.boolean("tokenizer.ggml.add_bos_token"));
    adds_bos = add_bos.value_or(adds_bos);
    CARAT_TRY(out_.put("{\n \"version\": \"1.0\",\n \"truncation\": null,\n \"padding\": null,\n"));
    CARAT_TRY(write_added_tokens());
    if (byte_level) {
      CARAT_TRY(write_byte_level_steps());
    } else {
      CARAT_TRY(write_sentencepiece_steps());
    }
    CARAT_TRY(write_post_processor(adds_bos));
    CARAT_TRY(write_vocabulary(byte_level));
    CARAT_TRY(byte_level ? write_merges() : derive_merges(budget));
    return out_.put("]\n }\n}\n");
  }

 private:
  Status choose_form() {
    CARAT_ASSIGN(const auto pre, meta_.string("tokenizer.ggml.pre"));
    CARAT_ASSIGN(const PreTokenizer rules, PreTokenizer::named(pre.value_or("default")));
    const std::string_view names = rules.rules().names;
    for (const ByteLevelForm& form : kForms) {
      if (form.pre == names.substr(0, names.find(' '))) {
        form_ = form;
        return ok_status();
      }
    }
    return unsupported(fmt::format("tokenizer.ggml.pre '{}' has no form as tokenizer.json", *pre));
  }

  Status write_added_tokens() {
    CARAT_TRY(out_.put(" \"added_tokens\": ["));
    const char* before = "\n";
    for (std::uint32_t id = 0; id < pieces_.size(); ++id) {
      const std::int64_t kind = pieces_.kind(id);
      const bool special = kind == kControl || kind == kUnknown;
      if ((!special && kind != kUserDefined) || pieces_.find(pieces_.text(id)) != id) continue;
      // What is spelled with marks for spaces is looked for after the normalizer has put these in.
      const bool normalized = pieces_.text(id).find(kSpaceMark) != std::string_view::npos;
      CARAT_TRY(out_.put(fmt::format("{}  {{\"id\": {}, \"content\": {}, \"single_word\": false, \"lstrip\": false, "
                                     "\"rstrip\": false, \"normalized\": {}, \"special\": {}}}",
                                     before, id, json_quoted(pieces_.text(id)), normalized, special)));
      before = ",\n";
    }
    return out_.put("\n ],\n");
  }

  Status write_byte_level_steps() {
    constexpr std::string_view kByteLevel =
        R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": )";
    CARAT_ASSIGN(const auto asked, meta_.boolean("tokenizer.ggml.nfc"));
    CARAT_ASSIGN(const PreTokenizer rules, PreTokenizer::named(form_.pre));
    const bool nfc = asked.value_or(rules.rules().nfc);
    CARAT_TRY(out_.put(nfc ? " \"normalizer\": {\"type\": \"NFC\"},\n" : " \"normalizer\": null,\n"));
    const bool alone = form_.regex.empty() && !form_.digits;
    CARAT_TRY(out_.put(" \"pre_tokenizer\": "));
    if (!alone) CARAT_TRY(out_.put(R"({"type": "Sequence", "pretokenizers": [)"));
    if (form_.digits) CARAT_TRY(out_.put(R"({"type": "Digits", "individual_digits": true}, )"));
    if (!form_.regex.empty()) {
      CARAT_TRY(out_.put(fmt::format(
          R"({{"type": "Split", "pattern": {{"Regex": {}}}, "behavior": "Isolated", "invert": false}}, )",
          json_quoted(form_.regex))));
    }
    CARAT_TRY(out_.put(kByteLevel));
    CARAT_TRY(out_.put(form_.regex.empty() ? "true}" : "false}"));
    CARAT_TRY(out_.put(alone ? ",\n" : "]},\n"));
    return out_.put(fmt::format(" \"decoder\": {}true}},\n", kByteLevel));
  }

  Status write_sentencepiece_steps() {
    CARAT_ASSIGN(const auto prefix, meta_.boolean("tokenizer.ggml.add_space_prefix"));
    const bool space_prefix = prefix.value_or(true);
    const std::string replace =
        fmt::format(R"({{"type": "Replace", "pattern": {{"String": " "}}, "content": "{}"}})", kSpaceMark);
    CARAT_TRY(out_.put(" \"normalizer\": "));
    if (space_prefix) {
      CARAT_TRY(out_.put(fmt::format(
          R"({{"type": "Sequence", "normalizers": [{{"type": "Prepend", "prepend": "{}"}}, {}]}})", kSpaceMark,
          replace)));
    } else {
      CARAT_TRY(out_.put(replace));
    }
    CARAT_TRY(out_.put(fmt::format(
        ",\n \"pre_tokenizer\": null,\n \"decoder\": {{\"type\": \"Sequence\", \"decoders\": [{{\"type\": \"Replace\", "
        "\"pattern\": {{\"String\": \"{}\"}}, \"content\": \" \"}}, {{\"type\": \"ByteFallback\"}}, {{\"type\": "
        "\"Fuse\"}}{}]}},\n",
        kSpaceMark,
        space_prefix ? R"(, {"type": "Strip", "content": " ", "start": 1, "stop": 0})" : "")));
    return ok_status();
  }

  Status write_post_processor(bool adds_bos) {
    CARAT_ASSIGN(const auto bos, meta_.integer("tokenizer.ggml.bos_token_id"));
    if (!adds_bos || !bos || *bos < 0 || *bos >= std::int64_t{pieces_.size()}) {
      return out_.put(" \"post_processor\": null,\n");
    }
    const std::string text = json_quoted(pieces_.text(static_cast<std::uint32_t>(*bos)));
    return out_.put(fmt::format(
        " \"post_processor\": {{\"type\": \"TemplateProcessing\", \"single\": [{{\"SpecialToken\": {{\"id\": {0}, "
        "\"type_id\": 0}}}}, {{\"Sequence\": {{\"id\": \"A\", \"type_id\": 0}}}}], \"pair\": [{{\"SpecialToken\": "
        "{{\"id\": {0}, \"type_id\": 0}}}}, {{\"Sequence\": {{\"id\": \"A\", \"type_id\": 0}}}}, {{\"SpecialToken\": "
        "{{\"id\": {0}, \"type_id\": 1}}}}, {{\"Sequence\": {{\"id\": \"B\", \"type_id\": 1}}}}], "
        "\"special_tokens\": {{{0}: {{\"id\": {0}, \"ids\": [{1}], \"tokens\": [{0}]}}}}}},\n",
        text, *bos));
  }

  Status write_vocabulary(bool byte_level) {
    CARAT_ASSIGN(const auto unknown, meta_.integer("tokenizer.ggml.unknown_token_id"));
    const bool named = !byte_level && unknown && *unknown >= 0 && *unknown < std::int64_t{pieces_.size()};
    CARAT_TRY(out_.put(fmt::format(
        " \"model\": {{\n  \"type\": \"BPE\",\n  \"dropout\": null,\n  \"unk_token\": {},\n  "
        "\"continuing_subword_prefix\": null,\n  \"end_of_word_suffix\": null,\n  \"fuse_unk\": {},\n  "
        "\"byte_fallback\": {},\n  \"ignore_merges\": {},\n  \"vocab\": {{",
        named ? json_quoted(pieces_.text(static_cast<std::uint32_t>(*unknown))) : "null", !byte_level, !byte_level,
        form_.ignore_merges)));
    const char* before = "\n";
    for (std::uint32_t id = 0; id < pieces_.size(); ++id) {
      const std::string_view text = pieces_.text(id);
      // Gaps that were filled, and repetitions, which nothing can produce.
      if (pieces_.kind(id) == kUnused && text == fmt::format("[PAD{}]", id)) continue;
      if (pieces_.find(text) != id) continue;
      for (std::string_view rest = text; !rest.empty();) {
        const std::size_t bytes = utf8_character_bytes(rest);
        if (bytes == 0) return unsupported(fmt::format("piece {} ({}) is not UTF-8", id, escaped(text)));
        rest.remove_prefix(bytes);
      }
      CARAT_TRY(out_.put(fmt::format("{}   {}: {}", before, json_quoted(text), id)));
      before = ",\n";
    }
    return out_.put("\n  },\n  \"merges\": [");
  }

  Status put_merge(std::string_view left, std::string_view right) {
    CARAT_TRY(out_.put(fmt::format("{}   [{}, {}]", any_merge_ ? ",\n" : "\n", json_quoted(left), json_quoted(right))));
    any_merge_ = true;
    return ok_status();
  }

  Status write_merges() {
    CARAT_ASSIGN(const auto merges, meta_.strings("tokenizer.ggml.merges"));
    for (const std::string_view merge : merges.value_or(StringList())) {
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos) return invalid(fmt::format("merge '{}' has no space", escaped(merge)));
      CARAT_TRY(put_merge(merge.substr(0, space), merge.substr(space + 1)));
    }
    return ok_status();
  }

  Status derive_merges(Budget& budget) {
    CARAT_ASSIGN(const auto order, Buffer<std::uint32_t>::allocate(budget, MemoryCategory::io, pieces_.size(),
                                                                   "the order of pieces"));
    std::uint32_t count = 0;
    for (std::uint32_t id = 0; id < pieces_.size(); ++id) {
      if (pieces_.is_normal(id) && pieces_.find(pieces_.text(id)) == id) order[count++] = id;
    }
    std::sort(order.begin(), order.begin() + count, [&](std::uint32_t a, std::uint32_t b) {
      const double first = pieces_.score(a);
      const double second = pieces_.score(b);
      return first != second ? first > second : a < b;
    });
    constexpr std::size_t kLongest = 1024;  // the search below is quadratic in a piece's length
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::string_view text = pieces_.text(order[i]);
      if (text.size() > kLongest) {
        return unsupported(fmt::format("piece {} has {} bytes; at most {} are supported", order[i], text.size(),
                                       kLongest));
      }
      for (std::size_t cut = 1; cut < text.size(); ++cut) {
        if ((text[cut] & 0xC0) == 0x80) continue;  // inside a character
        if (!pieces_.is_normal(pieces_.find(text.substr(0, cut)))) continue;
        if (!pieces_.is_normal(pieces_.find(text.substr(cut)))) continue;
        CARAT_TRY(put_merge(text.substr(0, cut), text.substr(cut)));
      }
    }
    return ok_status();
  }

  const MetaMap& meta_;
  const Pieces& pieces_;
  TextWriter& out_;
  ByteLevelForm form_;
  bool any_merge_ = false;
};

}  // namespace

Status write_tokenizer_json(const MetaMap& meta, const std::string& path, Budget& budget) {
  CARAT_ASSIGN(const Pieces pieces, Pieces::index(meta, budget));
  CARAT_ASSIGN(TextWriter out, TextWriter::create(path));
  CARAT_TRY(TokenizerWriter(meta, pieces, out).write(budget));
  return out.commit();
}

}  // namespace carat
