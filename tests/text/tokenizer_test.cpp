// Tokenizers over tiny vocabularies written here: the rules one by one, and random ones against the definitions.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/naive_tokenizer.h"
#include "text/pre_tokenizer.h"
#include "text/vocabulary_builder.h"

namespace carat {
namespace {

using testing::gemma_like;
using testing::gpt2_like;
using testing::kFirstPiece;
using testing::TestPiece;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kByte = 4;  // id of <0x00> in gemma_like

/// A tokenizer with its budget, or a failed test.
struct Made {
  explicit Made(const MetaMap& meta) {
    auto result = Tokenizer::create(meta, budget);
    EXPECT_TRUE(result.ok()) << result.status().message();
    if (result.ok()) tokenizer = std::move(*result);
    EXPECT_EQ(budget.report()[MemoryCategory::tokenizer].reserved, Tokenizer::bytes_needed(meta));
  }
  Ids encode(std::string_view text, bool special = false) const {
    auto ids = tokenizer->encode(text, {.special = special});
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    return ids.ok() ? *ids : Ids();
  }
  const Tokenizer* operator->() const { return tokenizer.get(); }
  Budget budget;
  std::unique_ptr<Tokenizer> tokenizer;
};

const std::vector<TestPiece> kAbc{{"a", -1}, {"b", -2}, {"c", -3}, {"\xE2\x96\x81", -4}, {"ab", -5}, {"bc", -6}};
constexpr std::int32_t kA = kFirstPiece, kB = kA + 1, kC = kA + 2, kSpace = kA + 3, kAB = kA + 4, kBC = kA + 5;

TEST(SentencePieceBpe, HighestScoreFirst) {
  const Made made(gemma_like(kAbc));
  EXPECT_EQ(made.encode("abc"), (Ids{kAB, kC}));
  EXPECT_EQ(made.encode("bca"), (Ids{kBC, kA}));
  EXPECT_EQ(made.encode(""), Ids{});
  EXPECT_EQ(made.encode(" a b"), (Ids{kSpace, kA, kSpace, kB}));
}

TEST(SentencePieceBpe, LeftmostOnTies) {
  const Made made(gemma_like({{"a", -1}, {"aa", -2}, {"b", -3}, {"ab", -2}, {"aaa", -9}}));
  EXPECT_EQ(made.encode("aaaa"), (Ids{kFirstPiece + 1, kFirstPiece + 1}));
  EXPECT_EQ(made.encode("aab"), (Ids{kFirstPiece + 1, kFirstPiece + 2}));
  EXPECT_EQ(made.encode("aaa"), (Ids{kFirstPiece + 4}));
}

TEST(SentencePieceBpe, BytesForWhatNoPieceSpells) {
  const Made made(gemma_like(kAbc));
  const Ids ids = made.encode("a\xC3\xA9\xFF\xE4");
  EXPECT_EQ(ids, (Ids{kA, kByte + 0xC3, kByte + 0xA9, kByte + 0xFF, kByte + 0xE4}));
  EXPECT_EQ(made->decode(ids), "a\xC3\xA9\xFF\xE4");
  EXPECT_EQ(made.encode("<0x41>").size(), 6U) << "the name of a byte piece is ordinary text";
}

TEST(SentencePieceBpe, UserDefinedPiecesAreCutFirst) {
  const Made made(gemma_like({{"a", -1},
                              {"\n", -1000, 4},
                              {"\n\n", -1000, 4},
                              {"\n\n\n", -1000, 4},
                              {"a\n", 0},
                              {"  ", -1000, 4},
                              {"   ", -1000, 4},
                              {"\xE2\x96\x81", -2},
                              {"<b>", -1000, 4}}));
  constexpr std::int32_t kLine = kFirstPiece + 1, kTwo = kFirstPiece + 5;
  EXPECT_EQ(made.encode("a\na"), (Ids{kFirstPiece, kLine, kFirstPiece})) << "never merged with what is around";
  EXPECT_EQ(made.encode("\n\n\n\n\n"), (Ids{kLine + 2, kLine + 1})) << "longest first";
  EXPECT_EQ(made.encode("    "), (Ids{kTwo + 1, kTwo + 2}));
  EXPECT_EQ(made.encode("a<b>a"), (Ids{kFirstPiece, kFirstPiece + 8, kFirstPiece}));
  EXPECT_EQ(made.encode("<b").size(), 2U);
  EXPECT_EQ(made.encode("\xE2\x96\x81\xE2\x96\x81"), (Ids{kTwo})) << "U+2581 is a space";
  EXPECT_EQ(made->decode(made.encode("  a\n\n a")), "  a\n\n a");
}

TEST(SentencePieceBpe, ControlPiecesOnlyOnRequest) {
  const Made made(gemma_like({{"a", -1}, {"<turn>", 0, 3}, {"<turn", -2, 4}, {"<", -3}, {"t", -4}, {"<t", -5}}));
  EXPECT_EQ(made.encode("a<turn>", true), (Ids{kFirstPiece, kFirstPiece + 1}));
  EXPECT_EQ(made.encode("a<turn>"), (Ids{kFirstPiece, kFirstPiece + 2, kByte + '>'})) << "the user-defined one";
  EXPECT_EQ(made.encode("<bos>a", true), (Ids{2, kFirstPiece}));
  EXPECT_EQ(made.encode("<bos>").size(), 5U);
  std::string out;
  made->append_piece_bytes(kFirstPiece + 1, false, out);
  EXPECT_EQ(out, "");
  made->append_piece_bytes(kFirstPiece + 1, true, out);
  made->append_piece_bytes(-1, true, out);
  made->append_piece_bytes(1 << 30, true, out);
  EXPECT_EQ(out, "<turn>");
}

TEST(SentencePieceBpe, SpacePrefix) {
  MetaMap meta = gemma_like({{"a", -1},
                             {"\xE2\x96\x81", -2},
                             {"\xE2\x96\x81"
                              "a",
                              -3}});
  meta.set("tokenizer.ggml.add_space_prefix", true);
  const Made made(meta);
  EXPECT_EQ(made.encode("aa"), (Ids{kFirstPiece + 2, kFirstPiece}));
  EXPECT_EQ(made.encode(""), Ids{});
  EXPECT_EQ(made.encode("<bos>a", true), (Ids{2, kFirstPiece})) << "nothing goes before a control piece";
  EXPECT_EQ(made->decode(made.encode("aa")), "aa");
  EXPECT_EQ(made->decode(made.encode(" a")), " a");
  EXPECT_EQ(made->decode(Ids{2, kFirstPiece + 2}), "a") << "BOS stands before the prefix";
  EXPECT_EQ(made->decode(Ids{kFirstPiece, kFirstPiece + 2}), "a a");
}

TEST(SentencePieceBpe, SpacePrefixDefaultsByArchitecture) {
  for (const auto& [architecture, tokens] : {std::pair("gemma3", 1U), {"llama", 2U}}) {
    MetaMap source = gemma_like({{"a", -1}, {"\xE2\x96\x81", -2}});
    MetaMap meta;
    for (const auto& [key, value] : source.values()) {
      if (key != "tokenizer.ggml.add_space_prefix") meta.set(key, value);
    }
    meta.set_string("general.architecture", architecture);
    EXPECT_EQ(Made(meta).encode("a").size(), tokens) << architecture;
  }
}

TEST(SentencePieceBpe, UnknownPieceWhenBytesAreMissing) {
  MetaMap meta;
  meta.set_string("tokenizer.ggml.model", "llama");
  testing::set_pieces(meta, {{"<unk>", 0, 2}, {"a", -1}, {"<0xC3>", 0, 6}});
  const Made without(meta);
  const auto failed = without->encode("a\xC3\xA9");
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.status().message().find("\\xC3\\xA9"), std::string::npos) << failed.status().message();
  meta.set("tokenizer.ggml.unknown_token_id", std::int64_t{0});
  const Made made(meta);
  EXPECT_EQ(made.encode("a\xC3\xA9\xC3"), (Ids{1, 0, 2})) << "one unknown a character, not a byte";
  EXPECT_EQ(made->decode(Ids{1, 0}), "a\xEF\xBF\xBD");
}

TEST(SentencePieceBpe, RandomVocabulariesAgreeWithTheDefinition) {
  std::mt19937 random(1);
  const std::string alphabet[] = {"a", "b", "c", " ", "\xC3\xA9", "\xE4\xB8\xAD", "\n"};
  const auto text_of = [&](std::uint_fast32_t most) {
    std::string text;
    for (auto i = 1 + random() % most; i > 0; --i) text += alphabet[random() % std::size(alphabet)];
    return text;
  };
  std::size_t merged = 0;
  for (int round = 0; round < 300; ++round) {
    testing::NaiveSentencePiece naive;
    std::vector<TestPiece> pieces;
    const auto add = [&](const std::string& text, std::int32_t kind, float score) {
      if (naive.normal.contains(text) || naive.cut.contains(text)) return;
      const auto id = kFirstPiece + static_cast<std::int32_t>(pieces.size());
      pieces.push_back({text, score, kind});
      if (kind == 4)
        naive.cut[text] = id;
      else
        naive.normal[text] = {id, score};
    };
    for (auto i = random() % 4; i > 0; --i) add(text_of(4), 4, -1000);
    for (const std::string& letter : alphabet) {
      if (random() % 8 != 0) add(letter, 1, -100);
    }
    // Scores tie often, and are not monotonous in the length: intermediate pieces may be missing.
    for (auto i = random() % 40; i > 0; --i) add(text_of(5), 1, -static_cast<float>(random() % 8));
    const Made made(gemma_like(pieces));
    for (int sample = 0; sample < 20; ++sample) {
      const std::string text = text_of(40);
      const Ids ids = made.encode(text);
      ASSERT_EQ(ids, naive.encode(text)) << "round " << round << ": " << text;
      ASSERT_EQ(made->decode(ids), text);
      merged += text.size() - ids.size();
    }
  }
  EXPECT_GT(merged, 10000U) << "the test must see merges";
}

TEST(SentencePieceBpe, LongWordsNeedTheBudget) {
  const MetaMap meta = gemma_like({{"a", -1}, {"aa", -2}, {"aaaa", -3}});
  const std::uint64_t needed = Tokenizer::bytes_needed(meta);
  Budget budget(needed + (1 << 20));
  auto made = Tokenizer::create(meta, budget);
  ASSERT_TRUE(made.ok());
  const auto fits = (*made)->encode(std::string(10'000, 'a'));
  ASSERT_TRUE(fits.ok());
  EXPECT_EQ(fits->size(), 2500U);
  const auto refused = (*made)->encode(std::string(100'000, 'a'));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::no_fit);
  EXPECT_EQ(budget.report()[MemoryCategory::tokenizer].reserved, needed) << "scratch is given back";
  // With breaks between words no long run ever forms.
  std::string words;
  for (int i = 0; i < 100'000; ++i) words += "aaa ";
  EXPECT_TRUE((*made)->encode(words).ok());
}

TEST(ByteLevelBpe, MergesByRankWithinWords) {
  const Made made(gpt2_like({{"l", "l"}, {"h", "e"}, {" ", "he"}, {"he", "ll"}, {" he", "ll"}, {"o", " "}}, "gpt-2"));
  EXPECT_EQ(made.encode("hello hello"), (Ids{259, 'o', 260, 'o'}));
  EXPECT_EQ(made->decode(Ids{259, 'o', 260, 'o'}), "hello hello");
  EXPECT_EQ(made.encode(" hell"), (Ids{260}));
  EXPECT_EQ(made.encode("<|end|>").size(), 7U);
  EXPECT_EQ(made.encode("<|end|>", true), (Ids{262}));
  EXPECT_EQ(made->eos_ids(), (Ids{262}));
  EXPECT_FALSE(made->add_bos());
  EXPECT_EQ(made->piece(260), " hell");
  EXPECT_EQ(made->id_of(" hell"), 260);
}

TEST(ByteLevelBpe, UserDefinedPiecesAreLiteral) {
  const Made made(gpt2_like({{"a", "b"}}, "qwen2", {{"<tool call>", 0, 4}}));
  EXPECT_EQ(made.encode("ab<tool call>ab"), (Ids{256, 258, 256}));
  EXPECT_EQ(made->decode(Ids{258}), "<tool call>");
}

TEST(ByteLevelBpe, WholeWordsFirstForLlama3) {
  const std::vector<TestPiece> extra{{"abc", 0, 1}};
  EXPECT_EQ(Made(gpt2_like({{"a", "b"}}, "llama-bpe", extra)).encode("abc"), (Ids{258}));
  EXPECT_EQ(Made(gpt2_like({{"a", "b"}}, "qwen2", extra)).encode("abc"), (Ids{256, 'c'}));
}

TEST(ByteLevelBpe, RandomMergesAgreeWithTheDefinition) {
  std::mt19937 random(2);
  const auto pre = PreTokenizer::named("smollm");
  ASSERT_TRUE(pre.ok());
  std::size_t merged = 0;
  for (int round = 0; round < 200; ++round) {
    testing::NaiveByteLevel naive;
    std::vector<std::pair<std::string, std::string>> merges;
    std::vector<std::string> texts{"a", "b", "c", " ", "\xC3", "\xA9", "1"};
    for (int byte = 0; byte < 256; ++byte) naive.id[std::string(1, static_cast<char>(byte))] = byte;
    for (auto i = random() % 40; i > 0; --i) {
      const std::string left = texts[random() % texts.size()];
      const std::string right = texts[random() % texts.size()];
      if (naive.rank.contains({left, right}) || left.size() + right.size() > 12) continue;
      naive.rank[{left, right}] = merges.size();
      naive.id.emplace(left + right, 256 + static_cast<std::int32_t>(merges.size()));
      merges.emplace_back(left, right);
      texts.push_back(left + right);
    }
    const Made made(gpt2_like(merges, "smollm"));
    for (int sample = 0; sample < 20; ++sample) {
      std::string text;
      for (auto i = random() % 40; i > 0; --i) text += texts[random() % 7];
      Ids expected;
      for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = pre->word_end(text, begin);
        naive.merge(text.substr(begin, end - begin), expected);
        begin = end;
      }
      const Ids ids = made.encode(text);
      ASSERT_EQ(ids, expected) << "round " << round << ": " << ::testing::PrintToString(text);
      ASSERT_EQ(made->decode(ids), text);
      merged += text.size() - ids.size();
    }
  }
  EXPECT_GT(merged, 2000U) << "the test must see merges";
}

TEST(Tokenizer, SinkFailureEndsTheEncoding) {
  const Made made(gemma_like({{"a", -1}}));
  int calls = 0;
  const Status status = made->encode(std::string(100'000, 'a'), {}, [&](std::span<const std::int32_t>) {
    ++calls;
    return invalid("enough");
  });
  EXPECT_EQ(status.message(), "enough");
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace carat
