// Recognises what the sections normalizer, pre_tokenizer, post_processor and the scalars of model ask for. Each has a
// few known forms; another one would give other tokens, so it is an error.
#include <fmt/core.h>

#include <string>
#include <vector>

#include "formats/hf_tokenizer_json.h"

namespace carat {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

/// `text` for a message: printable ASCII, not too long.
std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 160;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) out += c >= 0x20 && c < 0x7F ? c : '?';
  return out + (text.size() > kShown ? "...'" : "'");
}

/// The patterns of the families by the names that tokenizer.ggml.pre has for them.
struct Pattern {
  std::string_view name;
  std::string_view regex;
  bool ignore_merges;  ///< a word that is a piece is taken whole
};
#define CARAT_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
constexpr Pattern kPatterns[] = {
    {"gpt-2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", false},
    {"llama-bpe",
     CARAT_CONTRACTIONS
     R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     true},
    {"dbrx",
     CARAT_CONTRACTIONS
     R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false},
    {"qwen2",
     CARAT_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false},
};
#undef CARAT_CONTRACTIONS

std::string known_patterns() {
  std::string known;
  for (const Pattern& pattern : kPatterns) {
    known += fmt::format("{}{}{}: {}", known.empty() ? "" : "; ", pattern.name,
                         pattern.ignore_merges ? " (ignore_merges)" : "", pattern.regex);
  }
  return known + "; smollm: Digits(individual_digits), then ByteLevel(use_regex)";
}

/// The entries of a section that is one step or a Sequence of steps, as prefixes of their facts.
std::vector<std::string> steps_of(const HfTokenizerJson& json, const std::string& section, std::string_view list) {
  std::vector<std::string> steps;
  if (json.fact(section + ".type") != "Sequence") {
    if (!json.fact(section + ".type").empty()) steps.push_back(section + ".");
    return steps;
  }
  for (int i = 0;; ++i) {
    std::string step = fmt::format("{}.{}.{}.", section, list, i);
    if (json.fact(step + "type").empty()) return steps;
    steps.push_back(std::move(step));
  }
}

class RulesReader {
 public:
  explicit RulesReader(const HfTokenizerJson& json) : json_(json) {}

  Result<HfTokenizerRules> read() {
    CARAT_TRY(read_model());
    const std::vector<std::string> steps = steps_of(json_, "pre_tokenizer", "pretokenizers");
    rules_.byte_level = !steps.empty() && json_.fact(steps.back() + "type") == "ByteLevel";
    if (rules_.byte_level) {
      CARAT_TRY(read_byte_level(steps));
    } else {
      CARAT_TRY(read_sentencepiece(steps));
    }
    read_post_processor();
    return rules_;
  }

 private:
  bool is_true(std::string_view path) const { return json_.fact(path) == "true"; }

  Status read_model() {
    const std::string_view type = json_.fact("model.type");
    if (!type.empty() && type != "BPE") {
      return unsupported(fmt::format("model.type {} is not known; known is BPE", shown(type)));
    }
    const std::string_view dropout = json_.fact("model.dropout");
    for (const char c : dropout) {
      if (c != '0' && c != '.') return unsupported("model.dropout makes tokens random; expected null");
    }
    for (const char* key : {"model.continuing_subword_prefix", "model.end_of_word_suffix"}) {
      if (!json_.fact(key).empty()) return unsupported(fmt::format("{} is not supported; expected null or empty", key));
    }
    rules_.unknown = json_.fact("model.unk_token");
    return ok_status();
  }

  Status read_byte_level(const std::vector<std::string>& steps) {
    for (const std::string& step : steps_of(json_, "normalizer", "normalizers")) {
      const std::string_view type = json_.fact(step + "type");
      if (type != "NFC") {
        return unsupported(fmt::format("normalizer {} of a byte-level tokenizer is not known; known is NFC",
                                       shown(type)));
      }
      rules_.nfc = true;
    }
    const std::string& last = steps.back();
    // Absent means true in both: the library's defaults.
    if (json_.fact(last + "add_prefix_space") != "false") {
      return unsupported("pre_tokenizer ByteLevel puts a space before the text; expected add_prefix_space false");
    }
    const bool use_regex = json_.fact(last + "use_regex") != "false";
    if (steps.size() == 1 && use_regex) return use_pattern("gpt-2");
    if (steps.size() == 2) {
      const std::string& first = steps[0];
      const std::string_view type = json_.fact(first + "type");
      if (type == "Digits" && is_true(first + "individual_digits") && use_regex) {
        rules_.pre = "smollm";
        return check_ignore_merges(false);
      }
      if (type == "Split" && !use_regex) return use_split(first);
    }
    std::string found;
    for (const std::string& step : steps) {
      found += (found.empty() ? "" : ", ") + shown(json_.fact(step + "type"));
    }
    return unsupported(fmt::format("pre_tokenizer [{}] is not known; known are {}", found, known_patterns()));
  }

