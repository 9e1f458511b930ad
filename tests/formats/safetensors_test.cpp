#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "raw_files.h"

namespace carat {
namespace {

/// `name` as a tensor of a header.
std::string tensor(const std::string& name, const std::string& type, const std::string& shape, std::uint64_t begin,
                   std::uint64_t end) {
  return "\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":[)" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

Status read(const std::string& bytes, Budget& budget, TensorFiles& files) {
  EntryMemory memory(budget, files.directory_memory);
  const MemorySource source("m.safetensors", std::as_bytes(std::span(bytes.data(), bytes.size())));
  return read_safetensors_into(source, budget, memory, files.tensors);
}

std::string error_of(const std::string& bytes) {
  Budget budget;
  TensorFiles files;
  return read(bytes, budget, files).message();
}

TEST(Safetensors, ListsTypesShapesAndOffsets) {
  const std::string header = R"({"__metadata__":{"format":"pt"},)" + tensor("b", "BF16", "[2,3,4]", 24, 72) + "," +
                             tensor("a", "F32", "[6]", 0, 24) + "," + tensor("s", "F16", "[]", 72, 74) + "," +
                             tensor("e", "F32", "[0,4]", 74, 74) + "," + tensor("i", "I64", "[1]", 74, 82) + "}  ";
  Budget budget;
  TensorFiles files;
  ASSERT_EQ(read(safetensors(header, 82), budget, files).message(), "");
  const TensorDir& tensors = files.tensors;
  EXPECT_EQ(tensors.files, std::vector<std::string>{"m.safetensors"});
  ASSERT_EQ(tensors.entries().size(), 5u);
  const TensorEntry& b = *tensors.find("b");
  EXPECT_EQ(b.type, DType::bf16);
  EXPECT_EQ(b.shape, (Shape{6, 4}));
  EXPECT_EQ(b.offset, 8 + header.size() + 24);
  EXPECT_EQ(b.bytes, 48u);
  EXPECT_EQ(tensors.find("a")->shape, (Shape{1, 6}));
  EXPECT_EQ(tensors.find("s")->shape, (Shape{1, 1}));
  EXPECT_EQ(tensors.find("e")->bytes, 0u);
  EXPECT_EQ(tensors.find("i")->type, DType::i64);
  EXPECT_EQ(budget.report().reserved, 0u) << "the header is not kept";
}

TEST(Safetensors, ReadsTheTinyModels) {
  Budget budget;
  const auto files = read_safetensors(CARAT_FIXTURES "/tiny/gemma3-gqa42/model.safetensors", budget);
  ASSERT_TRUE(files.ok()) << files.status().message();
  const TensorEntry* embedding = files->tensors.find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->type, DType::f32);
  EXPECT_EQ(embedding->bytes, embedding->shape.rows * embedding->shape.columns * 4);
}

TEST(Safetensors, RefusesHostileFilesWithOneClearLine) {
  const std::string w = tensor("w", "F32", "[2]", 0, 8);
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "the file is 0 bytes long: 8 of its first 8 bytes are missing"},
      {"abc", "the file is 3 bytes long: 5 of its first 8 bytes are missing"},
      {raw(~std::uint64_t{0}) + "{}",
       "byte 0: the header takes 18446744073709551615 bytes, but only 2 follow: cut, or not a safetensors file"},
      {raw(std::uint64_t{3}) + "{}",
       "byte 0: the header takes 3 bytes, but only 2 follow: cut, or not a safetensors file"},
      {safetensors("", 0), "byte 8: the JSON text ends, expected a value"},
      {safetensors("hello", 0), "byte 8: found 'h', expected a value"},
      {safetensors("[]", 0), "byte 8: found a list, expected an object"},
      {safetensors("{} {}", 0), "byte 11: found '{', expected nothing after the JSON value"},
      {safetensors("{" + w + "," + w + "}", 8), "tensor 'w' at byte 62 appears twice, first at byte 9"},
      {safetensors("{" + w + "," + tensor("v", "F32", "[2]", 4, 12) + "}", 12),
       "tensor 'v' at byte 62: its data_offsets 4 to 12 overlap those of tensor 'w', 0 to 8"},
      {safetensors("{" + w + "," + tensor("v", "F32", "[2]", 12, 20) + "}", 20),
       "tensor 'v' at byte 62: its data starts at 12, and bytes 8 to 12 of the data belong to no tensor"},
      {safetensors("{" + w + "}", 5),
       "tensor 'w' at byte 9: its data_offsets are 0 to 8, but the file has 5 bytes of data: 3 bytes of tensor data are "
       "missing"},
      {safetensors("{" + w + "}", 10), "the last 2 bytes of the file belong to no tensor"},
      {safetensors("{" + tensor("w", "Q7", "[2]", 0, 8) + "}", 8),
       "tensor 'w' at byte 9: byte 22: the type 'Q7' is unknown"},
      {safetensors("{" + tensor("w", "F8_E4M3", "[2]", 0, 2) + "}", 2),
       "tensor 'w' at byte 9: byte 22: the type F8_E4M3 is not supported; F32, F16, BF16, F64 and I8 to I64 are"},
      {safetensors("{" + tensor("w", "F32", "[3]", 0, 8) + "}", 8),
       "tensor 'w' at byte 9: its shape takes 12 bytes, but its data_offsets are 0 to 8"},
      {safetensors("{" + tensor("w", "F32", "[2]", 8, 0) + "}", 8),
       "tensor 'w' at byte 9: its shape takes 8 bytes, but its data_offsets are 8 to 0"},
      {safetensors("{" + tensor("w", "F32", "[4611686018427387904,4]", 0, 8) + "}", 8),
       "tensor 'w' at byte 9: the size of its shape overflows"},
      {safetensors("{" + tensor("w", "F32", "[4611686018427387905]", 0, 4) + "}", 4),
       "tensor 'w' at byte 9: the size of its shape overflows"},
      {safetensors("{" + tensor("w", "F32", "[-2]", 0, 8) + "}", 8),
       "tensor 'w' at byte 9: byte 37: expected a whole number from 0 to 2^63 - 1"},
      {safetensors("{" + tensor("w", "F32", "[2.0]", 0, 8) + "}", 8),
       "tensor 'w' at byte 9: byte 37: expected a whole number from 0 to 2^63 - 1"},
      {safetensors("{" + tensor("w", "F32", "[1,1,1,1,1,1,1,1,2]", 0, 8) + "}", 8),
       "tensor 'w' at byte 9: byte 53: more than 8 numbers"},
      {safetensors(R"({"w":{"dtype":"F32","shape":[2]}})", 8),
       "tensor 'w' at byte 9: it needs dtype, shape and two data_offsets"},
      {safetensors(R"({"w":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8]}})", 8),
       "tensor 'w' at byte 9: byte 28: 'dtype' appears twice"},
      {safetensors(R"({"__metadata__":{"a":1}})", 0), "byte 29: found a number, expected a string"},
      {safetensors("{\"" + std::string(600, 'n') + "\":{}}", 0),
       "byte 9: the tensor name '" + std::string(80, 'n') + "' has 600 bytes, at most 512 are allowed"},
      {safetensors("{\"a\\nb\":{}}", 0), "byte 9: the tensor name 'a\\x0ab' is empty or holds control characters"},
  };
  for (const auto& [bytes, message] : cases) EXPECT_EQ(error_of(bytes), "m.safetensors: " + message);
}

