#include "grammar/grammar.h"

#include <fmt/core.h>

#include <atomic>

#include "grammar/builder.h"
#include "grammar/gbnf.h"
#include "grammar/json_rules.h"
#include "grammar/json_schema.h"
#include "grammar/parse.h"
#include "grammar/regex.h"
#include "grammar/schema_document.h"

namespace carat {
namespace {

/// Parsers of JSON refuse what nests deeper, some from 64 levels on.
constexpr std::uint32_t kDeepestJson = 64;
constexpr std::uint32_t kDeepestText = 1000;

std::atomic<std::uint64_t> last_serial{0};

}  // namespace

std::uint64_t Grammar::compile_bytes() {
  return GrammarBuilder::most_bytes() + 24 * kMaxSourceBytes + SchemaDocument::kMostPatternBytes;
}

/// `read(builder)` gives the root rule.
template <typename Read>
Result<Grammar::Pointer> Grammar::compile(std::size_t source_bytes, std::uint32_t deepest, Budget* budget,
                                          Read&& read) {
  if (source_bytes > kMaxSourceBytes) {
    return invalid(fmt::format("it has {} bytes, more than {}", source_bytes, kMaxSourceBytes));
  }
  Reservation room;
  if (budget != nullptr) {
    CARAT_ASSIGN(room, budget->try_reserve(MemoryCategory::io, compile_bytes(), "compiling a grammar"));
  }
  GrammarBuilder builder;
  CARAT_ASSIGN(const std::uint32_t root, read(builder));
  std::shared_ptr<Grammar> grammar(new Grammar);
  CARAT_ASSIGN(grammar->program_, builder.build(root));
  grammar->deepest_ = deepest;
  grammar->serial_ = ++last_serial;
  if (budget != nullptr) {
    CARAT_ASSIGN(grammar->reservation_, budget->try_reserve(MemoryCategory::io, grammar->bytes(), "a grammar"));
  }
  return Pointer(std::move(grammar));
}

Result<Grammar::Pointer> Grammar::json_object(Budget* budget) {
  return compile(0, kDeepestJson, budget,
                 [](GrammarBuilder& builder) -> Result<std::uint32_t> { return JsonRules(builder).object_rule(); });
}

Result<Grammar::Pointer> Grammar::from_json_schema(std::string_view text, Budget* budget) {
  return compile(text.size(), kDeepestJson, budget,
                 [&](GrammarBuilder& builder) { return read_json_schema(text, builder); });
}

Result<Grammar::Pointer> Grammar::from_regex(std::string_view pattern, Budget* budget) {
  return compile(pattern.size(), kDeepestText, budget, [&](GrammarBuilder& builder) -> Result<std::uint32_t> {
    CARAT_ASSIGN(const Expression whole, read_regex(pattern, builder));
    const std::uint32_t root = builder.declare("root");
    builder.define(root, whole);
    return root;
  });
}

Result<Grammar::Pointer> Grammar::from_gbnf(std::string_view text, Budget* budget) {
  return compile(text.size(), kDeepestText, budget, [&](GrammarBuilder& builder) { return read_gbnf(text, builder); });
}

GrammarMatch match(const Program& program, std::string_view text) {
  constexpr std::uint32_t kMostNodes = 1 << 12;
  Stacks stacks(kMostNodes, 4 * kMostNodes);
  ParseStepper stepper;
  std::vector<ParseItem> items;
  std::vector<ParseItem> next;
  if (stepper.start(program, stacks, items) != ParseStepper::Outcome::ok) return {};
  for (const char byte : text) {
    auto outcome = stepper.step(program, stacks, items, static_cast<std::uint8_t>(byte), next);
    if (outcome == ParseStepper::Outcome::out_of_stacks) {
      drop_unused(stacks, items);
      outcome = stepper.step(program, stacks, items, static_cast<std::uint8_t>(byte), next);
    }
    if (outcome != ParseStepper::Outcome::ok) return {};
    items.swap(next);
  }
  return {may_end(items), !items.empty()};
}

GrammarMatch match(const Grammar& grammar, std::string_view text) { return match(grammar.program(), text); }

}  // namespace carat
