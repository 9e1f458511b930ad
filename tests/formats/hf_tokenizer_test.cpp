#include "formats/hf_tokenizer.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace carat {
namespace {

struct Outcome {
  Status status;
  MetaMap meta;
  std::uint64_t reserved = 0;
};

Outcome read(const std::string& text, Budget& budget, MetaMap meta = {}) {
  const MemorySource source("tokenizer.json", std::as_bytes(std::span(text)));
  Outcome outcome{.status = {}, .meta = std::move(meta)};
  outcome.status = add_tokenizer_json(source, outcome.meta, budget);
  outcome.reserved = budget.report().reserved;
  return outcome;
}

std::string message_of(const std::string& text) {
  Budget budget;
  const Outcome outcome = read(text, budget);
  if (outcome.status.ok()) return "accepted";
  EXPECT_EQ(outcome.reserved, 0U);
  EXPECT_EQ(outcome.status.message().rfind("tokenizer.json: ", 0), 0U) << outcome.status.message();
  for (const char c : outcome.status.message()) EXPECT_GE(c, 0x20);
  return outcome.status.message();
}

#define EXPECT_REFUSED(text, part) \
  EXPECT_NE(message_of(text).find(part), std::string::npos) << message_of(text)

/// A byte-level file of the pieces a, b, ab; `model` and `sections` are added members.
std::string byte_level(const std::string& vocab = R"("a":0,"b":1,"ab":2)", const std::string& merges = R"("a b")",
                       const std::string& model = "", const std::string& sections = "",
                       const std::string& pre = R"({"type":"ByteLevel","add_prefix_space":false})") {
  return R"({"pre_tokenizer":)" + pre + sections + R"(,"model":{"type":"BPE")" + model + R"(,"vocab":{)" + vocab +
         R"(},"merges":[)" + merges + "]}}";
}

/// A SentencePiece-like file: <unk> 0, the byte pieces 1 to 256, then `vocab` from 257 on.
std::string sentencepiece_like(const std::string& vocab, const std::string& merges, const std::string& sections = "") {
  std::string bytes = R"("<unk>":0)";
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    bytes += std::string(R"(,"<0x)") + kHex[byte >> 4] + kHex[byte & 15] + ">\":" + std::to_string(byte + 1);
  }
  return R"({"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"})" + sections +
         R"(,"model":{"type":"BPE","unk_token":"<unk>","byte_fallback":true,"vocab":{)" + bytes + vocab +
         R"(},"merges":[)" + merges + "]}}";
}

std::vector<std::string> strings(const MetaMap& meta, const char* key) {
  std::vector<std::string> all;
  const auto list = meta.strings(key);
  EXPECT_TRUE(list.ok() && list->has_value());
  if (list.ok() && list->has_value()) {
    for (const std::string_view text : **list) all.emplace_back(text);
  }
  return all;
}

std::vector<double> numbers(const MetaMap& meta, const char* key) {
  std::vector<double> all;
  const auto list = meta.numbers(key);
  EXPECT_TRUE(list.ok() && list->has_value());
  for (std::uint64_t i = 0; list.ok() && i < (*list)->size(); ++i) all.push_back((*list)->real(i));
  return all;
}

