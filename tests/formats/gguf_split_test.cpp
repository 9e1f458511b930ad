#include <gtest/gtest.h>

#include <string>

#include "formats/gguf.h"
#include "raw_files.h"
#include "raw_gguf.h"

namespace carat {
namespace {

/// One part with one F32 tensor of 8 elements.
std::string part(std::uint16_t number, std::uint16_t count, std::int32_t tensors, const std::string& tensor) {
  RawGguf raw = RawGguf().start(1, 3, 3);
  raw.key("split.no", kU16).put(number);
  raw.key("split.count", kU16).put(count);
  raw.key("split.tensors.count", kI32).put(tensors);
  raw.tensor(tensor, {8}, 0, 0);
  return raw.pad_and_data(32).bytes;
}

class GgufSplit : public testing::Test {
 protected:
  GgufSplit() {
    first_ = folder_.write("m-00001-of-00003.gguf", part(0, 3, 3, "a"));
    folder_.write("m-00002-of-00003.gguf", part(1, 3, 3, "b"));
    folder_.write("m-00003-of-00003.gguf", part(2, 3, 3, "c"));
  }
  std::string error(const std::string& path) {
    std::string message = read_gguf(path, budget_).status().message();
    for (std::size_t at = 0; (at = message.find(folder_.path())) != std::string::npos;) {
      message.erase(at, folder_.path().size());
    }
    return message;
  }

  TempFolder folder_;
  std::string first_;
  Budget budget_;
};

TEST_F(GgufSplit, TheFirstPartOpensAll) {
  const auto file = read_gguf(first_, budget_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->tensors.files.size(), 3u);
  EXPECT_EQ(file->tensors.files[2], folder_.path() + "m-00003-of-00003.gguf");
  EXPECT_EQ(file->tensors.find("a")->file, 0u);
  EXPECT_EQ(file->tensors.find("c")->file, 2u);
  EXPECT_EQ(file->meta.integer("split.no").value(), 0);
}

TEST_F(GgufSplit, NamesThePartThatIsMissingOrDisagrees) {
  EXPECT_EQ(error(folder_.path() + "m-00002-of-00003.gguf"),
            "m-00002-of-00003.gguf: is part 2 of 3: open the first, 'm-00001-of-00003.gguf'");
  folder_.write("m-00003-of-00003.gguf", part(1, 3, 3, "c"));
  EXPECT_EQ(error(first_), "m-00003-of-00003.gguf: key 'split.no' is 1, but its name says 2");
  folder_.write("m-00003-of-00003.gguf", part(2, 4, 3, "c"));
  EXPECT_EQ(error(first_), "m-00003-of-00003.gguf: is of a model of 4 parts and 3 tensors, but the first part says 3 parts "
                           "and 3 tensors");
  folder_.write("m-00003-of-00003.gguf", part(2, 3, 3, "b"));
  EXPECT_EQ(error(first_), "m-00003-of-00003.gguf: tensor 'b' appears twice");
  folder_.write("m-00003-of-00003.gguf", "GGUF");
  EXPECT_TRUE(error(first_).starts_with("m-00003-of-00003.gguf: the file is 4 bytes long"));
  std::filesystem::remove(folder_.path() + "m-00003-of-00003.gguf");
  EXPECT_EQ(error(first_), "part 3 of 3: m-00003-of-00003.gguf: cannot open: No such file or directory");
}

TEST_F(GgufSplit, ChecksTheFirstPartsOwnKeys) {
  folder_.write("m-00001-of-00003.gguf", part(0, 3, 4, "a"));
  folder_.write("m-00002-of-00003.gguf", part(1, 3, 4, "b"));
  folder_.write("m-00003-of-00003.gguf", part(2, 3, 4, "c"));
  EXPECT_EQ(error(first_), "m-00001-of-00003.gguf: the 3 parts hold 3 tensors, but key 'split.tensors.count' is 4");
  EXPECT_EQ(error(folder_.write("other.gguf", part(0, 3, 3, "a"))),
            "other.gguf: is part 1 of 3; its name must end in '-00001-of-00003.gguf' for the other parts to be found");
  EXPECT_EQ(error(folder_.write("other.gguf", part(5, 3, 3, "a"))), "other.gguf: key 'split.no' is 5, expected 0 to 2");
  EXPECT_EQ(error(folder_.write("other.gguf", part(0, 0, 3, "a"))),
            "other.gguf: key 'split.count' is 0, expected 1 to 65535");
  EXPECT_EQ(error(folder_.write("other.gguf", part(0, 1, 1, "a"))), "");
}

}  // namespace
}  // namespace carat
