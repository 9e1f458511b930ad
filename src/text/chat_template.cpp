#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <utility>

namespace carat {
namespace {

/// Written for this program after the turns described in the Gemma documentation. Roles: system (first only), user,
/// assistant (also called model). A system text without a user text behind it becomes a user turn of its own.
constexpr std::string_view kGemmaTurns = R"JINJA({{ bos_token }}
{%- set ns = namespace(system='', previous='') -%}
{%- for message in messages -%}
  {%- set number = 'message ' ~ loop.index ~ ': ' -%}
  {%- if message.content is not string -%}
    {{ raise_exception(number ~ 'the content must be a string') }}
  {%- endif -%}
  {%- if message.role == 'system' -%}
    {%- if not loop.first -%}
      {{ raise_exception(number ~ 'only the first message can have the role system') }}
    {%- endif -%}
    {%- set ns.system = message.content | trim -%}
    {%- if loop.last -%}
      {{ '<start_of_turn>user\n' ~ ns.system ~ '<end_of_turn>\n' }}
    {%- endif -%}
  {%- elif message.role in ['user', 'assistant', 'model'] -%}
    {%- set role = 'user' if message.role == 'user' else 'model' -%}
    {%- if role == ns.previous -%}
      {{ raise_exception(number ~ "role '" ~ message.role ~ "' follows the same role; user and assistant must alternate") }}
    {%- elif ns.previous == '' and role == 'model' -%}
      {{ raise_exception(number ~ 'the first turn must be of the role user') }}
    {%- endif -%}
    {{ '<start_of_turn>' ~ role ~ '\n' }}
    {%- if ns.previous == '' and ns.system -%}
      {{ ns.system ~ '\n\n' }}
    {%- endif -%}
    {{ message.content | trim ~ '<end_of_turn>\n' }}
    {%- set ns.previous = role -%}
  {%- else -%}
    {{ raise_exception(number ~ "role '" ~ message.role ~ "' is unknown; use system, user or assistant") }}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{ '<start_of_turn>model\n' }}
{%- endif -%}
)JINJA";

/// A role from this closed set cannot carry anything of a user's, and templates build markers of it ('<|' + role +
/// '|>'), so it counts as the template's own text. Any other role is data.
bool is_known_role(std::string_view role) {
  static constexpr std::array<std::string_view, 7> kRoles = {"system", "user",      "assistant", "model",
                                                             "tool",   "developer", "ipython"};
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

using Variables = std::vector<std::pair<std::string, JinjaValue>>;

void set_variable(Variables& variables, std::string_view name, JinjaValue value) {
  const auto place =
      std::find_if(variables.begin(), variables.end(), [&](const auto& variable) { return variable.first == name; });
  if (place != variables.end()) {
    place->second = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

Status add_dict(Variables& variables, const JinjaValue& dict, std::string_view what) {
  if (dict.is_undefined() || dict.is_none()) return ok_status();
  if (!dict.is_dict()) return invalid(std::string(what) + " must be a JSON object");
  for (const auto& [key, value] : dict.as_dict().entries) {
    if (key.is_text()) set_variable(variables, key.as_text().view(), value);
  }
  return ok_status();
}

}  // namespace

std::string joined(std::span<const PromptSegment> segments) {
  std::string text;
  for (const PromptSegment& segment : segments) text += segment.text;
  return text;
}

Result<ChatTemplate> ChatTemplate::create(std::string_view source, std::string_view bos, std::string_view eos) {
  if (source.empty()) {
    return invalid("the model has no chat template (a base model?): use raw text, or an instruction-tuned model");
  }
  Result<JinjaTemplate> parsed = JinjaTemplate::parse(source);
  if (!parsed.ok()) return std::move(parsed).status().with_context("chat template");
  return ChatTemplate(std::move(parsed).value(), source, bos, eos);
}

ChatTemplate ChatTemplate::gemma_turns(std::string_view bos) { return create(kGemmaTurns, bos, "<eos>").value(); }

Result<std::vector<PromptSegment>> ChatTemplate::render(std::span<const ChatMessage> messages,
                                                        const ChatTemplateOptions& options) const {
  if (messages.empty()) return invalid("a chat needs at least one message");
  std::vector<JinjaValue> turns;
  for (const ChatMessage& message : messages) {
    Variables keys;
    keys.emplace_back(
        "role", is_known_role(message.role) ? JinjaValue::program_text(message.role) : JinjaValue::text(message.role));
    keys.emplace_back("content", JinjaValue::text(message.content));
    CARAT_TRY(add_dict(keys, message.extras, "the further keys of message " + std::to_string(turns.size() + 1)));
    turns.push_back(JinjaValue::dict(std::move(keys)));
  }
  Variables variables;
  variables.emplace_back("messages", JinjaValue::list(std::move(turns)));
  variables.emplace_back("tools", options.tools);
  variables.emplace_back("documents", JinjaValue::none());
  variables.emplace_back("add_generation_prompt", JinjaValue::boolean(options.add_generation_prompt));
  if (options.wall_clock) variables.emplace_back("strftime_now", JinjaValue::strftime_now(*options.wall_clock));
  CARAT_TRY(add_dict(variables, options.variables, "the variables of the chat template"));
  set_variable(variables, "bos_token", JinjaValue::program_text(bos_));
  set_variable(variables, "eos_token", JinjaValue::program_text(eos_));

  Result<JinjaText> text = template_.render_text(JinjaValue::dict(std::move(variables)), options.limits);
  if (!text.ok()) return std::move(text).status().with_context("chat template");
  std::vector<PromptSegment> segments;
  std::size_t begin = 0;
  for (const JinjaText::Run& run : text->runs()) {
    segments.push_back({std::string(text->view().substr(begin, run.end - begin)), run.origin == JinjaOrigin::program});
    begin = run.end;
  }
  return segments;
}

}  // namespace carat