TEST(Safetensors, TakesItsMemoryFromTheBudget) {
  Budget budget(4096);
  TensorFiles files;
  const Status status = read(safetensors("{}" + std::string(8192, ' '), 0), budget, files);
  EXPECT_EQ(status.code(), StatusCode::no_fit);
}

TEST(Safetensors, RefusesWhatIsNoFile) {
  Budget budget;
  EXPECT_EQ(read_safetensors(testing::TempDir(), budget).status().code(), StatusCode::io);
  EXPECT_EQ(read_safetensors("/dev/null", budget).status().code(), StatusCode::io);
}

class ShardedSafetensors : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("one.safetensors", safetensors("{" + tensor("a", "F32", "[1]", 0, 4) + "}", 4));
    folder_.write("two.safetensors",
                  safetensors("{" + tensor("b", "F32", "[1]", 0, 4) + "," + tensor("c", "F32", "[1]", 4, 8) + "}", 8));
  }
  Result<TensorFiles> read_index(const std::string& weight_map) {
    const std::string path = folder_.write("index.json", R"({"metadata":{"total_size":12},"weight_map":)" + weight_map + "}");
    return read_sharded_safetensors(path, budget_);
  }
  /// The message without the folder's name.
  std::string error_of_index(const std::string& weight_map) {
    std::string message = read_index(weight_map).status().message();
    for (std::size_t at = 0; (at = message.find(folder_.path())) != std::string::npos;) {
      message.erase(at, folder_.path().size());
    }
    return message;
  }

  TempFolder folder_;
  Budget budget_;
};

TEST_F(ShardedSafetensors, MergesTheShards) {
  const auto files = read_index(R"({"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors"})");
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(files->tensors.files.size(), 2u);
  EXPECT_EQ(files->tensors.find("a")->file, 0u);
  EXPECT_EQ(files->tensors.find("c")->file, 1u);
  EXPECT_EQ(files->tensors.files[1], folder_.path() + "two.safetensors");
}

TEST_F(ShardedSafetensors, RefusesAnIndexThatDisagrees) {
  EXPECT_EQ(error_of_index(R"({"a":"one.safetensors","b":"three.safetensors"})"),
            "index.json names the shard 'three.safetensors': three.safetensors: cannot open: No such file or directory");
  EXPECT_EQ(error_of_index(R"({"a":"one.safetensors","b":"two.safetensors"})"),
            "index.json: tensor 'c' in shard 'two.safetensors' is not in the index");
  EXPECT_EQ(error_of_index(R"({"a":"two.safetensors","b":"two.safetensors","c":"one.safetensors"})"),
            "index.json: tensor 'c' is in shard 'two.safetensors', but the index says 'one.safetensors'");
  EXPECT_EQ(error_of_index(R"({"a":"one.safetensors","d":"one.safetensors"})"),
            "index.json: tensor 'd' is not in shard 'one.safetensors', where the index says it is");
  EXPECT_EQ(error_of_index(R"({"a":"one.safetensors","a":"one.safetensors"})"),
            "index.json: byte 66: tensor 'a' appears twice");
  for (const std::string path : {"../one.safetensors", "sub/one.safetensors", "..", "", ".hidden", "/etc/passwd", "a\\\\b"}) {
    const std::string message = error_of_index(R"({"a":")" + path + "\"}");
    EXPECT_NE(message.find("is not the name of a file in the same folder"), std::string::npos) << message;
  }
  const std::string no_map = folder_.write("index.json", "{}");
  EXPECT_EQ(read_sharded_safetensors(no_map, budget_).status().message(),
            no_map + ": 'weight_map' is missing: not an index of weight files");
}

}  // namespace
}  // namespace carat
