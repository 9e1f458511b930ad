// Any bytes as a JSON Schema: an error of one line, or a grammar whose shortest text is JSON.
#include <nlohmann/json.hpp>

#include "grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto grammar = carat::Grammar::from_json_schema({reinterpret_cast<const char*>(data), size});
  if (!grammar.ok()) {
    carat::fuzz::check_error(grammar.status());
    return 0;
  }
  const std::string text = carat::fuzz::shortest_text(**grammar);
  if (!text.empty() && !nlohmann::json::accept(text)) std::abort();
  return 0;
}
