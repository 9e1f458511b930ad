// Any bytes as a regular expression: an error of one line, or a grammar that its shortest text is of.
#include "grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto grammar = carat::Grammar::from_regex({reinterpret_cast<const char*>(data), size});
  if (grammar.ok()) {
    carat::fuzz::shortest_text(**grammar);
  } else {
    carat::fuzz::check_error(grammar.status());
  }
  return 0;
}
