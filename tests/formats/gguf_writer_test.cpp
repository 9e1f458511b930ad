#include "formats/gguf_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "os/file.h"
#include "raw_gguf.h"

namespace carat {
namespace {

#define ASSERT_OK(expression)                     \
  do {                                            \
    const Status status_of = (expression);        \
    ASSERT_TRUE(status_of.ok()) << status_of.message(); \
  } while (false)

class Writer : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "gguf_writer_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/out.gguf";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<std::byte> data(std::uint64_t bytes, int seed) {
    std::vector<std::byte> made(bytes);
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(seed));
    }
    return made;
  }

  Budget budget_{64 << 20};
  std::string folder_, path_;
};

/// Writes a file with a value of every kind and three tensors in uneven pieces.
void write_sample(const std::string& path, Budget& budget, std::uint32_t alignment,
                  const std::vector<std::vector<std::byte>>& tensors) {
  Result<GgufWriter> made = GgufWriter::create(path, budget, alignment);
  ASSERT_TRUE(made.ok()) << made.status().message();
  GgufWriter writer = std::move(made).value();
  ASSERT_OK(writer.add_string("general.architecture", "gemma3"));
  ASSERT_OK(writer.add_boolean("boolean", true));
  ASSERT_OK(writer.add_u32("u32", 4000000000u));
  ASSERT_OK(writer.add_i32("i32", -5));
  ASSERT_OK(writer.add_u64("u64", 1ull << 50));
  ASSERT_OK(writer.add_f32("f32", 0.1f));
  const std::array<std::string_view, 3> words{"one", "", "\xe4\xb8\x96"};
  ASSERT_OK(writer.add_strings("words", words));
  const std::array<float, 3> scores{1.5f, -2.0f, 0.0f};
  ASSERT_OK(writer.add_numbers("scores", NumberList(NumberType::f32, std::as_bytes(std::span(scores)))));
  const std::array<std::int16_t, 2> shorts{-300, 7};
  ASSERT_OK(writer.add_numbers("shorts", NumberList(NumberType::i16, std::as_bytes(std::span(shorts)))));
  ASSERT_OK(writer.add_tensor("a", DType::q4_k, std::array<std::uint64_t, 2>{512, 3}));
  ASSERT_OK(writer.add_tensor("b", DType::f32, std::array<std::uint64_t, 1>{5}));
  ASSERT_OK(writer.add_tensor("c", DType::bf16, std::array<std::uint64_t, 3>{4, 2, 2}));
  ASSERT_OK(writer.begin_data());
  for (const auto& tensor : tensors) {
    for (std::size_t at = 0; at < tensor.size(); at += 100) {
      ASSERT_OK(writer.write(std::span(tensor).subspan(at, std::min<std::size_t>(100, tensor.size() - at))));
    }
  }
  ASSERT_FALSE(std::filesystem::exists(path));
  ASSERT_OK(writer.finish());
}

TEST_F(Writer, WhatIsWrittenIsRead) {
  const std::vector<std::vector<std::byte>> tensors{data(6 * 144, 1), data(20, 2), data(32, 3)};
  for (const std::uint32_t alignment : {32u, 64u, 16384u}) {
    std::filesystem::remove(path_);
    write_sample(path_, budget_, alignment, tensors);
    Result<GgufFile> result = read_gguf(path_, budget_);
    ASSERT_TRUE(result.ok()) << result.status().message();
    const GgufFile& file = *result;
    EXPECT_EQ(file.version, 3u);
    EXPECT_EQ(file.alignment, alignment);
    EXPECT_EQ(*file.meta.string("general.architecture").value(), "gemma3");
    EXPECT_EQ(file.meta.boolean("boolean").value(), true);
    EXPECT_EQ(file.meta.integer("u32").value(), 4000000000);
    EXPECT_EQ(file.meta.integer("i32").value(), -5);
    EXPECT_EQ(file.meta.integer("u64").value(), std::int64_t{1} << 50);
    EXPECT_EQ(file.meta.real("f32").value(), static_cast<double>(0.1f));
    const StringList words = *file.meta.strings("words").value();
    EXPECT_EQ(copies(words),
              (std::vector<std::string>{"one", "", "\xe4\xb8\x96"}));
    EXPECT_EQ(file.meta.numbers("scores").value()->real(1), -2.0);
    EXPECT_EQ(file.meta.numbers("shorts").value()->integer(0), -300);
    EXPECT_EQ(file.meta.numbers("shorts").value()->type(), NumberType::i16);

    const Result<File> raw = File::open(path_);
    ASSERT_TRUE(raw.ok());
    const std::array<Shape, 3> shapes{Shape{3, 512}, Shape{1, 5}, Shape{4, 4}};
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const TensorEntry& entry = file.tensors.entries()[i];
      EXPECT_EQ(entry.name, std::string(1, static_cast<char>('a' + i)));
      EXPECT_EQ(entry.shape, shapes[i]);
      EXPECT_EQ(entry.offset % alignment, 0u);
      std::vector<std::byte> bytes(entry.bytes);
      ASSERT_OK(raw.value().read(entry.offset, bytes));
      EXPECT_EQ(bytes, tensors[i]);
    }
  }
}

