#include "formats/hf_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "raw_files.h"

namespace carat {
namespace {

class HfFolders : public testing::Test {
 protected:
  void write_minimum() {
    folder_.write("config.json", R"({"model_type": "llama", "rope_scaling": {"factor": 8}, "eos_token_id": [1, 2]})");
    folder_.write("model.safetensors",
                  safetensors(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4));
  }
  Result<HfFolder> read() { return read_hf_folder(folder_.path(), budget_); }
  /// The message with "F/" for the folder's path.
  std::string error() {
    std::string message = read().status().message();
    for (std::size_t at = 0; (at = message.find(folder_.path())) != std::string::npos;) {
      message.replace(at, folder_.path().size(), "F/");
    }
    return message;
  }
  std::string string(const HfFolder& folder, std::string_view key) {
    const auto value = folder.meta.string(key);
    return value.ok() ? std::string(value.value().value_or("(absent)")) : value.status().message();
  }

  TempFolder folder_;
  Budget budget_;
};

TEST_F(HfFolders, ReadsEveryFile) {
  write_minimum();
  folder_.write("generation_config.json", R"({"eos_token_id": [1, 106], "temperature": 0.5})");
  folder_.write("tokenizer_config.json",
                R"({"added_tokens_decoder": {"0": {"content": "x"}}, "bos_token": {"content": "<bos>", "lstrip": false},)"
                R"( "eos_token": "<eos>", "add_bos_token": true, "chat_template": "old"})");
  folder_.write("chat_template.jinja", "{{ new }}\n");
  const auto folder = read();
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_EQ(string(*folder, "config.model_type"), "llama");
  EXPECT_EQ(folder->meta.integer("config.rope_scaling.factor").value(), 8);
  EXPECT_EQ(folder->meta.numbers("generation.eos_token_id").value()->integer(1), 106);
  EXPECT_EQ(folder->meta.real("generation.temperature").value(), 0.5);
  EXPECT_EQ(string(*folder, "tokenizer_config.bos_token"), "<bos>");
  EXPECT_EQ(string(*folder, "tokenizer_config.eos_token"), "<eos>");
  EXPECT_EQ(folder->meta.boolean("tokenizer_config.add_bos_token").value(), true);
  EXPECT_EQ(string(*folder, "tokenizer_config.chat_template"), "old");
  EXPECT_EQ(string(*folder, "chat_template"), "{{ new }}\n");
  EXPECT_FALSE(folder->meta.contains("tokenizer_config.added_tokens_decoder.0.content"));
  EXPECT_EQ(folder->tensors.files, std::vector<std::string>{folder_.path() + "model.safetensors"});
  EXPECT_NE(folder->tensors.find("w"), nullptr);
}

TEST_F(HfFolders, ChoosesTheTemplateThatCounts) {
  write_minimum();
  EXPECT_EQ(string(*read(), "chat_template"), "(absent)");
  folder_.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "t"},)"
                                         R"( {"name": "default", "template": "d"}]})");
  EXPECT_EQ(string(*read(), "chat_template"), "d");
  folder_.write("chat_template.json", R"({"chat_template": "j"})");
  EXPECT_EQ(string(*read(), "chat_template"), "j");
  folder_.write("chat_template.jinja", "");
  EXPECT_EQ(string(*read(), "chat_template"), "");
}

TEST_F(HfFolders, PrefersSafetensorsAndFallsBackToTorch) {
  write_minimum();
  std::filesystem::copy_file(CARAT_FIXTURES "/torch_bin/module.bin", folder_.path() + "pytorch_model.bin");
  EXPECT_NE(read()->tensors.find("w"), nullptr);
  std::filesystem::remove(folder_.path() + "model.safetensors");
  const auto folder = read();
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_NE(folder->tensors.find("weight"), nullptr);
  std::filesystem::rename(folder_.path() + "pytorch_model.bin", folder_.path() + "part.bin");
  folder_.write("pytorch_model.bin.index.json", R"({"weight_map": {"weight": "part.bin", "bias": "part.bin"}})");
  EXPECT_NE(read()->tensors.find("bias"), nullptr);
}

TEST_F(HfFolders, ReadsTheTinyModels) {
  for (const auto& entry : std::filesystem::directory_iterator(CARAT_FIXTURES "/tiny")) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    const auto folder = read_hf_folder(entry.path().string(), budget_);
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    EXPECT_TRUE(folder->meta.contains("config.model_type"));
    EXPECT_FALSE(folder->tensors.entries().empty()) << entry.path();
  }
}

TEST_F(HfFolders, NamesWhatIsMissingOrBroken) {
  EXPECT_EQ(error(), "F/config.json is missing: not a Hugging Face model folder");
  folder_.write("config.json", "{\"a\": tru}");
  EXPECT_EQ(error(), "F/config.json: byte 6: found 't', expected 'true'");
  folder_.write("config.json", "{}");
  EXPECT_EQ(error(), "F/: has no weights: none of model.safetensors, model.safetensors.index.json, pytorch_model.bin and "
                     "pytorch_model.bin.index.json is there");
  write_minimum();
  folder_.write("generation_config.json", "");
  EXPECT_EQ(error(), "F/generation_config.json: byte 0: the JSON text ends, expected a value");
  folder_.write("generation_config.json", std::string((16 << 20) + 1, ' '));
  EXPECT_EQ(error(), "F/generation_config.json: the file is 16777217 bytes long, at most 16777216 are read");
  std::filesystem::remove(folder_.path() + "generation_config.json");
  std::filesystem::create_directory(folder_.path() + "tokenizer_config.json");
  EXPECT_EQ(error(), "F/tokenizer_config.json: is a directory, expected a regular file");
  EXPECT_EQ(read_hf_folder(folder_.path() + "config.json", budget_).status().code(), StatusCode::io);
  EXPECT_EQ(read_hf_folder(folder_.path() + "nowhere", budget_).status().code(), StatusCode::io);
}

}  // namespace
}  // namespace carat
