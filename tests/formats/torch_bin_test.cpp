#include "formats/torch_bin.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "formats/torch_bin_pickle.h"
#include "raw_files.h"

namespace carat {
namespace {

std::string fixture(const std::string& name) { return CARAT_FIXTURES "/torch_bin/" + name; }

Status read(const std::string& bytes, Budget& budget, TensorFiles& files) {
  EntryMemory memory(budget, files.directory_memory);
  const MemorySource source("m.bin", std::as_bytes(std::span(bytes.data(), bytes.size())));
  return read_torch_bin_into(source, budget, memory, files.tensors);
}

std::string error_of(const std::string& bytes) {
  Budget budget;
  TensorFiles files;
  return read(bytes, budget, files).message();
}

std::string text(const std::string& value) { return "X" + raw(static_cast<std::uint32_t>(value.size())) + value; }
std::string integer(std::int32_t value) { return "J" + raw(value); }
std::string integers(const std::vector<std::int32_t>& values) {
  std::string bytes = "(";
  for (const std::int32_t value : values) bytes += integer(value);
  return bytes + "t";
}

/// How a pickle spells a tensor.
struct Spelled {
  std::string type = "FloatStorage";
  std::string key = "0";
  std::int32_t elements = 6;
  std::int32_t offset = 0;
  std::vector<std::int32_t> size{2, 3};
  std::vector<std::int32_t> stride{3, 1};