TEST_F(Writer, CopiesTheKeysOfAnotherFile) {
  write_sample(path_, budget_, 32, {data(6 * 144, 1), data(20, 2), data(32, 3)});
  const Result<GgufFile> first = read_gguf(path_, budget_);
  ASSERT_TRUE(first.ok());
  const std::string copy_path = folder_ + "/copy.gguf";
  Result<GgufWriter> writer = GgufWriter::create(copy_path, budget_);
  ASSERT_TRUE(writer.ok());
  for (const auto& [key, value] : first.value().meta.values()) ASSERT_OK(writer->add(key, value));
  ASSERT_OK(writer->add("exact", MetaValue(0.1)));
  ASSERT_OK(writer->add("large", MetaValue(std::int64_t{-1} << 40)));
  ASSERT_OK(writer->add("huge", MetaValue(std::numeric_limits<double>::max())));
  ASSERT_OK(writer->begin_data());
  ASSERT_OK(writer->finish());
  const Result<GgufFile> copy = read_gguf(copy_path, budget_);
  ASSERT_TRUE(copy.ok()) << copy.status().message();
  EXPECT_EQ(copy.value().meta.values().size(), first.value().meta.values().size() + 3);
  EXPECT_EQ(copy.value().meta.integer("i32").value(), -5);
  EXPECT_EQ(copy.value().meta.real("exact").value(), 0.1);
  EXPECT_EQ(copy.value().meta.real("huge").value(), std::numeric_limits<double>::max());
  EXPECT_EQ(copy.value().meta.integer("large").value(), std::int64_t{-1} << 40);
  EXPECT_EQ(copy.value().meta.strings("words").value()->size(), 3u);
  EXPECT_EQ(copy.value().meta.numbers("scores").value()->type(), NumberType::f32);
}

TEST_F(Writer, AnUnfinishedFileLeavesNothing) {
  {
    Result<GgufWriter> writer = GgufWriter::create(path_, budget_);
    ASSERT_TRUE(writer.ok());
    ASSERT_OK(writer->add_tensor("t", DType::f32, std::array<std::uint64_t, 1>{4}));
    ASSERT_OK(writer->begin_data());
    ASSERT_OK(writer->write(data(10, 0)));
    EXPECT_EQ(writer->finish().message(), "tensor 't' lacks 6 of its 16 bytes");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_EQ(budget_.report().reserved, 0u);
}

TEST_F(Writer, RefusesWhatAFileCannotHold) {
  Result<GgufWriter> writer = GgufWriter::create(path_, budget_);
  ASSERT_TRUE(writer.ok());
  const std::array<std::uint64_t, 1> four{4};
  ASSERT_OK(writer->add_u32("k", 1));
  EXPECT_EQ(writer->add_string("k", "v").message(), "key 'k' appears twice");
  EXPECT_EQ(writer->add_u32("a\nb", 1).message(),
            "key 'a\\x0ab' cannot be written to GGUF: names are 1 to 65535 bytes of UTF-8 without control characters");
  ASSERT_OK(writer->add_tensor("t", DType::f32, four));
  EXPECT_EQ(writer->add_tensor("t", DType::f32, four).message(), "tensor 't' appears twice");
  EXPECT_EQ(writer->add_tensor("q", DType::q8_0, four).message(),
            "tensor 'q': rows of 4 elements are not a multiple of the 32 in a block of q8_0");
  EXPECT_EQ(writer->add_tensor("e", DType::f32, std::array<std::uint64_t, 2>{4, 0}).message(),
            "tensor 'e' is empty or too large");
  EXPECT_EQ(writer->add_tensor("o", DType::f32, std::array<std::uint64_t, 2>{1ull << 40, 1ull << 40}).message(),
            "tensor 'o' is empty or too large");
  EXPECT_EQ(writer->add_tensor(std::string(65, 'n'), DType::f32, four).code(), StatusCode::invalid);
}

TEST_F(Writer, CallsOutOfOrderAreErrors) {
  Result<GgufWriter> writer = GgufWriter::create(path_, budget_);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(writer->write(data(4, 0)).code(), StatusCode::internal);
  EXPECT_EQ(writer->finish().code(), StatusCode::internal);
  ASSERT_OK(writer->add_tensor("t", DType::f32, std::array<std::uint64_t, 1>{1}));
  ASSERT_OK(writer->begin_data());
  EXPECT_EQ(writer->begin_data().code(), StatusCode::internal);
  EXPECT_EQ(writer->add_u32("late", 1).code(), StatusCode::internal);
  EXPECT_EQ(writer->write(data(5, 0)).message(), "tensor 't' has 4 bytes, 1 more were written");
  ASSERT_OK(writer->write(data(4, 0)));
  ASSERT_OK(writer->finish());
}

TEST_F(Writer, KeysBeyondTheBudgetAreRefused) {
  Budget small(64 << 10);
  Result<GgufWriter> writer = GgufWriter::create(path_, small);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(writer->add_string("k", std::string(100000, 'x')).code(), StatusCode::no_fit);
}

}  // namespace
}  // namespace carat
