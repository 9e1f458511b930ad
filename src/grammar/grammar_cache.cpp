#include "grammar/grammar_cache.h"

#include <algorithm>
#include <utility>

namespace carat {
namespace {

Result<Grammar::Pointer> compile(GrammarKind kind, std::string_view source, Budget* budget) {
  switch (kind) {
    case GrammarKind::json_object: return Grammar::json_object(budget);
    case GrammarKind::json_schema: return Grammar::from_json_schema(source, budget);
    case GrammarKind::regex: return Grammar::from_regex(source, budget);
    case GrammarKind::gbnf: break;
  }
  return Grammar::from_gbnf(source, budget);
}

}  // namespace

Result<Grammar::Pointer> GrammarCache::get(GrammarKind kind, std::string_view source) {
  const std::lock_guard lock(mutex_);
  const auto known = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.kind == kind && entry.source == source; });
  if (known != entries_.end()) {
    Entry found = std::move(*known);
    entries_.erase(known);
    entries_.push_front(std::move(found));
    return entries_.front().grammar;
  }
  CARAT_ASSIGN(Grammar::Pointer grammar, compile(kind, source, budget_));
  Entry entry{.kind = kind};
  if (source.size() > kSmallBlock) {
    CARAT_ASSIGN(entry.room, budget_->try_reserve(MemoryCategory::io, source.size() + 1, "source of a grammar"));
  }
  entry.source = source;
  entry.grammar = grammar;
  bytes_ += entry.bytes();
  entries_.push_front(std::move(entry));
  while (entries_.size() > kMostGrammars || (bytes_ > kMostBytes && entries_.size() > 1)) {
    bytes_ -= entries_.back().bytes();
    entries_.pop_back();
  }
  return grammar;
}

}  // namespace carat
