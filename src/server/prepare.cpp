#include "server/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "server/chat_prompt.h"
#include "server/tool_calls.h"
#include "text/json_text.h"

namespace carat::server {
namespace {

constexpr std::uint32_t kDefaultTextTokens = 16;  // as OpenAI has it

ApiError too_long(std::string_view param, std::size_t tokens, std::uint32_t context) {
  ApiError error = bad_field(std::string(param),
                             fmt::format("the prompt has {} tokens, more than the context of {}", tokens, context));
  error.code = "context_length_exceeded";
  return error;
}

/// The ids of a text, BOS before them where the model wants one. Of longer texts than the context only the count is
/// kept.
Status encode_text(const Tokenizer& tokenizer, std::string_view text, bool bos, std::uint32_t context,
                   std::vector<std::int32_t>& ids, std::size_t& count) {
  ids.clear();
  if (bos && tokenizer.add_bos() && tokenizer.bos() != kNoToken) ids.push_back(tokenizer.bos());
  count = ids.size();
  return tokenizer.encode(text, {}, [&](std::span<const std::int32_t> part) {
    count += part.size();
    if (count <= context) ids.insert(ids.end(), part.begin(), part.end());
    return ok_status();
  });
}

/// What is the same for chats and texts.
class Preparation {
 public:
  explicit Preparation(const PrepareContext& context)
      : model_(context.model), limits_(context.limits), metrics_(context.metrics) {}

  Answering take() { return std::move(answering_); }
  ResponseStyle style;
  GenerationPlan plan;

  const Tokenizer& tokenizer() const { return *model_.session->tokenizer(); }
  std::uint32_t context() const { return model_.session->kv().context(); }

  /// `param`: where the prompt came from.
  std::optional<ApiError> add_prompt(std::vector<std::int32_t> ids, std::size_t count, std::string_view param) {
    if (count > context()) return too_long(param, count, context());
    if (ids.empty()) return bad_field(std::string(param), fmt::format("{}: is empty", param));
    longest_ = std::max(longest_, ids.size());
    tokens_ += ids.size();
    // And the copies that the engine is given.
    bytes_ += 2 * ids.size() * sizeof(std::int32_t);
    plan.prompts.push_back(std::move(ids));
    return std::nullopt;
  }

  void add_echo(std::string text) {
    bytes_ += text.size();
    style.echoed.push_back(std::move(text));
  }

  std::optional<ApiError> add_tools(const ChatRequest& request) {
    const ToolChoice& choice = request.tool_choice;
    if (choice.kind == ToolChoice::Kind::none) return std::nullopt;
    const auto schema = call_schema(request.tools, choice.kind == ToolChoice::Kind::named ? choice.name : "");
    if (!schema.ok()) return bad_field("tools", "tools: " + schema.status().message());
    plan.tools = choice.kind == ToolChoice::Kind::automatic ? ToolUse::automatic : ToolUse::always;
    return take(Grammar::from_json_schema(*schema, &model_.session->budget()), "tools", plan.calls);
  }

  std::optional<ApiError> finish(GenerationFields& fields, std::uint32_t default_tokens) {
    Request& request = plan.request;
    request.max_tokens = fields.max_tokens.value_or(default_tokens);
    if (limits_.most_answer > 0) request.max_tokens = std::min(request.max_tokens, limits_.most_answer);
    const std::uint32_t most = limits_.max_request_tokens;
    if (most > 0 && longest_ + (fields.max_tokens ? request.max_tokens : 0) > most) {
      ApiError error = bad_field("max_tokens", fmt::format("{} tokens of prompt and {} of answer are more than the {} "
                                                           "that a request may have",
                                                           longest_, request.max_tokens, most));
      error.code = "token_budget_exceeded";
      metrics_.refused("token_budget");
      if (limits_.reduced) return unavailable(error.message + " while load is high", "degraded", 5);
      return error;
    }
    if (most > 0) request.max_tokens = std::min(request.max_tokens, most - static_cast<std::uint32_t>(longest_));
    request.sampling = fields.sampling;
    request.stop_tokens = tokenizer().eos_ids();
    request.wants_logprobs = fields.wants_logprobs;
    request.logprobs = fields.top_logprobs;
    request.drafts = model_.drafts;
    if (auto error = constrain(fields.constraint)) return error;
    plan.grammar = std::move(grammar_);
    plan.n = fields.n;
    plan.seed = fields.seed ? *fields.seed : std::random_device()();
    plan.stops = std::move(fields.stop);
    plan.window = model_.session->plan().ask.parallel;
    style.stream = fields.stream;
    plan.stream = fields.stream;
    if (request.prompt_logprobs) {
      // Vectors that grow, until their text is asked for.
      bytes_ += 2 * tokens_ * (sizeof(TokenDetail) + request.logprobs * sizeof(TokenLogprob));
    }
    style.include_usage = fields.include_usage;
    style.wants_logprobs = fields.wants_logprobs;
    style.tops = fields.top_logprobs > 0;
    style.n = fields.n;
    style.model = model_.id;
    style.created = std::time(nullptr);
    style.id = (style.chat ? "chatcmpl-" : "cmpl-") + random_hex(24);
    auto room = model_.session->budget().try_reserve(MemoryCategory::io, bytes_ < kSmallBlock ? 0 : bytes_, "prompts");
    if (!room.ok()) return api_error(room.status());
    answering_.room = std::move(room).value();
    const auto answers = static_cast<std::uint32_t>(plan.prompts.size() * plan.n);
    answering_.generation = std::make_shared<Generation>(*model_.runner, tokenizer(), std::move(plan));
    answering_.builder.emplace(std::move(style), tokenizer(), model_.session->budget(), answers);
    return std::nullopt;
  }

