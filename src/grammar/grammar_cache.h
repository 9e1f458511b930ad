// Compiled grammars by their source: clients send the same schema again and again, and masks are kept by grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"
#include "grammar/grammar.h"
#include "memory/budget.h"

namespace carat {

enum class GrammarKind : std::uint8_t { json_object, json_schema, regex, gbnf };

/// Any thread may use it; one source is compiled at a time.
class GrammarCache {
 public:
  static constexpr std::size_t kMostGrammars = 32;
  /// Of sources and grammars that are kept. Those in use are not counted.
  static constexpr std::uint64_t kMostBytes = 2 << 20;

  /// `budget` outlives the cache and all grammars from it.
  explicit GrammarCache(Budget& budget) : budget_(&budget) {}

  /// What it may reserve (category io): while it compiles, and for what it keeps.
  static std::uint64_t most_bytes() { return Grammar::compile_bytes() + kMostBytes; }

  Result<Grammar::Pointer> get(GrammarKind kind, std::string_view source);

 private:
  struct Entry {
    GrammarKind kind = GrammarKind::json_object;
    Reservation room;
    std::string source;
    Grammar::Pointer grammar;
    std::uint64_t bytes() const { return source.size() + grammar->bytes(); }
  };

  Budget* budget_;
  std::mutex mutex_;
  std::deque<Entry> entries_;  ///< the latest one first
  std::uint64_t bytes_ = 0;
};

}  // namespace carat
