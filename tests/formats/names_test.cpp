#include "formats/names.h"

#include <gtest/gtest.h>

namespace carat {
namespace {

TEST(Names, AcceptsUtf8AndRefusesWhatIsNot) {
  EXPECT_TRUE(is_printable_name("blk.0.attn_q.weight"));
  EXPECT_TRUE(is_printable_name("Köln 世界 😀"));
  for (const std::string_view bad :
       {"", "a\n", "\x7f", "\xff", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe4\xb8", "\x80", "\xc3("}) {
    EXPECT_FALSE(is_printable_name(bad)) << escaped(bad);
  }
  EXPECT_TRUE(is_printable_name("\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"));
}

TEST(Names, EscapesOneByteAtATime) {
  EXPECT_EQ(escaped("a\n\xff\xe4\xb8"), "a\\x0a\\xff\\xe4\\xb8");
  EXPECT_EQ(escaped("世"), "世");
  EXPECT_EQ(escaped(std::string(500, 'x')), std::string(80, 'x') + "...");
}

}  // namespace
}  // namespace carat
