// Conversions of the tiny models, whose GGUF files llama.cpp's own converter agrees with, both ways.
#include "quantize/convert.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "arch/hf_export.h"
#include "arch/rope_factors.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "support/model_runner.h"
#include "support/patched_model.h"

namespace carat::test {
namespace {

namespace fs = std::filesystem;

const std::string kTiny = std::string(CARAT_FIXTURES) + "/tiny/";

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "carat-convert-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  bool empty() const { return fs::is_empty(path_); }

 private:
  std::string path_;
};

using TensorBytes = std::map<std::string, std::pair<DType, std::vector<std::byte>>>;

TensorBytes read_all(const TensorDir& tensors) {
  TensorBytes all;
  for (const TensorEntry& entry : tensors.entries()) {
    const auto file = File::open(tensors.files[entry.file]);
    std::vector<std::byte> bytes(entry.bytes);
    EXPECT_TRUE(file.ok() && file->read(entry.offset, bytes).ok());
    all[entry.name] = {entry.type, std::move(bytes)};
  }
  return all;
}

TensorBytes gguf_tensors(const std::string& path) {
  Budget budget;
  const auto file = read_gguf(path, budget);
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? read_all(file->tensors) : TensorBytes();
}

TensorBytes folder_tensors(const std::string& path) {
  Budget budget;
  const auto file = read_safetensors(path + "/model.safetensors", budget);
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? read_all(file->tensors) : TensorBytes();
}

void expect_same(const TensorBytes& wanted, const TensorBytes& got) {
  EXPECT_EQ(wanted.size(), got.size());
  for (const auto& [name, tensor] : wanted) {
    const auto found = got.find(name);
    ASSERT_NE(found, got.end()) << name;
    EXPECT_EQ(found->second.first, tensor.first) << name;
    EXPECT_TRUE(found->second.second == tensor.second) << name << " has other bytes";
  }
}

ConvertReport convert_ok(const std::string& in, const std::string& out, std::optional<DType> type = {}) {
  Budget budget;
  auto report = convert({.input = in, .output = out, .type = type}, budget);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? *report : ConvertReport();
}

/// A folder with only what a Hugging Face folder has: the fixtures' own hold the GGUF as well.
std::string copy_folder(const std::string& name, const TemporaryFolder& to) {
  const std::string folder = to / "source";
  fs::create_directory(folder);
  for (const char* file : {"config.json", "model.safetensors"}) fs::copy(kTiny + name + "/" + file, folder);
  return folder;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream stream;
  stream << file.rdbuf();
  return stream.str();
}

std::vector<std::vector<float>> logits_of(const std::string& path) {
  const auto runner = ModelRunner::load(path, {});
  if (runner == nullptr) return {};
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 24; ++i) ids.push_back(3 + i * 37 % 280);
  return runner->run({{runner->open(), 0, ids}});
}

class EveryTiny : public testing::TestWithParam<const char*> {};

TEST_P(EveryTiny, FolderBecomesTheGgufOfLlamaCpp) {
  const TemporaryFolder work;
  const std::string out = work / "made.gguf";
  convert_ok(copy_folder(GetParam(), work), out);
  TensorBytes wanted = gguf_tensors(kTiny + GetParam() + "/model.gguf");
  TensorBytes got = gguf_tensors(out);
  // Factors go through pow(), whose last bit is the library's.
  const auto factors = wanted.find("rope_freqs.weight");
  if (factors != wanted.end()) {
    ASSERT_EQ(got["rope_freqs.weight"].second.size(), factors->second.second.size());
    for (std::size_t i = 0; i < factors->second.second.size(); i += 4) {
      float a = 0;
      float b = 0;
      std::memcpy(&a, &factors->second.second[i], 4);
      std::memcpy(&b, &got["rope_freqs.weight"].second[i], 4);
      EXPECT_NEAR(a, b, 1e-6F * a) << i;
    }
    got.erase("rope_freqs.weight");
    wanted.erase(factors);
  }
  expect_same(wanted, got);
}

