// Time of a token's mask over a model's vocabulary, and of taking the token.
//   grammar_masks MODEL.gguf [--walks 20] [--tokens 200]
// For each grammar a text is read token by token (as its tokenizer cuts it) with an empty cache, once more with the
// cache it left, and then random texts of the grammar are written: what they meet is partly new. Then the masks are
// handed out once more for the same random texts: all warm.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "grammar/matcher.h"
#include "memory/resident.h"
#include "model/model_file.h"

namespace carat {
namespace {

/// CPU time of this thread: what else runs on the machine does not count.
struct Clock {
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
  }
};

double microseconds(double since) { return Clock::now() - since; }

/// Times in µs.
class Times {
 public:
  void add(double time) { times_.push_back(time); }
  std::string text() {
    if (times_.empty()) return "-";
    std::sort(times_.begin(), times_.end());
    double sum = 0;
    for (const double time : times_) sum += time;
    const auto at = [&](double share) {
      return times_[static_cast<std::size_t>(share * static_cast<double>(times_.size() - 1))];
    };
    return fmt::format("mean {:7.1f}  median {:7.1f}  p99 {:7.1f}  max {:7.1f}  ({} tokens)",
                       sum / static_cast<double>(times_.size()), at(0.5), at(0.99), at(1), times_.size());
  }

