#include "text/tokenizer.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "text/byte_level_bpe.h"
#include "text/sentencepiece_bpe.h"
#include "text/utf8.h"

namespace carat {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr std::uint64_t kMostEosIds = 1024;

Result<StringList> read_merges(const MetaMap& meta) {
  CARAT_ASSIGN(const auto merges, meta.strings("tokenizer.ggml.merges"));
  if (!merges) return invalid("key 'tokenizer.ggml.merges' is missing: a 'gpt2' tokenizer merges by rank");
  return *merges;
}

Result<PreTokenizer> read_pre_tokenizer(const MetaMap& meta) {
  CARAT_ASSIGN(const auto pre, meta.string("tokenizer.ggml.pre"));
  if (!pre)
    log_note(
        "tokenizer: the file has no tokenizer.ggml.pre, taking 'gpt-2'; if answers look wrong, convert the file anew");
  return PreTokenizer::named(pre.value_or("gpt-2"));
}

/// The value of add_space_prefix for files that lack the key: SentencePiece's own default, which all but Gemma keep.
Result<bool> default_space_prefix(const MetaMap& meta) {
  CARAT_ASSIGN(const auto architecture, meta.string("general.architecture"));
  return architecture.has_value() && !architecture->starts_with("gemma");
}

Result<std::uint64_t> measure(const MetaMap& meta) {
  CARAT_ASSIGN(const VocabularySource source, VocabularySource::read(meta));
  std::uint64_t bytes = source.bytes_needed() + SpecialPieces::bytes_needed(source.special_bound());
  if (source.spelling == Spelling::byte_level) {
    CARAT_ASSIGN(const StringList merges, read_merges(meta));
    bytes += MergeTable::bytes_needed(merges.size());
  }
  return bytes;
}

}  // namespace