  std::string bytes() const {
    return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" + type + "\n" + text(key) + text("cpu") +
           integer(elements) + "tQ" + integer(offset) + integers(size) + integers(stride) +
           "\x89" "ccollections\nOrderedDict\n)RtR";
  }
};

std::string state(const std::string& value) { return "\x80\x02}" + text("w") + value + "s."; }
std::string zip(const std::string& pickle, std::size_t storage_bytes = 24) {
  return RawZip().add("m/data.pkl", pickle).add("m/byteorder", "little").add("m/data/0",
                                                                            std::string(storage_bytes, '\x05')).bytes();
}
std::string error_of_tensor(const Spelled& spelled, std::size_t storage_bytes = 24) {
  return error_of(zip(state(spelled.bytes()), storage_bytes));
}

TEST(TorchBin, ReadsEveryTypeWithOffsetsOfTheFile) {
  Budget budget;
  const auto files = read_torch_bin(fixture("types.bin"), budget);
  ASSERT_TRUE(files.ok()) << files.status().message();
  const std::string bytes = read_all(fixture("types.bin"));
  const TensorDir& tensors = files->tensors;
  EXPECT_EQ(tensors.entries().size(), 13u);
  for (const TensorEntry& entry : tensors.entries()) ASSERT_LE(entry.offset + entry.bytes, bytes.size());
  for (const std::string type : {"f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64"}) {
    const TensorEntry* entry = tensors.find(type);
    ASSERT_NE(entry, nullptr) << type;
    EXPECT_EQ(name(entry->type), type);
    EXPECT_EQ(entry->shape, (Shape{3, 5}));
  }
  const auto f32 = [&](const std::string& name, std::uint64_t index) {
    float value = 0;
    std::memcpy(&value, bytes.data() + tensors.find(name)->offset + index * 4, 4);
    return value;
  };
  for (std::uint64_t i = 0; i < 15; ++i) EXPECT_EQ(f32("f32", i), static_cast<float>(i));
  EXPECT_EQ(bytes[tensors.find("i8")->offset + 14], 14);
  EXPECT_EQ(tensors.find("cube")->shape, (Shape{6, 4}));
  EXPECT_EQ(tensors.find("scalar")->shape, (Shape{1, 1}));
  EXPECT_EQ(tensors.find("tied")->offset, tensors.find("f32")->offset);
  EXPECT_EQ(tensors.find("tail")->offset, tensors.find("cube")->offset + 80);
  EXPECT_EQ(f32("tail", 0), 20.0f);
  EXPECT_EQ(f32("parameter", 3), 3.0f);
  EXPECT_EQ(budget.report().reserved, 0u);
}

TEST(TorchBin, ReadsModulesAndProtocol4) {
  Budget budget;
  const auto module = read_torch_bin(fixture("module.bin"), budget);
  ASSERT_TRUE(module.ok()) << module.status().message();
  EXPECT_EQ(module->tensors.find("weight")->shape, (Shape{2, 3}));
  EXPECT_EQ(module->tensors.find("bias")->shape, (Shape{1, 2}));
  const auto protocol4 = read_torch_bin(fixture("protocol4.bin"), budget);
  ASSERT_TRUE(protocol4.ok()) << protocol4.status().message();
  EXPECT_EQ(protocol4->tensors.find("w")->shape, (Shape{3, 5}));
}

TEST(TorchBin, RefusesCallablesByName) {
  Budget budget;
  for (const std::string file : {"system2.bin", "system4.bin"}) {
    const std::string message = read_torch_bin(fixture(file), budget).status().message();
    EXPECT_NE(message.find("the callable 'posix.system' is not allowed"), std::string::npos) << message;
  }
  const std::string eval2 = read_torch_bin(fixture("eval2.bin"), budget).status().message();
  EXPECT_NE(eval2.find("the callable '__builtin__.eval' is not allowed"), std::string::npos) << eval2;
  const std::string eval4 = read_torch_bin(fixture("eval4.bin"), budget).status().message();
  EXPECT_NE(eval4.find("the callable 'builtins.eval' is not allowed"), std::string::npos) << eval4;
  const auto refused = [](const std::string& name) {
    return "m.bin: data.pkl: byte 2: the callable '" + name + "' is not allowed: only what builds tensors is";
  };
  EXPECT_EQ(error_of(zip("\x80\x02" "cos\nsystem\n.")), refused("os.system"));
  EXPECT_EQ(error_of(zip("\x80\x02" "ios\nsystem\n.")), refused("os.system"));
  EXPECT_EQ(error_of(zip("\x80\x02" "ctorch\nload\n.")), refused("torch.load"));
  EXPECT_EQ(error_of(zip("\x80\x02" "ctorch._utils\n_rebuild_tensor_v2.__globals__\n.")),
            refused("torch._utils._rebuild_tensor_v2.__globals__"));
}

TEST(TorchBin, RefusesWhatTorchAllowsAndItDoesNotServe) {
  Budget budget;
  const auto error = [&](const std::string& file) {
    const std::string message = read_torch_bin(fixture(file), budget).status().message();
    EXPECT_TRUE(message.starts_with(fixture(file) + ": ")) << message;
    return message.substr(std::min(message.size(), fixture(file).size() + 2));
  };
  EXPECT_EQ(error("strided.bin"),
            "tensor 'w': its elements are not contiguous: save it again after .contiguous()");
  EXPECT_EQ(error("bool.bin"), "tensor 'mask': its type, BoolStorage, is not supported; Float, Half, BFloat16, Double, "
                               "Char, Short, Int and LongStorage are");
  EXPECT_EQ(error("epoch.bin"), "data.pkl: 'epoch' is an integer, expected a tensor: not a state_dict");
  EXPECT_EQ(error("tensor.bin"), "data.pkl holds a tensor, expected a dictionary of tensors (a state_dict)");
  EXPECT_NE(error("legacy.bin").find("torch 1.6 or later"), std::string::npos);
  EXPECT_NE(error("compressed.bin").find("is compressed (method 8"), std::string::npos);
}

TEST(TorchBin, ReadsTensorsSpelledByHand) {
  EXPECT_EQ(error_of_tensor({}), "");
  EXPECT_EQ(error_of_tensor({.size = {1, 6}, .stride = {77, 1}}), "") << "the stride of one row is never used";
  EXPECT_EQ(error_of_tensor({.elements = 4, .offset = 2, .size = {2}, .stride = {1}}), "");
}

TEST(TorchBin, RefusesTensorsThatTheirStorageCannotHold) {
  EXPECT_EQ(error_of_tensor({}, 23),
            "m.bin: tensor 'w': its storage 'm/data/0' has 23 bytes, too few for 6 elements of f32");
  EXPECT_EQ(error_of_tensor({.elements = 5}), "m.bin: tensor 'w': it takes 24 bytes from element 0 of its storage "
                                              "'m/data/0', which has 5 elements");
  EXPECT_EQ(error_of_tensor({.offset = 1}), "m.bin: tensor 'w': it takes 24 bytes from element 1 of its storage "
                                            "'m/data/0', which has 6 elements");
  EXPECT_EQ(error_of_tensor({.offset = -1}), "m.bin: tensor 'w': it takes 24 bytes from element -1 of its storage "
                                             "'m/data/0', which has 6 elements");
  EXPECT_EQ(error_of_tensor({.key = "9"}), "m.bin: tensor 'w': its storage 'm/data/9' is missing in the zip");
  EXPECT_EQ(error_of_tensor({.stride = {1, 2}}),
            "m.bin: tensor 'w': its elements are not contiguous: save it again after .contiguous()");
  EXPECT_EQ(error_of_tensor({.size = {0x7fffffff, 0x7fffffff, 0x7fffffff}, .stride = {1, 1, 1}}),
            "m.bin: tensor 'w': the size of its shape overflows");
  EXPECT_EQ(error_of_tensor({.size = {2, -3}}),
            "m.bin: tensor 'w': its size or stride is not made of whole numbers from 0 to 2^63 - 1");
  EXPECT_EQ(error_of_tensor({.stride = {1}}),
            "m.bin: tensor 'w': it has 2 dimensions and 1 strides, at most 8 dimensions are read");
}

TEST(TorchBin, RefusesBrokenPickles) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "byte 0: 1 bytes are taken, but the pickle ends at byte 0"},
      {"\x80\x09.", "byte 0: pickle protocol 9 is not supported; 2 to 5 are"},
      {"\x80\x02.", "byte 2: an object is taken from an empty stack"},
      {"\x80\x02(.", "byte 3: an object is taken from an empty stack"},
      {"\x80\x02}t.", "byte 3: the stack holds no mark"},
      {"\x80\x02}(Nu.", "byte 5: a key without a value"},
      {"\x80\x02]NNs.", "byte 5: items are added to a list, expected a dictionary"},
      {"\x80\x02}h\x07.", "byte 3: memo 7 is empty"},
      {"\x80\x02}R.", "byte 3: an object is taken from an empty stack"},
      {"\x80\x02}}R.", "byte 4: a dictionary is called"},
      {"\x80\x02NQ.", "byte 3: a persistent id that is not a storage's"},
      {"\x80\x02]}b.", "byte 4: attributes are set on a list"},
      {"\x80\x02X\xff\xff\xff\x7f" "a", "byte 2: 2147483647 bytes are taken, but the pickle ends at byte 8"},
      {"\x80\x02" "cos", "byte 2: a name does not end"},
      {"\x80\x02}\x81.", "byte 3: opcode 0x81 is not allowed: torch.save does not write it"},
      {"\x80\x02" "ctorch\nFloatStorage\n)R.", "byte 23: a storage type is called"},
      {"\x80\x02\x8a\x09" "aaaaaaaaa.", "byte 2: an integer of more than 64 bits"},
  };
  for (const auto& [pickle, message] : cases) EXPECT_EQ(error_of(zip(pickle)), "m.bin: data.pkl: " + message);
}