TEST_P(EveryTiny, FolderBecomesTheSameKeys) {
  const TemporaryFolder work;
  const std::string out = work / "made.gguf";
  convert_ok(copy_folder(GetParam(), work), out);
  Budget budget;
  const auto wanted = read_gguf(kTiny + GetParam() + "/model.gguf", budget);
  const auto got = read_gguf(out, budget);
  ASSERT_TRUE(wanted.ok() && got.ok()) << got.status().message();
  const std::string prefix = std::string(*got->meta.string("general.architecture").value()) + ".";
  for (const auto& [key, value] : wanted->meta.values()) {
    if (!key.starts_with(prefix)) continue;
    const auto found = got->meta.values().find(key);
    ASSERT_NE(found, got->meta.values().end()) << key;
    ASSERT_EQ(found->second.index(), value.index()) << key;
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      EXPECT_EQ(std::get<std::int64_t>(found->second), *integer) << key;
    }
    if (std::holds_alternative<double>(value)) {
      EXPECT_FLOAT_EQ(static_cast<float>(std::get<double>(found->second)),
                      static_cast<float>(std::get<double>(value))) << key;
    }
  }
  for (const auto& [key, value] : got->meta.values()) {
    const bool allowed = key.ends_with("key_length") || key.ends_with("value_length");  // left out of older files
    if (key.starts_with(prefix) && !allowed) {
      EXPECT_TRUE(wanted->meta.contains(key)) << key << " is new";
    }
  }
}

TEST_P(EveryTiny, FolderThereAndBackIsBitExact) {
  const TemporaryFolder work;
  const std::string source = copy_folder(GetParam(), work);
  convert_ok(source, work / "made.gguf", DType::f32);
  convert_ok(work / "made.gguf", work / "back");
  expect_same(folder_tensors(source), folder_tensors(work / "back"));
}

TEST_P(EveryTiny, GgufThereAndBackIsBitExact) {
  const TemporaryFolder work;
  const std::string source = kTiny + GetParam() + "/model.gguf";
  convert_ok(source, work / "folder");
  expect_same(folder_tensors(kTiny + GetParam()), folder_tensors(work / "folder"));
  convert_ok(work / "folder", work / "back.gguf");
  TensorBytes wanted = gguf_tensors(source);
  TensorBytes got = gguf_tensors(work / "back.gguf");
  wanted.erase("rope_freqs.weight");
  got.erase("rope_freqs.weight");
  expect_same(wanted, got);
}

TEST_P(EveryTiny, LogitsStayTheSame) {
  const TemporaryFolder work;
  const std::string source = kTiny + GetParam() + "/model.gguf";
  convert_ok(source, work / "folder");
  convert_ok(work / "folder", work / "back.gguf");
  const auto wanted = logits_of(source);
  for (const std::string& path : {work / "folder", work / "back.gguf"}) {
    const auto got = logits_of(path);
    ASSERT_EQ(got.size(), wanted.size()) << path;
    for (std::size_t row = 0; row < wanted.size(); ++row) {
      for (std::size_t i = 0; i < wanted[row].size(); ++i) {
        ASSERT_NEAR(got[row][i], wanted[row][i], 1e-4F) << path << " row " << row << " logit " << i;
      }
    }
  }
}