 private:
  std::optional<ApiError> constrain(const Constraint& constraint) {
    if (constraint.kind == Constraint::Kind::none) return std::nullopt;
    const GrammarKind kind = constraint.kind == Constraint::Kind::json_object   ? GrammarKind::json_object
                             : constraint.kind == Constraint::Kind::json_schema ? GrammarKind::json_schema
                                                                                : GrammarKind::gbnf;
    return take(model_.session->grammars().get(kind, constraint.source), constraint.param, grammar_);
  }

  static std::optional<ApiError> take(Result<Grammar::Pointer> compiled, const std::string& param,
                                      Grammar::Pointer& grammar) {
    if (compiled.ok()) {
      grammar = std::move(compiled).value();
      return std::nullopt;
    }
    ApiError error = api_error(compiled.status());
    error.param = param;
    error.message = param + ": " + error.message;
    return error;
  }

  const ServedModel& model_;
  const ServiceLimits& limits_;
  Metrics& metrics_;
  Grammar::Pointer grammar_;
  Answering answering_;
  std::size_t longest_ = 0;
  std::uint64_t tokens_ = 0;
  std::uint64_t bytes_ = 0;  ///< that stay as long as the request
};

std::string echoed_text(const Tokenizer& tokenizer, const PromptInput& prompt) {
  return prompt.is_ids ? tokenizer.decode(prompt.ids) : prompt.text;
}

}  // namespace

Prepared prepare_completion(const PrepareContext& context, std::string_view body) {
  CompletionRequest request;
  if (auto error = parse_completion(body, context.fields, request)) return error_response(*error);
  Preparation work(context);
  if (request.fields.max_tokens == 0U && !request.echo) {
    return error_response(bad_field("max_tokens", "max_tokens: 0 goes with echo, to score the prompt"));
  }
  for (std::size_t i = 0; i < request.prompts.size(); ++i) {
    PromptInput& prompt = request.prompts[i];
    const std::string param = request.prompts.size() == 1 ? "prompt" : fmt::format("prompt[{}]", i);
    if (!prompt.is_ids) {
      const Status encoded =
          encode_text(work.tokenizer(), prompt.text, true, work.context(), prompt.ids, prompt.id_count);
      if (!encoded.ok()) return error_response(api_error(encoded));
    }
    if (request.echo && prompt.id_count <= work.context()) {
      work.add_echo(echoed_text(work.tokenizer(), prompt));
    }
    if (auto error = work.add_prompt(std::move(prompt.ids), prompt.id_count, param)) return error_response(*error);
  }
  work.plan.request.prompt_logprobs = request.echo && request.fields.wants_logprobs;
  if (auto error = work.finish(request.fields, kDefaultTextTokens)) return error_response(*error);
  Answering answering = work.take();
  if (context.limits.log_prompts && !request.prompts.empty())
    answering.prompt = std::move(request.prompts.front().text);
  return answering;
}

Prepared prepare_chat(const PrepareContext& context, std::string_view body) {
  const ServedModel& model = context.model;
  ChatRequest request;
  if (auto error = parse_chat(body, context.fields, request)) return error_response(*error);
  if (!model.chat) {
    ApiError error{.message = fmt::format("{} is a base model without a chat template; it continues texts: use "
                                          "/v1/completions",
                                          model.id)};
    error.code = "no_chat_template";
    return error_response(error);
  }
  Preparation work(context);
  work.style.chat = true;
  std::vector<std::int32_t> ids;
  if (auto error = chat_prompt(*model.chat, work.tokenizer(), request, work.context(), model.session->budget(), ids)) {
    return error_response(*error);
  }
  const std::size_t count = ids.size();
  if (auto error = work.add_prompt(std::move(ids), count, "messages")) return error_response(*error);
  if (auto error = work.add_tools(request)) return error_response(*error);
  if (auto error = work.finish(request.fields, work.context())) return error_response(*error);
  Answering answering = work.take();
  if (context.limits.log_prompts) answering.prompt = std::move(request.messages.back().content);
  return answering;
}

HttpResponse tokenize(const ServedModel& model, std::string_view body) {
  TokenizeRequest request;
  if (auto error = parse_tokenize(body, request)) return error_response(*error);
  const Tokenizer& tokenizer = *model.session->tokenizer();
  HttpResponse response;
  Reservation room;
  std::size_t count = 0;
  response.body = "{\"tokens\":[";
  // A token is at least a byte of text or so, and at most eight bytes of JSON.
  auto reserved = model.session->budget().try_reserve(
      MemoryCategory::io, request.content.size() < kSmallBlock / 16 ? 0 : 16 * request.content.size(),
      "tokens as JSON");
  if (!reserved.ok()) return error_response(api_error(reserved.status()));
  const auto put = [&](std::int32_t id) {
    if (count++ > 0) response.body += ',';
    response.body += std::to_string(id);
  };
  if (request.add_special && tokenizer.add_bos() && tokenizer.bos() != kNoToken) put(tokenizer.bos());
  const Status encoded = tokenizer.encode(request.content, {}, [&](std::span<const std::int32_t> ids) {
    for (const std::int32_t id : ids) put(id);
    return ok_status();
  });
  if (!encoded.ok()) return error_response(api_error(encoded));
  response.body += fmt::format("],\"count\":{},\"max_model_len\":{}}}", count, model.session->kv().context());
  return response;
}

HttpResponse detokenize(const ServedModel& model, const RequestLimits& fields, std::string_view body) {
  DetokenizeRequest request;
  if (auto error = parse_detokenize(body, fields, request)) return error_response(*error);
  HttpResponse response;
  response.body = "{\"content\":";
  append_json_string(response.body, model.session->tokenizer()->decode(request.tokens));
  response.body += '}';
  return response;
}

}  // namespace carat::server