TEST(HfTokenizer, ByteLevelKeys) {
  Budget budget;
  const Outcome outcome = read(
      byte_level(R"("ab":2,"b":1,"a":0)", R"(["a","b"])", "",
                 R"(,"added_tokens":[{"id":4,"content":"<|end|>","special":true},
                     {"id":6,"content":"<tool>","special":false},{"id":1,"content":"b","special":false}],
                     "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|end|>",
                     "type_id":0}},{"Sequence":{"id":"A","type_id":0}}]})"),
      budget);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(strings(outcome.meta, "tokenizer.ggml.tokens"),
            (std::vector<std::string>{"a", "b", "ab", "[PAD3]", "<|end|>", "[PAD5]", "<tool>"}));
  EXPECT_EQ(numbers(outcome.meta, "tokenizer.ggml.token_type"), (std::vector<double>{1, 4, 1, 5, 3, 5, 4}));
  EXPECT_EQ(strings(outcome.meta, "tokenizer.ggml.merges"), (std::vector<std::string>{"a b"}));
  EXPECT_EQ(**outcome.meta.string("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(**outcome.meta.string("tokenizer.ggml.pre"), "gpt-2");
  EXPECT_EQ(**outcome.meta.integer("tokenizer.ggml.bos_token_id"), 4);
  EXPECT_TRUE(**outcome.meta.boolean("tokenizer.ggml.add_bos_token"));
  EXPECT_FALSE(outcome.meta.contains("tokenizer.ggml.scores"));
}

TEST(HfTokenizer, ScoresAreMinusTheRankOfTheFirstMerge) {
  Budget budget;
  // abc is made by (ab, c) and by (a, bc), which stand together.
  const std::string vocab = R"(,"a":257,"b":258,"c":259,"ab":260,"bc":261,"abc":262,"▁":263)";
  const Outcome outcome = read(sentencepiece_like(vocab, R"("b c","a b",["ab","c"],["a","bc"])"), budget);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  const std::vector<double> scores = numbers(outcome.meta, "tokenizer.ggml.scores");
  EXPECT_EQ(std::vector<double>(scores.begin() + 257, scores.end()), (std::vector<double>{-4, -4, -4, -1, 0, -2, -4}));
  EXPECT_EQ(**outcome.meta.string("tokenizer.ggml.model"), "llama");
  EXPECT_EQ(**outcome.meta.integer("tokenizer.ggml.unknown_token_id"), 0);
  EXPECT_FALSE(**outcome.meta.boolean("tokenizer.ggml.add_space_prefix"));
  EXPECT_EQ(numbers(outcome.meta, "tokenizer.ggml.token_type")[0], 2);
  EXPECT_EQ(numbers(outcome.meta, "tokenizer.ggml.token_type")[1], 6);
}

TEST(HfTokenizer, MergesThatNoScoreStandsForAreRefused) {
  const std::string vocab = R"(,"a":257,"b":258,"c":259,"ab":260,"bc":261,"abc":262)";
  EXPECT_REFUSED(sentencepiece_like(vocab, R"("a b","b c","ab c")"), "lists 3 of the 4 ways");
  EXPECT_REFUSED(sentencepiece_like(vocab, R"("a b","ab c","b c","a bc")"), "with others between");
  EXPECT_REFUSED(sentencepiece_like(vocab, R"("a x")"), "names a piece that is not there");
}

TEST(HfTokenizer, RowsOfTheModelDecideTheSize) {
  const std::string text = byte_level(R"("a":0,"b":1,"ab":2)", R"("a b")", "",
                                      R"(,"added_tokens":[{"id":3,"content":"<image>","special":true}])");
  for (const auto& [rows, pieces] : {std::pair(std::int64_t{3}, 3U), std::pair(std::int64_t{6}, 6U)}) {
    Budget budget;
    MetaMap meta;
    meta.set("config.text_config.vocab_size", rows);
    const Outcome outcome = read(text, budget, std::move(meta));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(strings(outcome.meta, "tokenizer.ggml.tokens").size(), pieces);
  }
  Budget budget;
  MetaMap meta;
  meta.set("config.vocab_size", std::int64_t{2});
  EXPECT_NE(read(text, budget, std::move(meta)).status.message().find("vocab_size 2"), std::string::npos);
}

TEST(HfTokenizer, UnknownKindsAreNamedWithTheKnownOnes) {
  EXPECT_REFUSED(R"({"model":{"type":"Unigram","vocab":[["a",0.5]]}})", "model.type 'Unigram' is not known; known is");
  EXPECT_REFUSED(R"({"model":{"type":"WordPiece","vocab":{"a":0}}})", "'WordPiece'");
  EXPECT_REFUSED(byte_level("", "", "", "",
                            R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\w+"},
                            "behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,
                            "use_regex":false}]})"),
                 "Split by '\\w+' is not known; known are gpt-2: 's|'t");
  EXPECT_REFUSED(byte_level("", "", "", "", R"({"type":"ByteLevel","add_prefix_space":true})"), "add_prefix_space");
  EXPECT_REFUSED(byte_level("", "", "", "", R"({"type":"Whitespace"})"), "neither byte-level");
  EXPECT_REFUSED(byte_level("", "", R"(,"ignore_merges":true)"), "ignore_merges");
  EXPECT_REFUSED(byte_level("", "", R"(,"dropout":0.1)"), "dropout");
  EXPECT_REFUSED(byte_level("", "", R"(,"end_of_word_suffix":"</w>")"), "end_of_word_suffix");
  EXPECT_REFUSED(byte_level("", "", "", R"(,"normalizer":{"type":"Lowercase"})"), "normalizer 'Lowercase'");
  EXPECT_REFUSED(byte_level("", "", "", R"(,"added_tokens":[{"id":3,"content":"x","lstrip":true}])"), "lstrip");
}

