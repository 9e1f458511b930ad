// Every field of a request: what is taken, what is refused and under which name.
#include <gtest/gtest.h>

#include <string>

#include "server/api_request.h"
#include "server/tool_calls.h"

namespace carat::test {
namespace {

using namespace carat::server;

constexpr RequestLimits kLimits{.vocab = 1000, .context = 64, .most_choices = 8, .most_messages = 4};

/// The refused field, "" where the body is taken.
std::string refused_text(const std::string& fields) {
  CompletionRequest request;
  const auto error =
      parse_completion("{\"prompt\":\"x\"" + (fields.empty() ? "" : "," + fields) + "}", kLimits, request);
  return error ? (error->param.empty() ? "-" : error->param) : "";
}

std::string refused_chat(const std::string& fields,
                         const std::string& messages = R"([{"role":"user","content":"x"}])") {
  ChatRequest request;
  const auto error =
      parse_chat("{\"messages\":" + messages + (fields.empty() ? "" : "," + fields) + "}", kLimits, request);
  return error ? (error->param.empty() ? "-" : error->param) : "";
}

struct FieldCase {
  std::string fields;
  std::string param;
};

TEST(RequestFields, OfBothKinds) {
  const FieldCase table[] = {
      {R"("temperature":0)", ""},
      {R"("temperature":2)", ""},
      {R"("temperature":null)", ""},
      {R"("temperature":-0.1)", "temperature"},
      {R"("temperature":2.1)", "temperature"},
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":true)", "temperature"},
      {R"("temperature":[1])", "temperature"},
      {R"("temperature":{})", "temperature"},
      {R"("temperature":1e999)", "-"},
      {R"("top_p":0)", ""},
      {R"("top_p":1.5)", "top_p"},
      {R"("min_p":-1)", "min_p"},
      {R"("top_k":-1)", ""},
      {R"("top_k":40.0)", ""},
      {R"("top_k":40.5)", "top_k"},
      {R"("top_k":-2)", "top_k"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("presence_penalty":2.5)", "presence_penalty"},
      {R"("frequency_penalty":-2.5)", "frequency_penalty"},
      {R"("seed":-1)", ""},
      {R"("seed":9223372036854775807)", ""},
      {R"("seed":1e300)", "seed"},
      {R"("seed":"1")", "seed"},
      {R"("max_tokens":-5)", "max_tokens"},
      {R"("max_tokens":99999999999)", "max_tokens"},
      {R"("max_tokens":"4")", "max_tokens"},
      {R"("stop":"a")", ""},
      {R"("stop":["a","b"])", ""},
      {R"("stop":[""])", ""},
      {R"("stop":[1])", "stop[0]"},
      {R"("stop":1)", "stop"},
      {R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16"])", ""},
      {R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])", "stop"},
      {"\"stop\":\"" + std::string(1025, 'a') + "\"", "stop"},
      {R"("logit_bias":{"5":-100,"999":100})", ""},
      {R"("logit_bias":{"1000":1})", "logit_bias"},
      {R"("logit_bias":{"-1":1})", "logit_bias"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":{"5":101})", "logit_bias.5"},
      {R"("logit_bias":{"5":"1"})", "logit_bias.5"},
      {R"("logit_bias":[])", "logit_bias"},
      {R"("n":0)", "n"},
      {R"("n":8)", ""},
      {R"("n":9)", "n"},
      {R"("n":2,"best_of":2)", ""},
      {R"("n":2,"best_of":3)", "best_of"},
      {R"("stream":"yes")", "stream"},
      {R"("stream":true,"stream_options":{"include_usage":true,"more":1})", ""},
      {R"("stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"("stream_options":[])", "stream_options"},
      {R"("model":7)", "model"},
      {R"("user":"me","unknown":{"deep":[1,{"x":null}]})", ""},
      {R"("response_format":{"type":"text"})", ""},
      {R"("response_format":{"type":"json_object"})", ""},
      {R"("response_format":{"type":"xml"})", "response_format.type"},
      {R"("response_format":{})", "response_format.type"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"a"}})", "response_format.json_schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"string"}}})", ""},
      {R"("grammar":5)", "grammar"},
      {"\"grammar\":\"" + std::string(70000, 'a') + "\"", "grammar"},
      {"\"temperature\":1,", "-"},
      {"\"temperature\":tru", "temperature"},
      {"\"x\":nul", "-"},
      {"\"x\":" + std::string(100, '['), "-"},
  };
  for (const FieldCase& one : table) {
    EXPECT_EQ(refused_text(one.fields), one.param) << one.fields.substr(0, 100);
    EXPECT_EQ(refused_chat(one.fields), one.param) << one.fields.substr(0, 100);
  }
}

