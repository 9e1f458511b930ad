#include "os/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "os/fake_root.h"

namespace carat {
namespace {

class Files : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return root_.path() + "/" + name; }
  std::string text_of(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t count() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(root_.path()), {}));
  }
  FakeRoot root_;
};

TEST_F(Files, ReadsAtOffsets) {
  root_.write("/a", "0123456789");
  const File file = std::move(File::open(path("a"))).value();
  EXPECT_EQ(file.bytes(), 10U);
  std::array<std::byte, 4> bytes{};
  ASSERT_TRUE(file.read(3, bytes).ok());
  EXPECT_EQ(bytes[0], std::byte{'3'});
  EXPECT_EQ(bytes[3], std::byte{'6'});
  const Status missing = file.read(8, bytes);
  EXPECT_EQ(missing.code(), StatusCode::io);
  EXPECT_EQ(missing.message(), path("a") + ": ends at byte 10: 2 bytes are missing");
}

TEST_F(Files, AFileThatShrinksAfterOpeningIsAnError) {
  root_.write("/a", std::string(100, 'x'));
  const File file = std::move(File::open(path("a"))).value();
  ASSERT_EQ(truncate(path("a").c_str(), 50), 0);
  std::array<std::byte, 100> bytes{};
  EXPECT_FALSE(file.read(0, bytes).ok());
}

TEST_F(Files, OnlyRegularFilesAndWithoutBlocking) {
  EXPECT_EQ(File::open(path("none")).status().message(), path("none") + ": cannot open: No such file or directory");
  EXPECT_EQ(File::open(root_.path()).status().message(), root_.path() + ": is a directory, expected a regular file");
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(File::open(path("fifo")).status().message(), path("fifo") + ": is a FIFO, expected a regular file");
  EXPECT_EQ(File::open("/dev/null").status().message(), "/dev/null: is a device, expected a regular file");
}

/// The superuser reads everything, so there the file is opened as somebody else.
TEST_F(Files, OneThatMayNotBeReadSaysSo) {
  root_.write("/a", "0123456789");
  ASSERT_EQ(chmod(root_.path().c_str(), 0755), 0);
  ASSERT_EQ(chmod(path("a").c_str(), 0), 0);
  const bool superuser = geteuid() == 0;
  constexpr uid_t kNobody = 65534;
  if (superuser) {
    if (seteuid(kNobody) != 0) GTEST_SKIP() << "this machine has no user " << kNobody;
  }
  const auto file = File::open(path("a"));
  if (superuser) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(file.status().message(), path("a") + ": cannot open: Permission denied");
}

TEST_F(Files, MovesKeepTheFileOpen) {
  root_.write("/a", "abc");
  File first = std::move(File::open(path("a"))).value();
  File second = std::move(first);
  std::array<std::byte, 3> bytes{};
  EXPECT_TRUE(second.read(0, bytes).ok());
  first = std::move(second);
  EXPECT_TRUE(first.read(0, bytes).ok());
}

TEST_F(Files, ATargetAppearsOnlyWhenCommitted) {
  root_.write("/target", "old");
  {
    AtomicFile file = std::move(AtomicFile::create(path("target"))).value();
    ASSERT_TRUE(file.write("new ").ok());
    ASSERT_TRUE(file.write("text").ok());
    EXPECT_EQ(text_of("target"), "old");
    ASSERT_TRUE(file.commit().ok());
  }
  EXPECT_EQ(text_of("target"), "new text");
  EXPECT_EQ(count(), 1U);
}

TEST_F(Files, WhatIsNotCommittedLeavesNothing) {
  root_.write("/target", "old");
  {
    AtomicFile file = std::move(AtomicFile::create(path("target"))).value();
    ASSERT_TRUE(file.write("new").ok());
    const AtomicFile moved = std::move(file);
  }
  EXPECT_EQ(text_of("target"), "old");
  EXPECT_EQ(count(), 1U);
}

TEST_F(Files, AFolderThatIsNotThereIsAnErrorAtOnce) {
  const Status status = AtomicFile::create(path("none/target")).status();
  EXPECT_EQ(status.code(), StatusCode::io);
  EXPECT_NE(status.message().find("No such file or directory"), std::string::npos);
}

TEST_F(Files, ReadTextStopsAtTheLimitAndAtTheSinksError) {
  std::string text;
  const auto append = [&](std::string_view block) {
    text.append(block);
    return ok_status();
  };
  root_.write("/a", std::string(100'000, 'x'));
  EXPECT_TRUE(read_text(path("a"), 100'000, append).ok());
  EXPECT_EQ(text, std::string(100'000, 'x'));
  EXPECT_EQ(read_text(path("a"), 99'999, append).code(), StatusCode::invalid);
  EXPECT_EQ(read_text(path("none"), 10, append).code(), StatusCode::io);
  EXPECT_FALSE(read_text(root_.path(), 10, append).ok()) << "a folder";
  EXPECT_EQ(read_text(path("a"), 100'000, [](std::string_view) { return no_fit("full"); }).code(), StatusCode::no_fit);
  root_.write("/empty", "");
  text.clear();
  EXPECT_TRUE(read_text(path("empty"), 0, append).ok());
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace carat