TEST(HfTokenizer, HostileFilesAreOneError) {
  EXPECT_REFUSED("", "not JSON");
  EXPECT_REFUSED("{", "not JSON");
  EXPECT_REFUSED("[]", "expected an object");
  EXPECT_REFUSED("7", "expected an object");
  EXPECT_REFUSED("{} {}", "not JSON");
  EXPECT_REFUSED("{\"a\":\"\xFF\"}", "not JSON");
  EXPECT_REFUSED(std::string(100000, '['), "expected an object");
  EXPECT_REFUSED(R"({"x":)" + std::string(100000, '['), "nested more than");
  EXPECT_REFUSED(R"({"x":")" + std::string(100000, 'y') + "\"}", "a string or number of more than");
  EXPECT_REFUSED(R"({"x":)" + std::string(100000, '1') + "}", "a string or number of more than");
  EXPECT_REFUSED(byte_level(R"("a":-1)"), "not a whole number of 0 or more");
  EXPECT_REFUSED(byte_level(R"("a":1.5)"), "not a whole number of 0 or more");
  EXPECT_REFUSED(byte_level(R"("a":"0")"), "not a whole number of 0 or more");
  EXPECT_REFUSED(byte_level(R"("a":4294967296)"), "is not below");
  EXPECT_REFUSED(byte_level(R"("a":99999999999999999999)"), "not a whole number of 0 or more");
  EXPECT_REFUSED(byte_level(R"("a":0,"b":0)"), "id 0 stands for 'a' and for 'b'");
  EXPECT_REFUSED(byte_level(R"("a":{})"), "model.vocab holds");
  EXPECT_REFUSED(byte_level("", ""), "there are no pieces");
  EXPECT_REFUSED(byte_level(R"("a":0)", R"("ab")"), "two pieces with one space");
  EXPECT_REFUSED(byte_level(R"("a":0)", R"("a b c")"), "two pieces with one space");
  EXPECT_REFUSED(byte_level(R"("a":0)", R"(["a"])"), "not a pair");
  EXPECT_REFUSED(byte_level(R"("a":0)", R"(["a","b","c"])"), "not a pair");
  EXPECT_REFUSED(byte_level(R"("a":0)", R"([["a","b"]])"), "model.merges");
  EXPECT_REFUSED(byte_level(R"("a":0)", "7"), "not a pair");
  EXPECT_REFUSED(byte_level(R"("a":0)", "", "", R"(,"added_tokens":[{"id":1}])"), "lacks id or content");
  EXPECT_REFUSED(byte_level(R"("a":0)", "", "", R"(,"added_tokens":[{"id":0,"content":"b"}])"), "stands for");
  EXPECT_REFUSED(byte_level(R"("a":0)", "", "", R"(,"added_tokens":[{"id":-1,"content":"b"}])"), "added_tokens: an id");
  EXPECT_REFUSED(sentencepiece_like(R"(,"a":999999999)", ""), "is not below");
}

TEST(HfTokenizer, EveryPrefixOfAFileIsRefused) {
  const std::string whole = byte_level(R"("a":0,"b":1,"ab":2)", R"("a b")", "",
                                       R"(,"added_tokens":[{"id":3,"content":"<x>","special":true}])");
  EXPECT_EQ(message_of(whole), "accepted");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(message_of(whole.substr(0, length)), "accepted") << length;
  }
}

TEST(HfTokenizer, ManyPiecesStayInTheBudget) {
  std::string vocab = R"("a":0)";
  for (int i = 1; i < 50000; ++i) vocab += ",\"piece" + std::to_string(i) + "\":" + std::to_string(i);
  const std::string text = byte_level(vocab, "");
  Budget budget;
  const Outcome outcome = read(text, budget);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_GT(outcome.reserved, 50000U * 20);  // the lists
  Budget small(std::uint64_t{1} << 20);
  EXPECT_EQ(read(text, small).status.code(), StatusCode::no_fit);
  EXPECT_EQ(small.report().reserved, 0U);
}

TEST(HfTokenizer, FolderWithoutATokenizerAddsNothing) {
  Budget budget;
  MetaMap meta;
  EXPECT_TRUE(add_hf_tokenizer("/nonexistent", meta, budget).ok());
  EXPECT_TRUE(add_hf_special_ids(meta).ok());
  EXPECT_TRUE(meta.values().empty());
}

}  // namespace
}  // namespace carat
