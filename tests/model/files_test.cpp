// One model in the forms that files come in, through the whole engine: parts, shards, and every block type.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "support/model_runner.h"
#include "support/patched_model.h"
#include "support/random_blocks.h"

namespace carat::test {
namespace {

namespace fs = std::filesystem;
using Logits = std::vector<std::vector<float>>;

const std::vector<std::int32_t> kIds = {2, 7, 1, 9, 30, 4, 4, 11, 25, 3};

Logits logits_of(const std::string& path, const std::string& isa = "ref") {
  const auto runner = ModelRunner::load(path, {.isa = isa});
  return runner == nullptr ? Logits() : runner->run_chunked(runner->open(), kIds, 64);
}

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("carat_files_" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

std::vector<std::byte> bytes_of(const TensorEntry& entry, const std::string& path) {
  std::vector<std::byte> bytes(entry.bytes);
  const auto file = File::open(path);
  EXPECT_TRUE(file.ok() && file->read(entry.offset, bytes).ok());
  return bytes;
}

/// Part `number` of `count`: every count'th tensor; all keys are in the first.
Status write_part(const std::string& source, const GgufFile& file, std::uint32_t number, std::uint32_t count,
                  const std::string& path) {
  Budget budget;
  CARAT_ASSIGN(GgufWriter writer, GgufWriter::create(path, budget));
  for (const auto& [key, value] : file.meta.values()) {
    if (number == 0 && key != "general.alignment") CARAT_TRY(writer.add(key, value));
  }
  CARAT_TRY(writer.add_u32("split.no", number));
  CARAT_TRY(writer.add_u32("split.count", count));
  CARAT_TRY(writer.add_i32("split.tensors.count", static_cast<std::int32_t>(file.tensors.entries().size())));
  std::vector<const TensorEntry*> mine;
  for (const TensorEntry& entry : file.tensors.entries()) {
    if (static_cast<std::uint32_t>(&entry - file.tensors.entries().data()) % count == number) mine.push_back(&entry);
  }
  for (const TensorEntry* entry : mine) {
    std::vector<std::uint64_t> dimensions = {entry->shape.columns};
    if (entry->shape.rows > 1) dimensions.push_back(entry->shape.rows);
    CARAT_TRY(writer.add_tensor(entry->name, entry->type, dimensions));
  }
  CARAT_TRY(writer.begin_data());
  for (const TensorEntry* entry : mine) CARAT_TRY(writer.write(bytes_of(*entry, source)));
  return writer.finish();
}

TEST(Files, ASplitGgufIsTheSameModel) {
  const std::string whole = CARAT_FIXTURES "/tiny/gemma3-gqa42/model.gguf";
  Budget budget;
  const auto file = read_gguf(whole, budget);
  ASSERT_TRUE(file.ok());
  const Folder folder;
  for (std::uint32_t part = 0; part < 3; ++part) {
    const std::string path = folder / ("m-0000" + std::to_string(part + 1) + "-of-00003.gguf");
    const Status written = write_part(whole, *file, part, 3, path);
    ASSERT_TRUE(written.ok()) << written.message();
  }
  const Logits expected = logits_of(whole);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(logits_of(folder / "m-00001-of-00003.gguf"), expected);
}

/// The tensors of a single safetensors file in `shards` files with an index.
Status write_shards(const std::string& source, std::size_t shards, const Folder& folder) {
  Budget budget;
  CARAT_ASSIGN(const TensorFiles files, read_safetensors(source, budget));
  nlohmann::json map;
  for (std::size_t shard = 0; shard < shards; ++shard) {
    const std::string name = "model-0000" + std::to_string(shard + 1) + "-of-0000" + std::to_string(shards) +
                             ".safetensors";
    CARAT_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(folder / name, budget));
    std::vector<const TensorEntry*> mine;
    for (std::size_t i = shard; i < files.tensors.entries().size(); i += shards) {
      mine.push_back(&files.tensors.entries()[i]);
      map[mine.back()->name] = name;
    }
    for (const TensorEntry* entry : mine) {
      std::vector<std::uint64_t> dimensions;
      if (entry->shape.rows > 1) dimensions.push_back(entry->shape.rows);
      dimensions.push_back(entry->shape.columns);
      CARAT_TRY(writer.add_tensor(entry->name, entry->type, dimensions));
    }
    CARAT_TRY(writer.begin_data());
    for (const TensorEntry* entry : mine) CARAT_TRY(writer.write(bytes_of(*entry, source)));
    CARAT_TRY(writer.finish());
  }
  std::ofstream(folder / "model.safetensors.index.json") << nlohmann::json{{"metadata", {}}, {"weight_map", map}};
  return ok_status();
}

TEST(Files, ShardsAreTheSameModel) {
  const std::string whole = CARAT_FIXTURES "/tiny/qwen2-untied";
  const Folder folder;
  fs::copy_file(whole + "/config.json", folder / "config.json");
  const Status written = write_shards(whole + "/model.safetensors", 4, folder);
  ASSERT_TRUE(written.ok()) << written.message();
  const Logits expected = logits_of(whole);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(logits_of(folder / ""), expected);
}

class FileTypes : public ::testing::TestWithParam<DType> {};

/// The attention output, the one matrix of a tiny model with whole blocks of 256, as random blocks of the type, against
/// the same values as float32.
TEST_P(FileTypes, GiveTheModelOfTheirValues) {
  const DType type = GetParam();
  const std::string source = CARAT_FIXTURES "/tiny/qwen3-untied/model.gguf";
  const auto with_output = [&](bool as_float) {
    return PatchedModel(source, [&](std::vector<TensorCopy>& tensors) {
      std::mt19937 random(3);
      TensorCopy& output = find_tensor(tensors, "blk.0.attn_output.weight");
      const std::uint64_t values = output.data.size() / sizeof(float);
      ASSERT_EQ(output.columns() % 256, 0U);
      std::vector<std::byte> blocks = random_blocks(type, row_bytes(type, values), random);
      if (as_float) {
        dequantize_row(type, blocks.data(), values, output.floats());
      } else {
        output.type = type;
        output.data = std::move(blocks);
      }
    });
  };
  const PatchedModel floats = with_output(true);
  const PatchedModel packed = with_output(false);
  const Logits expected = logits_of(floats.path());
  const Logits unpatched = logits_of(source);
  ASSERT_EQ(expected.size(), kIds.size());
  EXPECT_NE(expected, unpatched);
  for (const KernelTable* table : usable_kernel_tables()) {
    const Logits logits = logits_of(packed.path(), std::string(table->name));
    ASSERT_EQ(logits.size(), expected.size());
    for (std::size_t row = 0; row < logits.size(); ++row) {
      float largest = 1;
      for (const float value : expected[row]) largest = std::max(largest, std::abs(value));
      for (std::size_t i = 0; i < logits[row].size(); ++i) {
        // The same values, summed in another order: the limit of the goldens' ref table.
        ASSERT_NEAR(logits[row][i], expected[row][i], 1e-4F * largest) << table->name << " row " << row;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FileTypes,
                         ::testing::Values(DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0, DType::q2_k,
                                           DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_nl,
                                           DType::iq4_xs),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace carat::test
