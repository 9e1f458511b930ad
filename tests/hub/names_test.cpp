// What may be pulled, and which paths of a listing are safe to use.
#include "hub/names.h"

#include <gtest/gtest.h>

#include "hub/listing.h"

namespace carat::test {
namespace {

TEST(PullTargets, NamesRepositoriesAndFiles) {
  const auto name = parse_pull_target("gemma3-270m");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->name, "gemma3-270m");
  EXPECT_FALSE(name->file.empty());
  const auto file = parse_pull_target("hf:owner/Some.Repo-1_x:sub/model.gguf");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->repository, "owner/Some.Repo-1_x");
  EXPECT_EQ(file->file, "sub/model.gguf");
  EXPECT_EQ(file->name, "");
  for (const char* bad : {"", "unknown", "hf:", "hf:a", "hf:a/", "hf:/b", "hf:a/b/c", "hf:../b", "hf:a/..", "hf:a/b c",
                          "hf:a/b?x", "hf:a/b:", "hf:a/b:..", "hf:a/b:/x", "hf:a/b:x//y", "hf:a/b:x\n"}) {
    EXPECT_FALSE(parse_pull_target(bad).ok()) << bad;
  }
  for (const KnownModel& known : known_models()) {
    EXPECT_TRUE(is_safe_path(known.file)) << known.name;
    EXPECT_TRUE(parse_pull_target("hf:" + std::string(known.repository)).ok()) << known.name;
  }
}

TEST(PullTargets, PathsStayBelowTheirFolder) {
  for (const char* good : {"a", "a/b", "a.b", "...", "a b", "\xC3\xB6.gguf"}) EXPECT_TRUE(is_safe_path(good)) << good;
  for (const char* bad : {"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\\b", "a\nb", "a\x7F"}) {
    EXPECT_FALSE(is_safe_path(bad)) << bad;
  }
  EXPECT_EQ(url_path("a b/\xC3\xB6?#%.gguf"), "a%20b/%C3%B6%3F%23%25.gguf");
}

TEST(PullTargets, PartsOfSplitModels) {
  const std::vector<std::string> three{"q/m-00001-of-00003.gguf", "q/m-00002-of-00003.gguf", "q/m-00003-of-00003.gguf"};
  for (const std::string& part : three) EXPECT_EQ(split_parts(part), three);
  for (const char* alone : {"m.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-00001-of-00000.gguf",
                            "m-00001-of-09999.gguf", "m-0001-of-0003.gguf", "-00001-of-00003.gguf"}) {
    EXPECT_EQ(split_parts(alone), std::vector<std::string>{alone});
  }
}

TEST(HubListing, TakesLargeAndSmallFiles) {
  const std::string digest(64, 'a');
  const std::string id(40, 'b');
  const auto listing =
      parse_listing(R"({"sha":")" + id + R"(","siblings":[{"rfilename":"config.json","size":7,"blobId":")" + id +
                    R"("},{"rfilename":"model.safetensors","size":1,"blobId":")" + id + R"(","lfs":{"sha256":")" +
                    digest + R"(","size":9}},{"rfilename":"x/y.bin"},{"rfilename":"LICENSE/x"}]})");
  ASSERT_TRUE(listing.ok()) << listing.status().message();
  EXPECT_EQ(listing->commit, id);
  EXPECT_EQ(listing->files[0].git_id, id);
  EXPECT_EQ(listing->files[1].sha256, digest);
  EXPECT_EQ(listing->files[1].git_id, "") << "that of the pointer is not the file's";
  EXPECT_EQ(listing->files[1].bytes, 9u);
  EXPECT_TRUE(has_model_folder(*listing));
  EXPECT_EQ(folder_files(*listing).size(), 2u);
  EXPECT_FALSE(only_gguf(*listing, "o/r").ok());
  for (const char* bad : {"", "[]", "{}", R"({"siblings":{}})", R"({"siblings":[{"rfilename":"../x"}]})",
                          R"({"siblings":[{"rfilename":"x","lfs":{"sha256":"AA"}}]})"}) {
    EXPECT_FALSE(parse_listing(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace carat::test
