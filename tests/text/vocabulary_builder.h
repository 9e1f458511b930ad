// Makes the MetaMap of a tokenizer from a list of pieces, as a file's reader would.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/meta_map.h"

namespace carat::testing {

struct TestPiece {
  std::string text;
  float score = 0;
  std::int32_t kind = 1;
};

/// GGUF's form of a list of strings, kept alive by `meta`.
inline void set_strings(MetaMap& meta, const std::string& key, const std::vector<std::string>& strings) {
  auto bytes = std::make_shared<std::string>();
  for (const std::string& text : strings) {
    const std::uint64_t length = text.size();
    bytes->append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes->append(text);
  }
  meta.set(key, StringList(std::as_bytes(std::span(bytes->data(), bytes->size())), strings.size()));
  meta.keep_alive(bytes);
}

template <typename T>
void set_numbers(MetaMap& meta, const std::string& key, NumberType type, const std::vector<T>& numbers) {
  auto copy = std::make_shared<std::vector<T>>(numbers);
  meta.set(key, NumberList(type, std::as_bytes(std::span(copy->data(), copy->size()))));
  meta.keep_alive(copy);
}

inline void set_pieces(MetaMap& meta, const std::vector<TestPiece>& pieces) {
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<std::int32_t> kinds;
  for (const TestPiece& piece : pieces) {
    texts.push_back(piece.text);
    scores.push_back(piece.score);
    kinds.push_back(piece.kind);
  }
  set_strings(meta, "tokenizer.ggml.tokens", texts);
  set_numbers(meta, "tokenizer.ggml.scores", NumberType::f32, scores);
  set_numbers(meta, "tokenizer.ggml.token_type", NumberType::i32, kinds);
}

/// The 256 byte pieces, <0x00> to <0xFF>.
inline void append_byte_pieces(std::vector<TestPiece>& pieces) {
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    pieces.push_back({std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">", 0, 6});
  }
}

/// <pad> 0, <eos> 1, <bos> 2, <unk> 3, bytes 4..259, then `pieces` from kFirstPiece on, as in a Gemma file.
inline constexpr std::int32_t kFirstPiece = 260;
inline MetaMap gemma_like(const std::vector<TestPiece>& pieces) {
  std::vector<TestPiece> all{{"<pad>", -1000, 3}, {"<eos>", -1000, 3}, {"<bos>", -1000, 3}, {"<unk>", -1000, 3}};
  append_byte_pieces(all);
  all.insert(all.end(), pieces.begin(), pieces.end());
  MetaMap meta;
  meta.set_string("tokenizer.ggml.model", "llama");
  set_pieces(meta, all);
  meta.set("tokenizer.ggml.bos_token_id", std::int64_t{2});
  meta.set("tokenizer.ggml.eos_token_id", std::int64_t{1});
  meta.set("tokenizer.ggml.unknown_token_id", std::int64_t{3});
  meta.set("tokenizer.ggml.add_space_prefix", false);
  return meta;
}

/// GPT-2's character for each byte, in UTF-8.
inline const std::array<std::string, 256>& byte_characters() {
  static const std::array<std::string, 256> characters = [] {
    std::array<std::string, 256> made;
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const int code = printable ? byte : next++;
      std::string& text = made[static_cast<std::size_t>(byte)];
      if (code >= 0x80) text += static_cast<char>(0xC0 | code >> 6);
      text += static_cast<char>(code < 0x80 ? code : 0x80 | (code & 63));
    }
    return made;
  }();
  return characters;
}

inline std::string byte_spelling(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += byte_characters()[static_cast<std::uint8_t>(byte)];
  return out;
}

/// Pieces 0..255 are the bytes in order; then one piece for each merge of two texts (given as raw bytes), then
/// `<|end|>` (control) and `extra`.
inline MetaMap gpt2_like(const std::vector<std::pair<std::string, std::string>>& merges, const std::string& pre,
                         const std::vector<TestPiece>& extra = {}) {
  std::vector<TestPiece> pieces;
  for (const std::string& character : byte_characters()) pieces.push_back({character, 0, 1});
  std::vector<std::string> lines;
  for (const auto& [left, right] : merges) {
    pieces.push_back({byte_spelling(left + right), 0, 1});
    lines.push_back(byte_spelling(left) + " " + byte_spelling(right));
  }
  pieces.push_back({"<|end|>", 0, 3});
  pieces.insert(pieces.end(), extra.begin(), extra.end());
  MetaMap meta;
  meta.set_string("tokenizer.ggml.model", "gpt2");
  meta.set_string("tokenizer.ggml.pre", pre);
  set_pieces(meta, pieces);
  set_strings(meta, "tokenizer.ggml.merges", lines);
  meta.set("tokenizer.ggml.eos_token_id", static_cast<std::int64_t>(256 + merges.size()));
  return meta;
}

}  // namespace carat::testing
