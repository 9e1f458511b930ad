#include "text/pre_tokenizer.h"

#include <fmt/core.h>

#include <string>

#include "text/unicode_class.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace carat {
namespace {

constexpr PreTokenizerRules kKnown[] = {
    {.names = "gpt-2 default phi-2 mpt olmo"},
    {.names = "smollm starcoder refact command-r codeshell", .numbers_alone = true},
    {.names = "llama-bpe llama3 llama-v3",
     .tiktoken = true,
     .most_digits = 3,
     .whole_word_first = true,
     .adds_bos = true},
    {.names = "dbrx smaug-bpe", .tiktoken = true, .most_digits = 3},
    {.names = "qwen2", .tiktoken = true, .most_digits = 1, .nfc = true},
    {.names = "deepseek-r1-qwen stablelm2", .tiktoken = true, .most_digits = 1},
};

bool has_name(std::string_view names, std::string_view wanted) {
  while (!names.empty()) {
    const std::size_t space = std::min(names.find(' '), names.size());
    if (names.substr(0, space) == wanted) return true;
    names.remove_prefix(std::min(space + 1, names.size()));
  }
  return false;
}

/// One character of the text with its class; past the end: bytes 0.
struct Here {
  char32_t code = 0;
  std::uint8_t bytes = 0;
  CharacterClass kind = CharacterClass::space;

  static Here at(std::string_view text, std::size_t position) {
    if (position >= text.size()) return {};
    const DecodedCharacter character = decode_character(text.substr(position));
    // What is not UTF-8 is no letter, number or space.
    return {character.code, character.bytes, character.valid ? character_class(character.code) : CharacterClass::other};
  }
  bool is(CharacterClass wanted) const { return bytes > 0 && kind == wanted; }
  bool is_newline() const { return bytes > 0 && (code == '\r' || code == '\n'); }
};

/// The end of the run of `kind` that begins at `position`, of at most `most` characters (0: any number).
std::size_t run_end(std::string_view text, std::size_t position, CharacterClass kind, unsigned most = 0) {
  unsigned taken = 0;
  for (Here here = Here::at(text, position); here.is(kind); here = Here::at(text, position)) {
    position += here.bytes;
    if (++taken == most) break;
  }
  return position;
}

/// ASCII letters in lower case; U+017F (long s) folds to s, as case-insensitive matching has it.
char32_t fold(char32_t code) {
  if (code >= 'A' && code <= 'Z') return code + ('a' - 'A');
  return code == 0x17F ? U's' : code;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::named(std::string_view name) {
  std::string known;
  for (const PreTokenizerRules& rules : kKnown) {
    if (has_name(rules.names, name)) return PreTokenizer(rules);
    known += (known.empty() ? "" : " ") + std::string(rules.names);
  }
  return unsupported(fmt::format("tokenizer.ggml.pre {} is not known; known are: {}", quoted(name), known));
}

/// The end of a contraction after the apostrophe at `begin`, or `begin` when there is none.
std::size_t PreTokenizer::contraction_end(std::string_view text, std::size_t begin) const {
  const Here first = Here::at(text, begin + 1);
  const Here second = Here::at(text, begin + 1 + first.bytes);
  const char32_t a = rules_->tiktoken ? fold(first.code) : first.code;
  const char32_t b = rules_->tiktoken ? fold(second.code) : second.code;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return begin + 1 + first.bytes;
  const bool pair = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
  return pair ? begin + 1 + first.bytes + second.bytes : begin;
}

/// \s*[\r\n]+ (tiktoken) | \s+(?!\S) | \s+ from a white space character at `begin`.
std::size_t PreTokenizer::space_end(std::string_view text, std::size_t begin) const {
  std::size_t end = begin;
  std::size_t last = begin;         // where the last character of the run begins
  std::size_t newline_end = begin;  // after the last newline of the run
  Here here = Here::at(text, end);
  for (; here.is(CharacterClass::space); here = Here::at(text, end)) {
    last = end;
    end += here.bytes;
    if (here.is_newline()) newline_end = end;
  }
  if (rules_->tiktoken && newline_end > begin) return newline_end;
  const bool at_end = here.bytes == 0 || (rules_->numbers_alone && here.kind == CharacterClass::number);
  // The look-ahead leaves the last space to the word that follows, unless it is the only one.
  return at_end || last == begin ? end : last;
}

std::size_t PreTokenizer::word_end(std::string_view text, std::size_t begin) const {
  const Here first = Here::at(text, begin);
  const std::size_t second_begin = begin + first.bytes;
  if (rules_->numbers_alone && first.kind == CharacterClass::number) return second_begin;
  if (first.code == '\'') {
    const std::size_t end = contraction_end(text, begin);
    if (end > begin) return end;
  }
  const Here second = Here::at(text, second_begin);

  if (first.kind == CharacterClass::letter) return run_end(text, begin, CharacterClass::letter);
  const bool may_lead_letters =
      rules_->tiktoken ? first.kind != CharacterClass::number && !first.is_newline() : first.code == ' ';
  if (may_lead_letters && second.is(CharacterClass::letter)) {
    return run_end(text, second_begin, CharacterClass::letter);
  }

  const unsigned most_digits = rules_->most_digits;
  if (first.kind == CharacterClass::number) return run_end(text, begin, CharacterClass::number, most_digits);
  if (!rules_->tiktoken && !rules_->numbers_alone && first.code == ' ' && second.is(CharacterClass::number)) {
    return run_end(text, second_begin, CharacterClass::number, most_digits);
  }

  const bool leads_other = first.code == ' ' && second.is(CharacterClass::other);
  if (first.kind == CharacterClass::other || leads_other) {
    std::size_t end = run_end(text, leads_other ? second_begin : begin, CharacterClass::other);
    while (rules_->tiktoken && Here::at(text, end).is_newline()) ++end;
    return end;
  }
  return space_end(text, begin);
}

}  // namespace carat
