#include "os/sha256.h"

#include <gtest/gtest.h>

#include <fstream>

#include "os/fake_root.h"

namespace carat {
namespace {

// The digests of an empty file and of "abc" in FIPS 180-2, and what `git hash-object` says of the same files.
TEST(Digests, AreThePublishedOnes) {
  const FakeRoot root;
  const std::string path = root.path() + "/file";
  const auto digest = [&](const std::string& text, auto of) {
    std::ofstream(path, std::ios::binary) << text;
    return of(File::open(path).value()).value();
  };
  EXPECT_EQ(digest("", sha256), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc", sha256), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("", git_blob_id), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(digest("abc", git_blob_id), "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f");
}

}  // namespace
}  // namespace carat
