// The interpreter by itself: what Jinja2 gives for forms that the fixtures lack, errors with their lines, and limits.
#include "text/jinja_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "text/jinja_json.h"

namespace carat {
namespace {

JinjaValue context() {
  const auto json = nlohmann::ordered_json::parse(
      R"({"text": "Grüße, Welt", "zero": 0, "list": [3, 1, 2], "empty": [], "none": null,
          "dict": {"b": 1, "items": "shadowed", "a": [true, 2.5]},
          "people": [{"name": "Al", "age": 30}, {"name": "bo", "age": 4}]})");
  return jinja_from_json(json).value();
}

std::string render(std::string_view source, const JinjaLimits& limits = {}) {
  const Result<JinjaTemplate> parsed = JinjaTemplate::parse(source);
  if (!parsed.ok()) return "parse error: " + parsed.status().message();
  const Result<std::string> text = parsed->render(context(), limits);
  return text.ok() ? *text : "error: " + text.status().message();
}

TEST(JinjaTemplate, GivesWhatJinja2Gives) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      // white space control with trim_blocks and lstrip_blocks
      {"a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"},
      {"a\n  {%+ if true %}\nb{% endif %}", "a\n  b"},
      {"a {%- if true -%} b {%- endif %} c", "ab c"},
      {"{% if true +%}\nx{% endif %}", "\nx"},
      {"  {# note #}\nx {{- 1 -}} \n y", "x1y"},
      {"{% raw %}{{ x }}{% endraw %}\r\nz", "{{ x }}z"},
      // values as text
      {"{{ [1, 'a', none, true, 1.0, 1e16, 1e-5, (1,), {'k': \"it's\"}] }}",
       "[1, 'a', None, True, 1.0, 1e+16, 1e-05, (1,), {'k': \"it's\"}]"},
      {"{{ 0.1 + 0.2 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7 / 2 }}",
       "0.30000000000000004 -4 2 1024 0.5 3.5"},
      {"{{ 1 + 2 ~ 3 }}", "error: line 1: '+' does not work on int and str"},
      {"{{ 2 * 3 ~ 4 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ not not 1 }}", "64 True False True"},
      {"{{ -3|abs }} {{ 'a' 'b' }} {{ true + 1 }} {{ 1 == 1.0 == true }}", "3 ab 2 True"},
      // attributes, items, slices
      {"{{ dict['items'] }} {{ dict.items()|list|length }} {{ dict.a[1] }} {{ dict.get('q', 'd') }}",
       "shadowed 3 2.5 d"},
      {"{{ text[2] }} {{ text[-1] }} {{ text[1:4] }} {{ text[::-1] }} {{ text|length }}", "ü t rüß tleW ,eßürG 11"},
      {"{{ list[-2:] }} {{ list[::2] }} {{ list[9] }}|{{ list[:-1] }}", "[1, 2] [3, 2] |[3, 1]"},
      {"{{ text.__class__ }}|{{ dict.__init__ }}|{{ dict['__class__'] }}", "||"},
      // filters and tests
      {"{{ text|upper }} {{ 'o\\'neil (x-ray)'|title }} {{ 'o\\'neil x-ray'.title() }}",
       "GRÜSSE, WELT O'neil (X-Ray) O'Neil X-Ray"},
      {"{{ people|map(attribute='name')|join(', ') }} {{ people|selectattr('age', 'gt', 5)|list|length }}", "Al, bo 1"},
      {"{{ people|sort(attribute='age')|map(attribute='name')|list }}", "['bo', 'Al']"},
      {"{{ {'ü': [1, {'x': '<\"\\n'}], 'n': none}|tojson }}", "{\"ü\": [1, {\"x\": \"<\\\"\\n\"}], \"n\": null}"},
      {"{{ {'a': [], 'b': [1]}|tojson(indent=2) }}", "{\n  \"a\": [],\n  \"b\": [\n    1\n  ]\n}"},
      {"{{ 'a\\nb\\n\\nc'|indent(2) }}", "a\n  b\n\n  c"},
      {"{{ missing|default('x') }} {{ ''|default('y', true) }} {{ none|d('z') }}", "x y None"},
      {"{{ 2.5|round }} {{ 3.14159|round(2) }} {{ 7|round }} {{ '12'|int + '1.5'|float }}", "2.0 3.14 7 13.5"},
      {"{{ [1, 2, 3]|sum }} {{ list|max }} {{ []|min }}| {{ dict|dictsort|first }}", "6 3 | ('a', [True, 2.5])"},
      {"{{ zero is even }} {{ 4 is divisibleby 3 }} {{ 1 is in [1] }} {{ none is none }} {{ x is not defined }}",
       "True False True True True"},
      {"{% if list|select('gt', 9) %}a generator is true{% endif %}", "a generator is true"},
      // statements
      {"{% for k, v in dict.items() if k != 'a' %}{{ loop.index }}{{ k }}{{ loop.last }};{% else %}none{% endfor %}",
       "1bFalse;2itemsTrue;"},
      {"{% for x in empty %}{% else %}none{% endfor %}", "none"},
      {"{% for x in list %}{{ loop.previtem|d('-') }}{{ x }}{{ loop.nextitem|d('-') }} {% endfor %}", "-31 312 12- "},
      {"{% for x in range(9) %}{% if x == 1 %}{% continue %}{% elif x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}",
       "02"},
      {"{% set x = 1 %}{% for y in list %}{{ x }}{% set x = 2 %}{% endfor %}{{ x }}", "1111"},
      {"{% set ns = namespace(n=0) %}{% for y in list %}{% set ns.n = ns.n + y %}{% endfor %}{{ ns.n }}", "6"},
      {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c %}x{{ a }}{% endset %}{{ c }}", "12x1"},
      {"{% macro m(a, b='B') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(b=2, a=3) }} {{ m() }}", "1B 32 B"},
      {"{% macro f(n) %}{% if n %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "321"},
      {"{% filter upper|trim %} abc {% endfilter %}{% generation %}g{% endgeneration %}", "ABCg"},
      {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "3"},
      {"{{ 'yes' if zero else 'no' }}{{ 'x' if zero }}", "no"},
      {"{{ {'a': {'b': {}}} }}", "{'a': {'b': {}}}"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(render(source), expected) << source;
}

TEST(JinjaTemplate, ErrorsNameTheLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\n{{ raise_exception('Roles must alternate') }}", "error: line 2: Roles must alternate"},
      {"\n\n{{ missing.name }}", "error: line 3: 'missing' is undefined"},
      {"\n{{ dict.q.r }}", "error: line 2: 'dict object' has no attribute 'q'"},
      {"\n{{ missing() }}", "error: line 2: 'missing' is undefined"},
      {"{{ 1 }}\n{{ 'a' + 1 }}", "error: line 2: '+' does not work on str and int"},
      {"{{ 9223372036854775807 + 1 }}", "error: line 1: integer overflow: results must fit 64 bits"},
      {"{{ 1 // 0 }}", "error: line 1: division by zero"},
      {"\n{% include 'x' %}",
       "parse error: line 2: unknown tag 'include': chat templates here may use if, for, set, macro, with, filter, "
       "break, continue, generation and raw"},
      {"\n\n{% if x %}", "parse error: line 3: expected '{% endif %}', found the end of the template"},
      {"{{ (1 }}", "parse error: line 1: unexpected '}', expected ')'"},
      {"{{ 1", "parse error: line 1: tag is not closed: '}}' is missing"},
      {"x\n{# y", "parse error: line 2: comment is not closed: '#}' is missing"},
      {"{{ 'abc }}", "parse error: line 1: string is not closed"},
      {"{% break %}", "parse error: line 1: 'break' outside of a loop"},
      {"{{ x|nosuch }}", "error: line 1: unknown filter 'nosuch'"},
      {"{{ list.append(1) }}", "error: line 1: the method append() of list is not available to templates"},
      {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "error: line 1: f() takes at most 1 arguments, 2 given"},
      {"{% set list.x = 1 %}", "error: line 1: cannot set 'list.x': 'list' is not a namespace"},
      {"{% for a, b in list %}{% endfor %}", "error: line 1: cannot loop over a value of type int"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(render(source), expected) << source;
}

JinjaLimits test_limits() {
  JinjaLimits limits;  // a tenth of the default, so that sanitizers and loaded machines stay quick
  limits.steps /= 10;
  limits.value_bytes /= 10;
  return limits;
}

/// Each stops with an error that has `limit` in it, and quickly.
void expect_limit(const std::string& source, const std::string& limit, const JinjaLimits& limits = test_limits()) {
  const auto start = std::chrono::steady_clock::now();
  const std::string text = render(source, limits);
  EXPECT_TRUE(text.find("line ") != std::string::npos && text.find(limit) != std::string::npos)
      << source.substr(0, 80) << " gave " << text.substr(0, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << source.substr(0, 80);
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int count = 0; count < times; ++count) out += text;
  return out;
}

TEST(JinjaTemplate, HostileTemplatesStopAtALimit) {
  const std::string loop = "{% for i in range(100000) %}";
  const std::string end = "{% endfor %}";
  expect_limit("{% for i in range(1000000000) %}x{% endfor %}", "range limit");
  expect_limit("{{ 'a' * 1000000000 }}", "memory limit");
  expect_limit("{{ [1] * 1000000000 }}", "memory limit");
  expect_limit("{{ 'a' * 9223372036854775807 }}", "memory limit");
  expect_limit("{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
               "memory limit");
  expect_limit("{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
               "memory limit");
  expect_limit("{% set ns = namespace(s=[]) %}{% for i in range(999) %}{% set ns.s = [ns.s] %}{% endfor %}",
               "nesting limit");
  const std::string dag =
      "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}";
  expect_limit(dag + "{{ ns.s }}", "limit");
  expect_limit(dag + "{{ ns.s|tojson }}", "limit");
  expect_limit(dag + dag + "{% set a = ns.s %}" + dag + "{{ a == ns.s }}", "step limit");
  expect_limit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "depth limit");
  expect_limit("{% macro f() %}{{ 'x' * 100000000 ~ f() }}{% endmacro %}{{ f() }}", "limit");
  expect_limit("{{ " + repeated("(", 100000) + "1" + repeated(")", 100000) + " }}", "");
  expect_limit("{{ " + repeated("(", 20000) + "1" + repeated(")", 20000) + " }}", "nesting limit");
  expect_limit("{{ " + repeated("[", 20000) + repeated("]", 20000) + " }}", "nesting limit");
  expect_limit("{{ " + repeated("-", 20000) + "1 }}", "nesting limit");
  expect_limit("{{ x" + repeated(".a", 20000) + " }}", "nesting limit");
  expect_limit("{{ x" + repeated("|trim", 20000) + " }}", "nesting limit");
  expect_limit("{{ 1" + repeated(" if 1 else 1", 10000) + " }}", "nesting limit");
  expect_limit(repeated("{% if 1 %}", 10000), "nesting limit");
  expect_limit("{% set " + repeated("(", 20000) + "a" + repeated(")", 20000) + " = 1 %}", "nesting limit");
  expect_limit("{{ 'a'|map(" + repeated("'map', ", 15000) + "'list')|list }}", "limit");
  expect_limit("{{ " + repeated("1, ", 40000) + " }}", "tokens");
  JinjaLimits small;
  small.output_bytes = 1000;
  expect_limit(loop + "0123456789" + end, "output limit (1000 bytes)", small);
  small = {};
  small.steps = 200'000;
  expect_limit(loop + loop + end + end, "step limit (200000)", small);
  small.steps = 500;
  expect_limit("\n" + loop + "{{ i }}" + end, "step limit (500)", small);
}

TEST(JinjaTemplate, LongChainsThatAreNotDeepWork) {
  EXPECT_EQ(render("{{ 0" + repeated(" + 1", 5000) + " }}"), "5000");
  EXPECT_EQ(render("{{ 0" + repeated(" or 0", 5000) + " }}"), "0");
  EXPECT_EQ(render("{% if 0 %}" + repeated("{% elif 0 %}", 3000) + "{% else %}x{% endif %}"), "x");
}

TEST(JinjaTemplate, ValuesAreReservedInTheBudget) {
  Budget budget(8 << 20);
  JinjaLimits limits;
  limits.budget = &budget;
  EXPECT_EQ(render("{{ ('a' * 3000000)|length }}", limits), "3000000");
  EXPECT_EQ(budget.report().reserved, 0U);
  EXPECT_GE(budget.report()[MemoryCategory::tokenizer].peak, 3000000U);
  const std::string text = render("{{ ('a' * 30000000)|length }}", limits);
  EXPECT_TRUE(text.starts_with("error: line 1: ")) << text;
  EXPECT_EQ(budget.report().reserved, 0U);
}

TEST(JinjaTemplate, OneTemplateServesManyThreads) {
  const JinjaTemplate parsed = JinjaTemplate::parse("{% for x in list %}{{ 'v' ~ x }}{% endfor %}").value();
  const JinjaValue data = context();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) EXPECT_EQ(parsed.render(data).value(), "v3v1v2");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(JinjaTemplate, StrftimeNowUsesTheGivenClock) {
  const JinjaTemplate parsed =
      JinjaTemplate::parse("{{ strftime_now('%d %b %Y, %A %B %-d %H:%M:%S %I%p %j %y-%m %F %T %%') }}").value();
  const JinjaValue data = JinjaValue::dict({{"strftime_now", JinjaValue::strftime_now(1709211845)}});
  EXPECT_EQ(parsed.render(data).value(),
            "29 Feb 2024, Thursday February 29 13:04:05 01PM 060 24-02 2024-02-29 13:04:05 %");
}

TEST(JinjaTemplate, JsonLimits) {
  std::string deep;
  for (int level = 0; level < 150; ++level) deep = "[" + deep + "]";
  EXPECT_FALSE(jinja_from_json(nlohmann::json::parse(deep)).ok());
  EXPECT_FALSE(jinja_from_json(nlohmann::json(18446744073709551615ULL)).ok());
}

}  // namespace
}  // namespace carat