TEST_P(EveryTiny, TokenizerTravels) {
  const TemporaryFolder work;
  const std::string source = kTiny + GetParam() + "/model.gguf";
  convert_ok(source, work / "folder");
  convert_ok(work / "folder", work / "back.gguf");
  Budget budget;
  const auto original = ModelFile::open(source, budget);
  ASSERT_TRUE(original.ok());
  const auto wanted = original->tokenizer(budget);
  ASSERT_TRUE(wanted.ok()) << wanted.status().message();
  for (const std::string& path : {work / "folder", work / "back.gguf"}) {
    const auto file = ModelFile::open(path, budget);
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto got = file->tokenizer(budget);
    ASSERT_TRUE(got.ok()) << got.status().message();
    ASSERT_NE(*got, nullptr) << path;
    EXPECT_EQ((*got)->size(), (*wanted)->size());
    EXPECT_EQ((*got)->bos(), (*wanted)->bos());
    EXPECT_EQ((*got)->eos(), (*wanted)->eos());
    EXPECT_EQ((*got)->eos_ids(), (*wanted)->eos_ids());
    EXPECT_EQ((*got)->add_bos(), (*wanted)->add_bos());
    for (const char* text : {"the tinker in the annals", "  two  spaces\n\n\tand a tab",
                             "caf\xC3\xA9 \xF0\x9F\x98\x80 12345",
                             "<start_of_turn>user", "<|im_start|>x<|im_end|>", "a\xE2\x96\x81" "b"}) {
      for (const bool special : {false, true}) {
        EXPECT_EQ(*(*got)->encode(text, {special}), *(*wanted)->encode(text, {special})) << path << ": " << text;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Convert, EveryTiny,
                         testing::Values("gemma-mha24", "gemma-mqa256", "gemma2-caps", "gemma2-scale40", "gemma3-gqa42",
                                         "gemma3-mqa41", "gemma3-scale20", "gemma3-local-base", "llama-tied",
                                         "llama-untied", "llama3-scaled", "mistral-full", "qwen2-mqa81",
                                         "qwen2-untied", "qwen3-tied", "qwen3-untied"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Convert, TheTextOfAVisionCheckpointIsConverted) {
  for (const char* name : {"gemma3-vision", "gemma3-vision5"}) {
    const TemporaryFolder work;
    convert_ok(kTiny + name, work / "a.gguf");
    convert_ok(kTiny + name, work / "folder");
    const auto wanted = logits_of(kTiny + name);
    EXPECT_FALSE(wanted.empty());
    EXPECT_EQ(logits_of(work / "a.gguf"), wanted) << name;
    EXPECT_EQ(logits_of(work / "folder"), wanted) << name;
  }
}

TEST(Convert, AWindowThatGgufCannotSayIsNoted) {
  for (const char* name : {"mistral-window", "qwen2-window"}) {
    const TemporaryFolder work;
    const ConvertReport report = convert_ok(kTiny + name, work / "a.gguf");
    ASSERT_FALSE(report.changes.empty()) << name;
    EXPECT_NE(report.changes[0].find("no window"), std::string::npos) << report.changes[0];
    convert_ok(kTiny + name, work / "folder");
    EXPECT_EQ(logits_of(work / "folder"), logits_of(kTiny + name)) << name;
  }
}

TEST(Convert, MatricesGetTheTypeAndVectorsStayFloat) {
  for (const DType type : {DType::q8_0, DType::bf16, DType::f16, DType::f32}) {
    const TemporaryFolder work;
    const std::string out = work / "made.gguf";
    convert_ok(kTiny + "gemma3-gqa42/model.gguf", out, type);
    Budget budget;
    const auto file = ModelFile::open(out, budget);
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto bound = bind_tensors(file->config, file->tensors);
    ASSERT_TRUE(bound.ok());
    for (const BoundTensor& tensor : *bound) {
      if (tensor.entry == nullptr) continue;
      EXPECT_EQ(tensor.entry->type, is_vector(tensor.slot.role) ? DType::f32 : type) << tensor.slot.name;
    }
    const std::map<DType, std::int64_t> file_types{
        {DType::f32, 0}, {DType::f16, 1}, {DType::q8_0, 7}, {DType::bf16, 32}};
    EXPECT_EQ(*file->meta.integer("general.file_type").value(), file_types.at(type));
    const auto wanted = logits_of(kTiny + "gemma3-gqa42/model.gguf");
    const auto got = logits_of(out);
    ASSERT_EQ(got.size(), wanted.size());
    double largest = 0;
    for (std::size_t row = 0; row < wanted.size(); ++row) {
      for (std::size_t i = 0; i < wanted[row].size(); ++i) {
        largest = std::max(largest, double{std::abs(got[row][i] - wanted[row][i])});
      }
    }
    // Rounding to 8 bits moves these logits, of up to about 20, by a few tenths; a wrong row by many.
    EXPECT_LT(largest, type == DType::f32 ? 1e-6 : 2.0);
  }
}

TEST(Convert, TypesOfAFolder) {
  const TemporaryFolder work;
  const std::string source = copy_folder("llama-untied", work);
  convert_ok(source, work / "half", DType::bf16);
  for (const auto& [name, tensor] : folder_tensors(work / "half")) EXPECT_EQ(tensor.first, DType::bf16) << name;
  EXPECT_NE(text_of(work / "half/config.json").find("\"torch_dtype\": \"bfloat16\""), std::string::npos);
  // As stored: bf16 matrices stay so in a GGUF, vectors become float32.
  convert_ok(work / "half", work / "half.gguf");
  const TensorBytes stored = gguf_tensors(work / "half.gguf");
  EXPECT_EQ(stored.at("blk.0.attn_q.weight").first, DType::bf16);
  EXPECT_EQ(stored.at("blk.0.attn_norm.weight").first, DType::f32);
}

TEST(Convert, LicenceNameAndTemplateTravel) {
  const TemporaryFolder work;
  const std::string source = copy_folder("llama-tied", work);
  std::ofstream(source + "/README.md")
      << "---\nlicense: apache-2.0\nmodel_name: \"Small one\"\n---\n# hi\nlicense: no\n";
  std::ofstream(source + "/chat_template.jinja") << "{{ messages[0]['content'] }}\n";
  convert_ok(source, work / "a.gguf");
  convert_ok(work / "a.gguf", work / "folder");
  convert_ok(work / "folder", work / "b.gguf");
  convert_ok(work / "b.gguf", work / "c.gguf", DType::f16);
  Budget budget;
  for (const char* name : {"a.gguf", "b.gguf", "c.gguf"}) {
    const auto file = ModelFile::open(work / name, budget);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(*file->meta.string("general.license").value(), "apache-2.0") << name;
    EXPECT_EQ(*file->meta.string("general.name").value(), "Small one") << name;
    EXPECT_EQ(file->chat_template(), "{{ messages[0]['content'] }}\n") << name;
  }
  EXPECT_NE(text_of(work / "folder/README.md").find("license: \"apache-2.0\""), std::string::npos);
}

TEST(Convert, HashesAreThoseOfTheFiles) {
  const TemporaryFolder work;
  const ConvertReport report = convert_ok(kTiny + "llama-tied/model.gguf", work / "folder");
  ASSERT_EQ(report.inputs.size(), 1U);
  const std::string notes = text_of(work / "folder/carat_convert.json");
  EXPECT_NE(notes.find(report.inputs[0].sha256), std::string::npos);
  ASSERT_GE(report.outputs.size(), 4U);
  for (const HashedFile& file : report.outputs) {
    EXPECT_EQ(file.bytes, fs::file_size(file.path)) << file.path;
    EXPECT_NE(notes.find(file.sha256), std::string::npos) << file.path;
  }
  const ConvertReport back = convert_ok(work / "folder", work / "back.gguf");
  Budget budget;
  const auto gguf = read_gguf(work / "back.gguf", budget);
  ASSERT_TRUE(gguf.ok());
  EXPECT_TRUE(gguf->meta.string("carat.source_sha256").value()->starts_with(back.inputs[0].sha256));
  EXPECT_NE(text_of(work / "back.gguf.carat_convert.json").find(back.outputs[0].sha256), std::string::npos);
}

TEST(Convert, AStopLeavesNothing) {
  const std::string source = kTiny + "gemma3-gqa42/model.gguf";
  for (const char* target : {"made.gguf", "folder"}) {
    for (const int stop_at : {0, 1, 2, 40}) {
      const TemporaryFolder work;
      int calls = 0;
      Budget budget;
      const auto report = convert({.input = source,
                                   .output = work / target,
                                   .progress = [&](std::uint64_t, std::uint64_t) { return calls++ < stop_at; }},
                                  budget);
      EXPECT_EQ(report.status().code(), StatusCode::interrupted) << target << " at " << stop_at;
      EXPECT_TRUE(work.empty()) << target << " at " << stop_at;
    }
  }
}

void expect_refused(const ConvertOptions& options, const std::string& part) {
  Budget budget;
  const auto report = convert(options, budget);
  ASSERT_FALSE(report.ok()) << "wanted: " << part;
  EXPECT_EQ(exit_code(report.status().code()), 2) << report.status().message();
  EXPECT_NE(report.status().message().find(part), std::string::npos) << report.status().message();
}

TEST(Convert, RefusesWhatCannotBeWritten) {
  const TemporaryFolder work;
  const std::string source = kTiny + "gemma3-gqa42/model.gguf";
  expect_refused({.input = source, .output = work / "folder", .type = DType::q8_0}, "f32, f16, bf16");
  expect_refused({.input = source, .output = work / "a.lct"}, "ends in .gguf");
  expect_refused({.input = source, .output = work / "a.safetensors"}, "ends in .gguf");
  expect_refused({.input = source, .output = source}, "IN and OUT are the same");
  expect_refused({.input = source, .output = work / "none/a.gguf"}, "none/a.gguf");
  expect_refused({.input = source, .output = work / "none/a"}, "none/a");
  EXPECT_TRUE(work.empty());
  EXPECT_NE(conversion_type("q9_9").status().message().find("f32, f16, bf16, q8_0"), std::string::npos);
  EXPECT_EQ(*conversion_type("BF16"), DType::bf16);
}

TEST(Convert, ReplacesOnlyWhenForcedAndOnlyModels) {
  const TemporaryFolder work;
  const std::string source = kTiny + "llama-tied/model.gguf";
  Budget budget;
  std::ofstream(work / "a.gguf") << "mine";
  expect_refused({.input = source, .output = work / "a.gguf"}, "--force");
  EXPECT_EQ(text_of(work / "a.gguf"), "mine");
  EXPECT_TRUE(convert({.input = source, .output = work / "a.gguf", .force = true}, budget).ok());
  EXPECT_EQ(text_of(work / "a.gguf").substr(0, 4), "GGUF");

  convert_ok(source, work / "folder");
  std::ofstream(work / "folder/old.txt") << "old";
  expect_refused({.input = source, .output = work / "folder"}, "--force");
  EXPECT_TRUE(convert({.input = source, .output = work / "folder", .force = true}, budget).ok());
  EXPECT_FALSE(fs::exists(work / "folder/old.txt"));
  fs::create_directory(work / "folder/sub");
  expect_refused({.input = source, .output = work / "folder", .force = true}, "model folder");
  EXPECT_TRUE(fs::exists(work / "folder/sub"));
}

TEST(Convert, DamagedAndTooLargeValuesAreNamed) {
  const PatchedModel damaged(kTiny + "llama-tied/model.gguf", [](std::vector<TensorCopy>& tensors) {
    find_tensor(tensors, "blk.1.ffn_up.weight").floats()[5] = std::numeric_limits<float>::quiet_NaN();
  });
  const PatchedModel large(kTiny + "llama-tied/model.gguf", [](std::vector<TensorCopy>& tensors) {
    find_tensor(tensors, "blk.1.ffn_up.weight").floats()[5] = 1e6F;
  });
  const TemporaryFolder work;
  for (const char* target : {"a.gguf", "folder"}) {
    expect_refused({.input = damaged.path(), .output = work / target}, "tensor 'blk.1.ffn_up.weight': holds a NaN");
    expect_refused({.input = large.path(), .output = work / target, .type = DType::f16}, "too large for f16");
  }
  EXPECT_TRUE(work.empty());
  convert_ok(large.path(), work / "a.gguf", DType::bf16);
}

TEST(Convert, MemoryIsAFewBlocks) {
  const TemporaryFolder work;
  for (const char* target : {"a.gguf", "folder"}) {
    Budget budget(8 << 20);
    const auto report = convert({.input = kTiny + "gemma3-mqa41/model.gguf", .output = work / target}, budget);
    EXPECT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(budget.report().reserved, 0U);
  }
}

TEST(Llama3Scaling, IsFoundAgainFromItsFactors) {
  for (const Llama3RopeScaling& wanted :
       {Llama3RopeScaling{8, 1, 4, 8192}, Llama3RopeScaling{32, 1, 4, 8192}, Llama3RopeScaling{8, 1, 4, 64},
        Llama3RopeScaling{16, 1, 2, 4096}, Llama3RopeScaling{4, 1, 8, 5000}}) {
    for (const std::uint32_t head_dim : {64U, 128U}) {
      const RopeSpec rope{.base = 500000, .llama3 = wanted};
      const auto found = llama3_from_rope_factors(llama3_rope_factors(rope, head_dim), rope.base);
      ASSERT_TRUE(found.ok()) << found.status().message();
      EXPECT_EQ(found->factor, wanted.factor);
      EXPECT_EQ(found->original_context, wanted.original_context);
      EXPECT_NEAR(found->high_frequency_factor, wanted.high_frequency_factor, 1e-3);
    }
  }
  const std::vector<float> strange{1, 5, 2, 8, 3};
  EXPECT_EQ(llama3_from_rope_factors(strange, 500000).status().code(), StatusCode::unsupported);
}

}  // namespace
}  // namespace carat::test
