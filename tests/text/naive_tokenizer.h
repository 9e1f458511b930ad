// The two merging algorithms written as their definitions, quadratic: what the fast ones are compared with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "text/utf8.h"

namespace carat::testing {

/// SentencePiece BPE over pieces {text: (id, score)} spelled with ' ', after `cut` pieces {text: id} are taken out.
struct NaiveSentencePiece {
  std::map<std::string, std::pair<std::int32_t, float>> normal;
  std::map<std::string, std::int32_t> cut;
  std::int32_t first_byte = 4;

  std::vector<std::int32_t> encode(const std::string& text) const {
    std::vector<std::int32_t> ids;
    std::string plain;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t longest = 0;
      for (const auto& [piece, id] : cut) {
        if (piece.size() > longest && text.compare(at, piece.size(), piece) == 0) longest = piece.size();
      }
      if (longest == 0) {
        plain += text[at++];
        continue;
      }
      merge(plain, ids);
      plain.clear();
      ids.push_back(cut.at(text.substr(at, longest)));
      at += longest;
    }
    merge(plain, ids);
    return ids;
  }

  void merge(const std::string& text, std::vector<std::int32_t>& ids) const {
    std::vector<std::string> symbols;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t bytes = decode_character(std::string_view(text).substr(at)).bytes;
      symbols.push_back(text.substr(at, bytes));
      at += bytes;
    }
    for (;;) {
      std::size_t best = symbols.size();
      float best_score = 0;
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = normal.find(symbols[i] + symbols[i + 1]);
        if (found == normal.end()) continue;
        if (best == symbols.size() || found->second.second > best_score) {
          best = i;
          best_score = found->second.second;
        }
      }
      if (best == symbols.size()) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    for (const std::string& symbol : symbols) {
      const auto found = normal.find(symbol);
      if (found != normal.end()) {
        ids.push_back(found->second.first);
      } else {
        for (const char byte : symbol) ids.push_back(first_byte + static_cast<std::uint8_t>(byte));
      }
    }
  }
};

/// Merges the bytes of one word by the rank of a pair of texts; ids: 256 + rank of the first merge that gives a text.
struct NaiveByteLevel {
  std::map<std::pair<std::string, std::string>, std::size_t> rank;
  std::map<std::string, std::int32_t> id;

  void merge(const std::string& word, std::vector<std::int32_t>& ids) const {
    std::vector<std::string> symbols;
    for (const char byte : word) symbols.emplace_back(1, byte);
    for (;;) {
      std::size_t best = symbols.size();
      std::size_t best_rank = rank.size();
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = rank.find({symbols[i], symbols[i + 1]});
        if (found != rank.end() && found->second < best_rank) {
          best = i;
          best_rank = found->second;
        }
      }
      if (best == symbols.size()) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    for (const std::string& symbol : symbols) ids.push_back(id.at(symbol));
  }
};

}  // namespace carat::testing