std::uint64_t Tokenizer::bytes_needed(const MetaMap& meta) {
  const Result<std::uint64_t> bytes = measure(meta);
  return bytes.ok() ? *bytes : 0;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(const MetaMap& meta, Budget& budget) {
  CARAT_ASSIGN(const VocabularySource source, VocabularySource::read(meta));
  std::unique_ptr<Tokenizer> made(new Tokenizer(budget));  // the encoder points into it: it never moves
  made->spelling_ = source.spelling;
  CARAT_ASSIGN(made->vocabulary_, Vocabulary::build(source, budget));
  CARAT_ASSIGN(made->special_pieces_, SpecialPieces::build(made->vocabulary_, source.special_bound(), budget));

  bool adds_bos = true;
  if (source.spelling == Spelling::sentencepiece) {
    made->encoder_ = std::make_unique<SentencePieceBpe>(made->vocabulary_);
    CARAT_ASSIGN(const bool prefix_default, default_space_prefix(meta));
    CARAT_ASSIGN(const auto prefix, meta.boolean("tokenizer.ggml.add_space_prefix"));
    made->add_space_prefix_ = prefix.value_or(prefix_default);
    CARAT_ASSIGN(const auto once, meta.boolean("tokenizer.ggml.space_prefix_once"));
    made->space_prefix_once_ = once.value_or(false);
  } else {
    CARAT_ASSIGN(const PreTokenizer pre_tokenizer, read_pre_tokenizer(meta));
    CARAT_ASSIGN(const StringList merges, read_merges(meta));
    CARAT_ASSIGN(MergeTable table, MergeTable::build(merges, made->vocabulary_, budget));
    adds_bos = pre_tokenizer.rules().adds_bos;
    CARAT_ASSIGN(const auto nfc, meta.boolean("tokenizer.ggml.nfc"));
    made->encoder_ = std::make_unique<ByteLevelBpe>(made->vocabulary_, std::move(table), pre_tokenizer,
                                                    nfc.value_or(pre_tokenizer.rules().nfc));
  }
  CARAT_ASSIGN(const auto add_bos, meta.boolean("tokenizer.ggml.add_bos_token"));
  made->add_bos_ = add_bos.value_or(adds_bos) && made->bos() != kNoToken;
  CARAT_TRY(made->collect_eos_ids(meta));
  return made;
}

Status Tokenizer::collect_eos_ids(const MetaMap& meta) {
  const NamedTokens& named = vocabulary_.named();
  eos_ids_ = vocabulary_.turn_ends();
  constexpr std::string_view kList = "tokenizer.ggml.eos_token_ids";
  CARAT_ASSIGN(const auto list, meta.numbers(kList));
  if (list && (!list->is_integer() || list->size() > kMostEosIds)) {
    return invalid(fmt::format("key '{}' is not a list of at most {} token ids", kList, kMostEosIds));
  }
  for (std::uint64_t i = 0; list && i < list->size(); ++i) {
    const std::int64_t id = list->integer(i);
    if (id < 0 || id >= size()) {
      return invalid(fmt::format("key '{}' has the id {}, but the vocabulary has {} pieces", kList, id, size()));
    }
    eos_ids_.push_back(static_cast<std::int32_t>(id));
  }
  for (const std::int32_t id : {named.eos, named.eot, named.eom}) {
    if (id != kNoToken) eos_ids_.push_back(id);
  }
  std::sort(eos_ids_.begin(), eos_ids_.end());
  eos_ids_.erase(std::unique(eos_ids_.begin(), eos_ids_.end()), eos_ids_.end());
  return ok_status();
}

bool Tokenizer::is_eos(std::int32_t id) const { return std::binary_search(eos_ids_.begin(), eos_ids_.end(), id); }

/// The text as pieces are stored: U+2581 is a space to SentencePiece. Most texts have none and are used in place.
Result<std::string_view> Tokenizer::canonical(std::string_view text, EncodeOptions options, Buffer<char>& copy) const {
  if (spelling_ != Spelling::sentencepiece || text.empty()) return text;
  bool prefix = add_space_prefix_;
  if (space_prefix_once_ && (text.starts_with(' ') || text.starts_with(kSpaceMark))) prefix = false;
  if (prefix && options.special) {
    const SpecialPieces::Match first = special_pieces_.longest_at(text, 0, true);
    prefix = first.id == kNoToken || vocabulary_.kind(first.id) != PieceKind::control;
  }
  std::size_t mark = text.find(kSpaceMark);
  if (!prefix && mark == std::string_view::npos) return text;
  CARAT_ASSIGN(copy, Buffer<char>::allocate(*budget_, MemoryCategory::tokenizer, text.size() + 1,
                                            "a text with U+2581 or a space prefix"));
  char* out = copy.data();
  if (prefix) *out++ = ' ';
  for (; mark != std::string_view::npos; mark = text.find(kSpaceMark)) {
    out += text.copy(out, mark);
    *out++ = ' ';
    text.remove_prefix(mark + kSpaceMark.size());
  }
  out += text.copy(out, text.size());
  return std::string_view(copy.data(), static_cast<std::size_t>(out - copy.data()));
}

Status Tokenizer::encode(std::string_view text, EncodeOptions options, const TokenSink& sink) const {
  Buffer<char> copy;
  CARAT_ASSIGN(const std::string_view plain, canonical(text, options, copy));
  MergeScratch scratch(*budget_);
  TokenWriter writer(sink);
  for (std::size_t at = 0; at < plain.size();) {
    const SpecialPieces::Match match = special_pieces_.next(plain, at, options.special);
    CARAT_TRY(encoder_->encode(plain.substr(at, match.begin - at), scratch, writer));
    if (match.id != kNoToken) writer.put(match.id);
    at = match.end;
  }
  writer.flush();
  return writer.status();
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<std::int32_t> ids;
  CARAT_TRY(encode(text, options, [&](std::span<const std::int32_t> batch) {
    ids.insert(ids.end(), batch.begin(), batch.end());
    return ok_status();
  }));
  return ids;
}

void Tokenizer::append_piece_bytes(std::int32_t id, bool special_as_text, std::string& out) const {
  if (!contains(id)) return;
  const PieceKind kind = vocabulary_.kind(id);
  if (special_as_text || (kind != PieceKind::control && kind != PieceKind::unknown)) {
    out.append(vocabulary_.bytes(id));
  } else if (kind == PieceKind::unknown) {
    out.append(kReplacementUtf8);
  }
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool special_as_text) const {
  std::string out;
  bool at_start = add_space_prefix_;  // where the prefix stands: first, or after BOS
  for (const std::int32_t id : ids) {
    const std::size_t begin = out.size();
    append_piece_bytes(id, special_as_text, out);
    if (at_start && id != bos()) {
      if (out.size() > begin && out[begin] == ' ' && vocabulary_.kind(id) != PieceKind::control) out.erase(begin, 1);
      at_start = false;
    }
  }
  return out;
}

}  // namespace carat
