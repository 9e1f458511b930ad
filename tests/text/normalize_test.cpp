#include "text/normalize.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace carat {
namespace {

std::string nfc(std::string_view text) {
  Budget budget;
  Buffer<char> copy;
  const auto composed = to_nfc(text, budget, copy);
  EXPECT_TRUE(composed.ok()) << composed.status().message();
  return composed.ok() ? std::string(*composed) : std::string();
}

TEST(Normalize, ComposesAsUnicodeSays) {
  std::ifstream in(CARAT_FIXTURES "/tokenizer/nfc.json");
  const auto json = nlohmann::json::parse(in);
  ASSERT_GT(json["cases"].size(), 2000U);
  for (const auto& entry : json["cases"]) {
    const auto text = entry[0].get<std::string>();
    EXPECT_EQ(nfc(text), entry[1].get<std::string>()) << entry[0];
    EXPECT_EQ(nfc("\xE4\xB8\xAD" + text + "!"), "\xE4\xB8\xAD" + entry[1].get<std::string>() + "!") << entry[0];
    EXPECT_EQ(nfc(entry[1].get<std::string>()), entry[1].get<std::string>()) << entry[1];
  }
}

TEST(Normalize, ComposedTextIsUsedInPlace) {
  Budget budget;
  Buffer<char> copy;
  for (const std::string_view text : {"", "plain", "d\xC3\xA9j\xC3\xA0", "\xE4\xB8\xAD\xE6\x96\x87", "\xEA\xB0\x80"}) {
    const auto composed = to_nfc(text, budget, copy);
    ASSERT_TRUE(composed.ok());
    EXPECT_EQ(composed->data(), text.data());
    EXPECT_EQ(composed->size(), text.size());
  }
  EXPECT_TRUE(copy.empty());
}

TEST(Normalize, BytesThatAreNotUtf8Stay) {
  const std::string broken =
      "\xFF"
      "e\xCC\x81\xCC"
      "e\xCC\x81\xE1\x84";
  EXPECT_EQ(nfc(broken), "\xFF\xC3\xA9\xCC\xC3\xA9\xE1\x84");
}

/// A library's insertion sort would take minutes for these.
TEST(Normalize, LongRunsOfMarksAreSorted) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\xCC\x81" : "\xCC\xA3";  // above (230), below (220)
  const std::string composed = nfc(text);
  EXPECT_EQ(composed.substr(0, 3), "\xE1\xBA\xA1");  // a with the dot below
  EXPECT_EQ(composed.size(), 3 + 2 * 199'999U);
  EXPECT_EQ(composed.substr(3, 2), "\xCC\xA3");
  EXPECT_EQ(composed.substr(composed.size() - 2), "\xCC\x81");
}

TEST(Normalize, ATextWithoutRoomIsRefused) {
  Budget budget(100'000);
  Buffer<char> copy;
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "\xCC\x81";
  const auto composed = to_nfc(text, budget, copy);
  ASSERT_FALSE(composed.ok());
  EXPECT_EQ(composed.status().code(), StatusCode::no_fit);
}

}  // namespace
}  // namespace carat