  Status use_split(const std::string& step) {
    const std::string_view regex = json_.fact(step + "pattern.Regex");
    const bool isolated = json_.fact(step + "behavior") == "Isolated" ||
                          (json_.fact(step + "behavior") == "Removed" && is_true(step + "invert"));
    for (const Pattern& pattern : kPatterns) {
      if (isolated && pattern.regex == regex) return use_pattern(pattern.name);
    }
    return unsupported(fmt::format("pre_tokenizer Split by {} is not known; known are {}", shown(regex),
                                   known_patterns()));
  }

  /// Sets `pre` to the pattern of that name, or to the one that differs in ignore_merges alone.
  Status use_pattern(std::string_view name) {
    const bool ignore_merges = is_true("model.ignore_merges");
    std::string_view regex;
    for (const Pattern& pattern : kPatterns) {
      if (pattern.name == name) regex = pattern.regex;
    }
    for (const Pattern& pattern : kPatterns) {
      if (pattern.regex == regex && pattern.ignore_merges == ignore_merges) {
        rules_.pre = pattern.name;
        return ok_status();
      }
    }
    rules_.pre = name;
    return check_ignore_merges(false);
  }

  Status check_ignore_merges(bool wanted) const {
    if (is_true("model.ignore_merges") == wanted) return ok_status();
    return unsupported("model.ignore_merges true is known with the pattern of llama-bpe only");
  }

  Status read_sentencepiece(const std::vector<std::string>& steps) {
    if (!is_true("model.byte_fallback")) {
      return unsupported(
          "this BPE is neither byte-level (a last pre_tokenizer ByteLevel) nor SentencePiece-like (model.byte_fallback "
          "true)");
    }
    CARAT_TRY(check_ignore_merges(false));
    bool replaced = false;
    for (const std::string& step : steps_of(json_, "normalizer", "normalizers")) {
      const std::string_view type = json_.fact(step + "type");
      if (type == "Prepend" && json_.fact(step + "prepend") == kSpaceMark && !replaced && !rules_.space_prefix) {
        rules_.space_prefix = true;
      } else if (type == "Replace" && json_.fact(step + "pattern.String") == " " &&
                 json_.fact(step + "content") == kSpaceMark) {
        replaced = true;
      } else {
        return unsupported(fmt::format("normalizer {} is not known; known are Prepend U+2581 and Replace ' ' by U+2581",
                                       shown(type)));
      }
    }
    for (const std::string& step : steps) {
      const std::string_view type = json_.fact(step + "type");
      if (type == "Metaspace" && json_.fact(step + "split") == "false" &&
          json_.fact(step + "replacement") == kSpaceMark) {
        replaced = true;
        const std::string_view scheme = json_.fact(step + "prepend_scheme");
        const bool prefix = scheme == "first" || scheme == "always" || scheme.empty();
        rules_.prefix_once = prefix && !rules_.space_prefix;  // Metaspace looks whether one is there; Prepend does not
        rules_.space_prefix |= prefix;
      } else if (type == "Split" && json_.fact(step + "pattern.String") == " " && replaced) {
        continue;  // the text has no spaces any more
      } else {
        return unsupported(fmt::format(
            "pre_tokenizer {} is not known here; known are Metaspace (split false) and Split by ' '", shown(type)));
      }
    }
    if (!replaced) return unsupported("nothing replaces ' ' by U+2581: neither the normalizer nor Metaspace");
    return ok_status();
  }

  void read_post_processor() {
    for (const std::string& step : steps_of(json_, "post_processor", "processors")) {
      if (json_.fact(step + "type") == "TemplateProcessing") {
        rules_.bos = json_.fact(step + "single.0.SpecialToken.id");
      }
    }
  }

  const HfTokenizerJson& json_;
  HfTokenizerRules rules_;
};

}  // namespace

Result<HfTokenizerRules> read_tokenizer_rules(const HfTokenizerJson& json) { return RulesReader(json).read(); }

}  // namespace carat