 private:
  std::vector<double> times_;
};

struct Case {
  const char* name;
  Result<Grammar::Pointer> grammar;
  std::string text;
};

std::vector<Case> cases() {
  std::vector<Case> made;
  made.push_back(
      {"JSON mode", Grammar::json_object(),
       R"({"name": "Ada Lovelace", "born": 1815, "fields": ["mathematics", "computing"], "parents": [{"name": "Lord Byron", "poet": true}, {"name": "Anne Isabella", "poet": false}], "note": "She wrote the first \"program\".\n"})"});
  made.push_back(
      {"schema: person", Grammar::from_json_schema(R"({"type": "object", "properties": {"name": {"type": "string"},
      "age": {"type": "integer", "minimum": 0, "maximum": 150}, "email": {"type": "string", "pattern": "^[a-z0-9.]+@[a-z0-9.]+$"},
      "tags": {"type": "array", "items": {"enum": ["red", "green", "blue", "yellow"]}, "maxItems": 5},
      "address": {"type": "object", "properties": {"street": {"type": "string", "maxLength": 60}, "zip": {"type": "string", "pattern": "^\\d{5}$"}},
      "required": ["street", "zip"]}}, "required": ["name", "age", "email", "address"]})"),
       R"({"name": "Ada Lovelace", "age": 36, "email": "ada.lovelace@example.org", "tags": ["red", "blue"], "address": {"street": "12 St James's Square", "zip": "12345"}})"});
  made.push_back(
      {"schema: tree",
       Grammar::from_json_schema(R"({"$defs": {"node": {"type": "object", "properties": {"label": {"type": "string"},
      "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["label", "children"]}}, "$ref": "#/$defs/node"})"),
       R"({"label": "root", "children": [{"label": "left branch", "children": [{"label": "leaf", "children": []}]}, {"label": "right", "children": [{"label": "x", "children": [{"label": "deep", "children": []}]}]}]})"});
  made.push_back(
      {"schema: maxLength 2000",
       Grammar::from_json_schema(
           R"({"type": "object", "properties": {"summary": {"type": "string", "minLength": 10, "maxLength": 2000}}, "required": ["summary"]})"),
       R"({"summary": "A long answer about the sea, the whale and the ship, which goes on for a while and says nothing that matters here."})"});
  made.push_back({"regex: words", Grammar::from_regex("([A-Za-z]+[ ,.]+)*[A-Za-z]+\\."),
                  "Call me Ishmael. Some years ago, never mind how long precisely, having little money."});
  made.push_back(
      {"GBNF: arithmetic",
       Grammar::from_gbnf(
           "root ::= expr \"=\" num\nexpr ::= term ([-+*/] term)*\nterm ::= num | \"(\" expr \")\"\nnum ::= [0-9]+"),
       "(12+34)*(5-6*(7+8))/9=4242"});
  return made;
}

/// Reads `tokens` and times each step.
Status read(TokenMasks& masks, const Grammar::Pointer& grammar, std::span<const std::int32_t> tokens, Times& of_mask,
            Times& of_token) {
  CARAT_ASSIGN(GrammarMatcher matcher, GrammarMatcher::create(masks, grammar, {}));
  for (const std::int32_t token : tokens) {
    auto start = Clock::now();
    CARAT_ASSIGN(const auto mask, matcher.mask());
    const double time = microseconds(start);
    of_mask.add(time);
    if (time > 1000) fmt::print("  {:.0f} us before {} '{}'\n", time, token, masks.trie().tokenizer().piece(token));
    if ((mask[static_cast<std::size_t>(token) / 64] >> (token % 64) & 1) == 0) {
      return internal_error(fmt::format("token {} is masked", token));
    }
    start = Clock::now();
    CARAT_TRY(matcher.accept(token, 1'000'000).status());
    of_token.add(microseconds(start));
  }
  return ok_status();
}

/// A random text of at most `most` tokens: half of the tokens are chosen among plain letters, as a model would.
Result<std::vector<std::int32_t>> random_text(TokenMasks& masks, const Grammar::Pointer& grammar, unsigned seed,
                                              int most, Times& of_mask) {
  CARAT_ASSIGN(GrammarMatcher matcher, GrammarMatcher::create(masks, grammar, {}));
  std::mt19937 random(seed);
  std::vector<std::int32_t> text;
  for (int left = most; left > 0 && !matcher.finished(); --left) {
    const auto start = Clock::now();
    auto mask = matcher.mask();
    of_mask.add(microseconds(start));
    if (!mask.ok()) return mask.status();
    const auto choose = [&](std::span<const std::uint64_t> bits) {
      std::vector<std::int32_t> allowed;
      for (std::size_t word = 0; word < bits.size(); ++word) {
        for (std::uint64_t rest = bits[word]; rest != 0; rest &= rest - 1)
          allowed.push_back(static_cast<std::int32_t>(word * 64) + std::countr_zero(rest));
      }
      return allowed.empty() ? kNoToken : allowed[random() % allowed.size()];
    };
    std::int32_t token = choose(*mask);
    if (token == kNoToken) break;
    CARAT_ASSIGN(const bool taken, matcher.accept(token, static_cast<std::uint32_t>(left - 1)));
    if (!taken) {
      CARAT_ASSIGN(mask, matcher.closing_mask());
      token = choose(*mask);
      if (token == kNoToken) break;
      CARAT_TRY(matcher.accept(token, static_cast<std::uint32_t>(left - 1)).status());
    }
    text.push_back(token);
  }
  return text;
}

Status run(const std::string& path, int walks, int tokens) {
  Budget budget;
  CARAT_ASSIGN(const ModelFile file, ModelFile::open(path, budget));
  CARAT_ASSIGN(const auto tokenizer, file.tokenizer(budget));
  if (tokenizer == nullptr) return invalid(path + ": no tokenizer");
  auto start = Clock::now();
  CARAT_ASSIGN(const auto trie, TokenTrie::create(*tokenizer, budget));
  fmt::print("{} tokens, {} of them plain; the trie takes {:.1f} ms and {} bytes, the cache {} bytes\n",
             tokenizer->size(), trie.plain_end(), microseconds(start) / 1000,
             TokenMasks::trie_bytes(static_cast<std::uint64_t>(tokenizer->size())),
             TokenMasks::cache_bytes(static_cast<std::uint64_t>(tokenizer->size())));
  for (Case& one : cases()) {
    if (!one.grammar.ok()) return std::move(one.grammar).status().with_context(one.name);
    CARAT_ASSIGN(const auto masks, TokenMasks::create(*tokenizer, budget));
    CARAT_ASSIGN(const std::vector<std::int32_t> text, tokenizer->encode(one.text));
    fmt::print("{}: {} instructions, {} bytes\n", one.name, (*one.grammar)->program().code.size(),
               (*one.grammar)->bytes());
    Times cold;
    Times warm;
    Times walked;
    Times again;
    Times taken;
    Times discarded;
    CARAT_TRY(read(*masks, *one.grammar, text, cold, discarded));
    CARAT_TRY(read(*masks, *one.grammar, text, warm, taken));
    std::vector<std::vector<std::int32_t>> texts;
    for (int walk = 0; walk < walks; ++walk) {
      CARAT_ASSIGN(auto made, random_text(*masks, *one.grammar, static_cast<unsigned>(walk), tokens, walked));
      texts.push_back(std::move(made));
    }
    for (const auto& made : texts) CARAT_TRY(read(*masks, *one.grammar, made, again, discarded));
    fmt::print("  mask, cold    {}\n  mask, warm    {}\n  mask, random  {}\n  mask, again   {}\n  take a token  {}\n",
               cold.text(), warm.text(), walked.text(), again.text(), taken.text());
    const MaskCounts& counts = masks->counts();
    fmt::print("  {} masks asked, {} cached, {} derived, {} walked, {} clears\n", counts.asked, counts.cached,
               counts.derived, counts.walked, counts.clears);
  }
  return ok_status();
}

}  // namespace
}  // namespace carat

int main(int argc, char** argv) {
  int walks = 20;
  int tokens = 200;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    const std::string_view value = argv[i + 1];
    std::from_chars(value.data(), value.data() + value.size(), option == "--walks" ? walks : tokens);
  }
  if (argc < 2) {
    fmt::print(stderr, "usage: grammar_masks MODEL.gguf [--walks 20] [--tokens 200]\n");
    return 2;
  }
  const carat::Status status = carat::run(argv[1], walks, tokens);
  if (!status.ok()) fmt::print(stderr, "{}\n", status.message());
  return carat::exit_code(status.code());
}
