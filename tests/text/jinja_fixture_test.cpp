// Cases whose answers real Jinja2 (set up as transformers does) has given: tests/fixtures/templates/cases.json.
// CARAT_TEMPLATE_CASES=FILE runs a further file of the same form.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_json.h"
#include "text/jinja_template.h"

namespace carat {
namespace {

using Json = nlohmann::ordered_json;

const std::string kFolder = std::string(CARAT_FIXTURES) + "/templates/";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Result<std::string> render_case(const std::string& source, const Json& one) {
  CARAT_ASSIGN(const JinjaTemplate parsed, JinjaTemplate::parse(source));
  std::vector<std::pair<std::string, JinjaValue>> variables;
  for (const auto& [name, value] : one.at("context").items()) {
    CARAT_ASSIGN(JinjaValue data, jinja_from_json(value));
    variables.emplace_back(name, std::move(data));
  }
  if (one.contains("wall_clock")) {
    variables.emplace_back("strftime_now", JinjaValue::strftime_now(one["wall_clock"].get<std::int64_t>()));
  }
  return parsed.render(JinjaValue::dict(std::move(variables)));
}

void run_cases(const std::string& path, std::size_t at_least) {
  const Json file = Json::parse(read_file(path));
  const Json& cases = file.at("cases");
  EXPECT_GE(cases.size(), at_least);
  std::string refused;
  for (const Json& one : cases) {
    const std::string name = one.at("name");
    SCOPED_TRACE(name);
    const std::string source =
        one.contains("template") ? read_file(kFolder + std::string(one["template"])) : std::string(one.at("source"));
    const Result<std::string> text = render_case(source, one);
    if (one.contains("error")) {
      EXPECT_FALSE(text.ok()) << "rendered: " << *text << "\nexpected: " << one["error"];
      if (text.ok()) continue;
      const std::string message = one["error"];
      EXPECT_TRUE(text.status().message().starts_with("line ")) << text.status().message();
      // The words of raise_exception() are the template's; those of other errors are Python's, and ours differ.
      if (one.contains("raised")) {
        EXPECT_TRUE(text.status().message().ends_with(": " + message)) << text.status().message();
      }
    } else {
      // A rare feature may be refused (docs/templates.md says which are), but never rendered otherwise than by Jinja2.
      if (!text.ok() && one.contains("rare")) {
        refused += name + "; ";
        continue;
      }
      EXPECT_TRUE(text.ok()) << text.status().message();
      if (!text.ok()) continue;
      EXPECT_EQ(*text, std::string(one.at("expected")));
    }
  }
  if (!refused.empty()) std::cout << "refused, as documented: " << refused << "\n";
}

TEST(JinjaFixture, EveryCaseIsByteExact) { run_cases(kFolder + "cases.json", 580); }

TEST(JinjaFixture, FurtherCases) {
  const char* path = std::getenv("CARAT_TEMPLATE_CASES");
  if (path == nullptr) GTEST_SKIP() << "CARAT_TEMPLATE_CASES is not set";
  run_cases(path, 1);
}

}  // namespace
}  // namespace carat
