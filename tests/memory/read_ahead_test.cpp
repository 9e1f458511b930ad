// Blocks come in order and whole, through two buffers, whatever the pace; a short file is reported, not waited for.
#include "memory/read_ahead.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

namespace carat {
namespace {

constexpr std::uint64_t kFileBytes = 1 << 20;

/// A file whose byte i is (i * 31 + i / 256) mod 256.
class ReadAheadFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "read_ahead_" + std::to_string(::getpid());
    std::ofstream file(path_, std::ios::binary);
    for (std::uint64_t i = 0; i < kFileBytes; ++i) file.put(static_cast<char>(byte_at(i)));
    file.close();
    auto opened = File::open(path_);
    ASSERT_TRUE(opened.ok());
    file_ = std::move(opened).value();
  }
  void TearDown() override { std::filesystem::remove(path_); }
  static unsigned byte_at(std::uint64_t i) { return static_cast<unsigned>((i * 31 + i / 256) % 256); }

  static void expect_part(const std::byte* block, const FilePart& part) {
    for (std::uint64_t i = 0; i < part.bytes; ++i) {
      ASSERT_EQ(std::to_integer<unsigned>(block[part.at + i]), byte_at(part.offset + i)) << i;
    }
  }

  std::string path_;
  File file_;
  Budget budget_;
};

TEST_F(ReadAheadFile, BlocksComeInOrder) {
  auto reader = ReadAhead::create(budget_, file_, 8192, 5);
  ASSERT_TRUE(reader.ok());
  std::mt19937 random(3);
  std::uint64_t bytes = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<FileBlock> blocks(1 + random() % 5);
    for (FileBlock& block : blocks) {
      block.parts[0] = {random() % (kFileBytes - 4096), 1 + random() % 4000, 0};
      block.parts[1] = {random() % (kFileBytes - 4096), random() % 4000, 4096};
      bytes += block.parts[0].bytes + block.parts[1].bytes;
      (*reader)->push(block);
    }
    for (const FileBlock& block : blocks) {
      const std::byte* at = (*reader)->take();
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      for (const FilePart& part : block.parts) expect_part(at, part);
      (*reader)->release();
    }
  }
  EXPECT_TRUE((*reader)->status().ok());
  EXPECT_EQ((*reader)->bytes_read(), bytes);
}

TEST_F(ReadAheadFile, ABlockInUseIsLeftAlone) {
  auto reader = ReadAhead::create(budget_, file_, 4096, 4);
  ASSERT_TRUE(reader.ok());
  for (std::uint64_t i = 0; i < 4; ++i) (*reader)->push({{{{i * 4096, 4096, 0}, {}}}});
  const std::byte* first = (*reader)->take();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time to read too far
  expect_part(first, {0, 4096, 0});
  (*reader)->release();
  for (std::uint64_t i = 1; i < 4; ++i) {
    expect_part((*reader)->take(), {i * 4096, 4096, 0});
    (*reader)->release();
  }
}

TEST_F(ReadAheadFile, WhatIsMissingIsSaidOnceAndStays) {
  auto reader = ReadAhead::create(budget_, file_, 4096, 4);
  ASSERT_TRUE(reader.ok());
  (*reader)->push({{{{kFileBytes - 100, 4096, 0}, {}}}});
  (*reader)->push({{{{0, 4096, 0}, {}}}});
  (*reader)->take();
  (*reader)->release();
  EXPECT_NE((*reader)->status().message().find("3996 bytes are missing"), std::string::npos)
      << (*reader)->status().message();
  expect_part((*reader)->take(), {0, 4096, 0});
  (*reader)->release();
  EXPECT_FALSE((*reader)->status().ok());
}

TEST_F(ReadAheadFile, EndsWithBlocksAnnouncedAndInUse) {
  for (int taken = 0; taken < 3; ++taken) {
    auto reader = ReadAhead::create(budget_, file_, 4096, 8);
    ASSERT_TRUE(reader.ok());
    for (std::uint64_t i = 0; i < 8; ++i) (*reader)->push({{{{i * 4096, 4096, 0}, {}}}});
    if (taken > 0) (*reader)->take();
    if (taken > 1) (*reader)->release();
  }
}

TEST_F(ReadAheadFile, BuffersAreReservedFirst) {
  Budget small(8192);
  EXPECT_EQ(ReadAhead::create(small, file_, 8192, 2).status().code(), StatusCode::no_fit);
}

}  // namespace
}  // namespace carat