TEST(RequestFields, OfOneKindAlone) {
  EXPECT_EQ(refused_text(R"("max_tokens":0)"), "");
  EXPECT_EQ(refused_chat(R"("max_tokens":0)"), "max_tokens");
  EXPECT_EQ(refused_text(R"("logprobs":20)"), "");
  EXPECT_EQ(refused_text(R"("logprobs":21)"), "logprobs");
  EXPECT_EQ(refused_text(R"("logprobs":true)"), "logprobs");
  EXPECT_EQ(refused_chat(R"("logprobs":true,"top_logprobs":20)"), "");
  EXPECT_EQ(refused_chat(R"("logprobs":3)"), "logprobs");
  EXPECT_EQ(refused_chat(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs");
  EXPECT_EQ(refused_chat(R"("top_logprobs":2)"), "top_logprobs");
  EXPECT_EQ(refused_text(R"("echo":1)"), "echo");
  EXPECT_EQ(refused_text(R"("suffix":"")"), "");
  EXPECT_EQ(refused_text(R"("suffix":"x")"), "suffix");
}

TEST(RequestFields, TheNewerNameOfMaxTokensCounts) {
  for (const char* body :
       {R"({"messages":[{"role":"user","content":"x"}],"max_tokens":3,"max_completion_tokens":9})",
        R"({"messages":[{"role":"user","content":"x"}],"max_completion_tokens":9,"max_tokens":3})"}) {
    ChatRequest request;
    ASSERT_FALSE(parse_chat(body, kLimits, request));
    EXPECT_EQ(request.fields.max_tokens, 9U);
  }
}

TEST(Prompts, AllFourForms) {
  const auto parse = [](const std::string& prompt, CompletionRequest& request) {
    const auto error = parse_completion("{\"prompt\":" + prompt + "}", kLimits, request);
    return error ? (error->param.empty() ? "-" : error->param) : "";
  };
  CompletionRequest request;
  EXPECT_EQ(parse(R"("a\u00e9\ud83d\ude00")", request), "");
  EXPECT_EQ(request.prompts.at(0).text, "a\u00e9\U0001F600");
  EXPECT_EQ(parse("[1,2,999]", request), "");
  EXPECT_EQ(request.prompts.at(0).ids, (std::vector<std::int32_t>{1, 2, 999}));
  EXPECT_EQ(parse(R"(["a","b"])", request), "");
  EXPECT_EQ(request.prompts.size(), 2U);
  EXPECT_EQ(parse("[[1],[2,3]]", request), "");
  EXPECT_EQ(request.prompts.at(1).ids, (std::vector<std::int32_t>{2, 3}));
  // Of a prompt that is too long only the count is kept.
  std::string many = "[1";
  for (int i = 0; i < 5000; ++i) many += ",1";
  EXPECT_EQ(parse(many + "]", request), "");
  EXPECT_EQ(request.prompts.at(0).id_count, 5001U);
  EXPECT_EQ(request.prompts.at(0).ids.size(), 65U);
  EXPECT_EQ(parse("[-1]", request), "prompt");
  EXPECT_EQ(parse("[1000]", request), "prompt");
  EXPECT_EQ(parse("[1.5]", request), "prompt");
  EXPECT_EQ(parse("[1,\"a\"]", request), "prompt");
  EXPECT_EQ(parse("[[1],[]]", request), "prompt[1]");
  EXPECT_EQ(parse("[[1],[-1]]", request), "prompt[1]");
  EXPECT_EQ(parse("[]", request), "prompt");
  EXPECT_EQ(parse("{}", request), "prompt");
  EXPECT_EQ(parse("null", request), "prompt");
  EXPECT_EQ(parse("[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]", request), "prompt");
  EXPECT_EQ(refused_text(R"("prompt":["a","b","c","d","e"],"n":2)"), "n");
}

TEST(Bodies, ThatAreNoObject) {
  for (const char* body : {"", "[]", "\"x\"", "{", "{}", "{\"prompt\":\"x\"} x", "\xff\xfe", "nul", "{\"a\":1,}"}) {
    CompletionRequest text;
    EXPECT_TRUE(parse_completion(body, kLimits, text)) << body;
    ChatRequest chat;
    EXPECT_TRUE(parse_chat(body, kLimits, chat)) << body;
    TokenizeRequest tokenize;
    EXPECT_TRUE(parse_tokenize(body, tokenize)) << body;
    DetokenizeRequest detokenize;
    EXPECT_TRUE(parse_detokenize(body, kLimits, detokenize)) << body;
  }
}

TEST(Messages, RolesAndContents) {
  const FieldCase table[] = {
      {R"([])", "messages"},
      {R"({})", "messages"},
      {R"([1])", "messages[0]"},
      {R"([{"content":"x"}])", "messages[0].role"},
      {R"([{"role":"user"}])", "messages[0].content"},
      {R"([{"role":"user","content":null}])", "messages[0].content"},
      {R"([{"role":"user","content":5}])", "messages[0].content"},
      {R"([{"role":"martian","content":"x"}])", "messages[0].role"},
      {R"([{"role":"user","content":"x"},{"role":1,"content":"x"}])", "messages[1].role"},
      {R"([{"role":"developer","content":"x"},{"role":"user","content":"x"}])", ""},
      {R"([{"role":"user","content":[{"type":"text","text":"a"}]}])", ""},
      {R"([{"role":"user","content":[{"type":"input_audio"}]}])", "messages[0].content[0].type"},
      {R"([{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}])",
       ""},
      {R"([{"role":"assistant","tool_calls":[{"id":"1","function":{}}]}])", "messages[0].tool_calls[0].function.name"},
      {R"([{"role":"tool","tool_call_id":"1","content":"42"}])", ""},
      {R"([{"role":"user","content":"1"},{"role":"user","content":"2"},{"role":"user","content":"3"},)"
       R"({"role":"user","content":"4"},{"role":"user","content":"5"}])",
       "messages"},
  };
  for (const FieldCase& one : table) EXPECT_EQ(refused_chat("", one.fields), one.param) << one.fields;
}

TEST(Tools, DefinitionsAndChoice) {
  const std::string tool = R"({"type":"function","function":{"name":"get_time","parameters":{"type":"object"}}})";
  const FieldCase table[] = {
      {"\"tools\":[" + tool + "]", ""},
      {"\"tools\":[" + tool + "],\"tool_choice\":\"required\"", ""},
      {"\"tools\":[" + tool + "],\"tool_choice\":\"none\"", ""},
      {"\"tools\":[" + tool + "],\"tool_choice\":\"sometimes\"", "tool_choice"},
      {"\"tools\":[" + tool + R"(],"tool_choice":{"type":"function","function":{"name":"get_time"}})", ""},
      {"\"tools\":[" + tool + R"(],"tool_choice":{"type":"function","function":{"name":"other"}})", "tool_choice"},
      {"\"tools\":[" + tool + R"(],"tool_choice":5)", "tool_choice"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tool_choice":"auto")", ""},
      {R"("tools":{})", "tools"},
      {R"("tools":[{"type":"web"}])", "tools[0].type"},
      {R"("tools":[{"type":"function","function":{"name":"has space"}}])", "tools[0].function.name"},
      {R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])", "tools[0].function.parameters"},
      {"\"tools\":[" + tool + R"(],"tool_choice":"required","response_format":{"type":"json_object"})", "tool_choice"},
  };
  for (const FieldCase& one : table) EXPECT_EQ(refused_chat(one.fields), one.param) << one.fields;
}

TEST(Tools, ACallIsOneObject) {
  const auto call = parse_call(R"( {"name": "f", "arguments": {"x": [1, "}"]}} )");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->name, "f");
  EXPECT_EQ(call->arguments, R"({"x": [1, "}"]})");
  for (const char* cut : {"", "{", R"({"name": "f", "arguments": {"x": 1)", R"({"name": "f"})", "plain text", "[]"}) {
    EXPECT_FALSE(parse_call(cut)) << cut;
  }
  const auto again = parse_call(call_text({.name = "g\"", .arguments = ""}));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->name, "g\"");
  EXPECT_EQ(again->arguments, "{}");
}

TEST(Tools, ReferencesMoveWithTheSchema) {
  const Tool tools[] = {
      {"f", "", R"({"type":"object","properties":{"p":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"string"}}})"},
      {"g", "", ""}};
  const auto both = call_schema(tools, "");
  ASSERT_TRUE(both.ok());
  EXPECT_NE(both->find("#/$defs/tool0/$defs/a"), std::string::npos) << *both;
  EXPECT_NE(both->find("\"anyOf\""), std::string::npos);
  const auto one = call_schema(tools, "g");
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->find("anyOf"), std::string::npos) << *one;
  EXPECT_EQ(one->find("\"f\""), std::string::npos);
  const Tool wrong[] = {{"h", "", "[1]"}};
  EXPECT_FALSE(call_schema(wrong, "").ok());
}

}  // namespace
}  // namespace carat::test