TEST(TorchBin, SurvivesDeepAndCyclicPickles) {
  EXPECT_EQ(error_of(zip("\x80\x02" + std::string(500000, ']') + std::string(499999, 'a') + ".")),
            "m.bin: data.pkl holds a list, expected a dictionary of tensors (a state_dict)");
  EXPECT_EQ(error_of(zip("\x80\x02}q\x01" + text("w") + "h\x01s.")),
            "m.bin: data.pkl: 'w' is a dictionary, expected a tensor: not a state_dict");
}

TEST(TorchBin, RefusesHostileZips) {
  const std::string pickle = state(Spelled().bytes());
  const std::string data(24, '\x05');
  const auto with = [&](RawZip::Member member) {
    return error_of(RawZip().add("m/data.pkl", pickle).add("m/data/0", data, member).bytes());
  };
  EXPECT_NE(with({.method = 8}).find("member 'm/data/0' is compressed (method 8"), std::string::npos);
  EXPECT_NE(with({.flags = 1}).find("member 'm/data/0' is encrypted"), std::string::npos);
  EXPECT_NE(with({.more_uncompressed = 1 << 30}).find("is stored, but 24 bytes are said to become 1073741848"),
            std::string::npos);
  EXPECT_NE(with({.more_bytes = 1}).find("reach past byte"), std::string::npos);
  EXPECT_NE(with({.move = 1}).find("no member starts at byte"), std::string::npos);
  EXPECT_NE(with({.move = 1 << 30}).find("reach past byte"), std::string::npos);
  const std::string good = zip(pickle);
  EXPECT_EQ(error_of(good), "");
  EXPECT_NE(error_of(good.substr(0, good.size() - 1)).find("the zip directory at the end of the file is missing"),
            std::string::npos);
  EXPECT_EQ(error_of("PK"), "m.bin: the file is 2 bytes long: not a file of torch.save in its zip form (torch 1.6 or "
                            "later), or cut");
  EXPECT_NE(error_of(RawZip().add("m/data.pkl", pickle).add("m/data/0", data).add("m/data/0", data).bytes())
                .find("member 'm/data/0' is there twice"), std::string::npos);
  EXPECT_EQ(error_of(RawZip().add("x", "y").bytes()),
            "m.bin: the zip has no member data.pkl: not a file of torch.save");
  EXPECT_EQ(error_of(RawZip().add("m/data.pkl", pickle).add("m/byteorder", "big").bytes()),
            "m.bin: the byte order is 'big', expected 'little'");
  std::string overlapping = RawZip().add("m/data.pkl", pickle).add("m/data/0", data, {.move = -57}).bytes();
  EXPECT_NE(error_of(overlapping), "");
}

TEST(TorchBin, TakesItsMemoryFromTheBudget) {
  Budget budget(256 << 10);
  TensorFiles files;
  EXPECT_EQ(read(zip("\x80\x02" + std::string(100000, '}') + "."), budget, files).code(), StatusCode::no_fit);
}

}  // namespace
}  // namespace carat
