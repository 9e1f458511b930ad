#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>

#include "text/stop_strings.h"

namespace carat {
namespace {

const std::string kFffd(kReplacementUtf8);

TEST(Utf8, DecodesAndRefuses) {
  EXPECT_EQ(decode_character("a").code, U'a');
  EXPECT_EQ(decode_character("\xC3\xA9x").code, char32_t{0xE9});
  EXPECT_EQ(decode_character("\xF0\x9F\x98\x80").code, char32_t{0x1F600});
  EXPECT_EQ(decode_character("\xF4\x8F\xBF\xBF").code, char32_t{0x10FFFF});
  for (const std::string bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                                "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3(", "\xE2\x82("}) {
    EXPECT_FALSE(decode_character(bad).valid) << testing::PrintToString(bad);
    EXPECT_FALSE(decode_character(bad).cut) << testing::PrintToString(bad);
    EXPECT_FALSE(is_valid_utf8(bad));
  }
  for (const std::string cut : {"\xC3", "\xE2\x82", "\xF0\x9F", "\xF0\x9F\x98", "\xE0", "\xED"}) {
    EXPECT_TRUE(decode_character(cut).cut) << testing::PrintToString(cut);
  }
}

TEST(Utf8, Sanitizes) {
  std::uint64_t replaced = 9;
  EXPECT_EQ(sanitize_utf8("plain \xC3\xA9 text of some length", &replaced), "plain \xC3\xA9 text of some length");
  EXPECT_EQ(replaced, 0U);
  // The example of Unicode, table 3-8: maximal subparts.
  EXPECT_EQ(sanitize_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", &replaced),
            "a" + kFffd + kFffd + kFffd + "b" + kFffd + "c" + kFffd + kFffd + "d");
  EXPECT_EQ(replaced, 6U);
  EXPECT_EQ(sanitize_utf8("x\xF0\x9F", nullptr), "x" + kFffd);
  EXPECT_EQ(sanitize_utf8("", &replaced), "");
}

TEST(Utf8Stream, HoldsSplitCharacters) {
  Utf8Stream stream;
  std::string out;
  stream.push("\xF0\x9F", out);
  EXPECT_EQ(out, "");
  stream.push("\x98\x80", out);
  EXPECT_EQ(out, "\xF0\x9F\x98\x80");
  stream.finish(out);
  EXPECT_EQ(out, "\xF0\x9F\x98\x80");
}

TEST(Utf8Stream, OrphanShowsAtTheEndOnly) {
  Utf8Stream stream;
  std::string out;
  stream.push("ok\xF0\x9F", out);
  EXPECT_EQ(out, "ok");
  stream.finish(out);
  EXPECT_EQ(out, "ok" + kFffd);
  stream.finish(out);
  EXPECT_EQ(out, "ok" + kFffd);
}

TEST(Utf8Stream, AnyCuttingGivesTheSanitizedText) {
  std::mt19937 random(7);
  const std::string parts[] = {"a",        "\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "\xC3",
                               "\xF0\x9F", "\x80",     "\xFF",         "\xE0\x80",         "\xED\xA0\x80"};
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (auto i = random() % 12; i > 0; --i) bytes += parts[random() % std::size(parts)];
    Utf8Stream stream;
    std::string out;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t take = std::min<std::size_t>(1 + random() % 4, bytes.size() - at);
      stream.push(std::string_view(bytes).substr(at, take), out);
      ASSERT_TRUE(is_valid_utf8(out));
      at += take;
    }
    stream.finish(out);
    ASSERT_EQ(out, sanitize_utf8(bytes, nullptr)) << testing::PrintToString(bytes);
  }
}

/// What is shown when `pieces` are pushed one by one, and then the text ends.
std::string shown(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStrings stop_strings(stops);
  std::string out;
  for (const std::string& piece : pieces) {
    if (stop_strings.push(piece, out)) return out;
  }
  stop_strings.finish(out);
  return out;
}

TEST(StopStrings, ServerCases) {
  EXPECT_EQ(shown({"DEFGHIJ"}, {"DEF", "G", "HI", "J"}), "");
  EXPECT_EQ(shown({"\n", "Alice:"}, {" Alice", "!"}), " Alice!");
}

TEST(StopStrings, EmitsAsSoonAsItCan) {
  StopStrings stop_strings({"</s>", "STOP"});
  std::string out;
  EXPECT_FALSE(stop_strings.push("abc<", out));
  EXPECT_EQ(out, "abc");
  EXPECT_FALSE(stop_strings.push("/", out));
  EXPECT_EQ(out, "abc");
  EXPECT_FALSE(stop_strings.push("p>ST", out));
  EXPECT_EQ(out, "abc</p>");
  EXPECT_TRUE(stop_strings.push("OP and more", out));
  EXPECT_EQ(out, "abc</p>");
  EXPECT_EQ(stop_strings.found(), "STOP");
  EXPECT_TRUE(stop_strings.push("x", out));
  stop_strings.finish(out);
  EXPECT_EQ(out, "abc</p>");
}

TEST(StopStrings, Corners) {
  EXPECT_EQ(shown({}, {"a", "b"}), "ab");
  EXPECT_EQ(shown({""}, {"a", "b"}), "ab");
  EXPECT_EQ(shown({"aab"}, {"aa", "aab", "x"}), "aa");  // the match begins inside what was held
  EXPECT_EQ(shown({"abab"}, {"aba", "cabab"}), "abac");
  EXPECT_EQ(shown({"bc", "abcd"}, {"xabcd"}), "xa");  // the one that ends first
  EXPECT_EQ(shown({"c", "abc"}, {"xab", "c"}), "x");  // of those that end together the longest
  EXPECT_EQ(shown({"\xE4\xB8\xAD"}, {"\xE4\xB8\x80"}), "\xE4\xB8\x80");
}

TEST(StopStrings, AgreesWithASearchHoweverCut) {
  std::mt19937 random(11);
  const auto letters = [&](std::uint_fast32_t most) {
    std::string text;
    for (auto i = random() % (most + 1); i > 0; --i) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::vector<std::string> stops{letters(5), letters(6)};
    const std::string text = letters(20);
    std::size_t first_end = std::string::npos;
    std::size_t begin = text.size();
    for (const std::string& stop : stops) {
      const std::size_t at = stop.empty() ? std::string::npos : text.find(stop);
      if (at == std::string::npos) continue;
      const std::size_t end = at + stop.size();
      if (first_end == std::string::npos || end < first_end || (end == first_end && at < begin)) {
        first_end = end;
        begin = at;
      }
    }
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t take = 1 + random() % 4;
      pieces.push_back(text.substr(at, take));
      at += take;
    }
    stopped += begin < text.size();
    ASSERT_EQ(shown(stops, pieces), text.substr(0, begin)) << text << " | " << stops[0] << " | " << stops[1];
  }
  EXPECT_GT(stopped, 500);
}

}  // namespace
}  // namespace carat
