// carat run: one answer, or a chat.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "cli/answer.h"
#include "cli/chat.h"
#include "cli/command.h"
#include "cli/profile_report.h"
#include "cli/text_input.h"
#include "formats/text_file.h"
#include "grammar/grammar.h"
#include "os/file.h"
#include "os/terminal.h"

namespace carat::cli {
namespace {

struct RunOptions {
  CommonOptions common;
  std::optional<std::string> prompt;
  std::string file;
  std::string input;  ///< "-" reads standard input
  bool chat = false;
  bool special = false;
  bool stats = false;
  std::optional<std::string> profile;  ///< empty: no picture
  std::string system;
  std::string overflow = "refuse";
  std::uint32_t max_tokens = std::numeric_limits<std::uint32_t>::max();
  std::string preset;
  std::optional<float> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<std::uint32_t> top_k;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  std::optional<std::uint32_t> logprobs;
  std::string schema_file;
  std::string grammar_file;
};

/// The sampler names its own fields; people typed options.
std::string in_option_names(const std::string& message) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kNames{
      {{"temperature", "--temp"},
       {"top_p", "--top-p"},
       {"min_p", "--min-p"},
       {"repetition_penalty", "--repeat-penalty"}}};
  for (const auto& [field, option] : kNames) {
    if (message.starts_with(field)) return fmt::format("{}{}", option, message.substr(field.size()));
  }
  return message;
}

Result<SamplingParams> sampling_params(const RunOptions& options) {
  CARAT_ASSIGN(SamplingParams params, preset_params(options.preset.empty() ? "balanced" : options.preset));
  params.temperature = options.temperature.value_or(params.temperature);
  params.top_k = options.top_k.value_or(params.top_k);
  params.top_p = options.top_p.value_or(params.top_p);
  params.min_p = options.min_p.value_or(params.min_p);
  params.repetition_penalty = options.repeat_penalty.value_or(params.repetition_penalty);
  params.presence_penalty = options.presence_penalty.value_or(params.presence_penalty);
  params.frequency_penalty = options.frequency_penalty.value_or(params.frequency_penalty);
  // Greedy means the model's own first choice: a preset's penalty must not bend it unless it was asked for.
  if (params.temperature == 0 && !options.repeat_penalty) params.repetition_penalty = 1;
  const Status valid = validate(params, std::numeric_limits<std::uint32_t>::max());
  if (!valid.ok()) return invalid(in_option_names(valid.message()));
  return params;
}

/// What --json-schema or --grammar holds the answers to; null without them.
Result<Grammar::Pointer> asked_grammar(const RunOptions& options) {
  const bool schema = !options.schema_file.empty();
  if (schema && !options.grammar_file.empty()) return invalid("run: give one of --json-schema and --grammar");
  const std::string& path = schema ? options.schema_file : options.grammar_file;
  if (path.empty()) return Grammar::Pointer();
  CARAT_ASSIGN(const TextFile file, read_text_file(path, input_budget(), Grammar::kMaxSourceBytes));
  auto grammar =
      schema ? Grammar::from_json_schema(file.text, &input_budget()) : Grammar::from_gbnf(file.text, &input_budget());
  if (!grammar.ok()) {
    return std::move(grammar).status().with_context(fmt::format("{} {}", schema ? "--json-schema" : "--grammar", path));
  }
  return grammar;
}

/// Everything a request takes from the options but its prompt.
Result<AnswerOptions> answer_options(const RunOptions& options, const Session& session,
                                     const Grammar::Pointer& grammar) {
  AnswerOptions answer;
  answer.request.grammar = grammar;
  CARAT_ASSIGN(answer.request.sampling, sampling_params(options));
  answer.request.seed = options.seed ? *options.seed : std::random_device()();
  answer.request.max_tokens = options.max_tokens;
  answer.request.drafts = options.common.drafts();
  answer.request.wants_logprobs = options.common.json || options.logprobs.has_value();
  answer.request.logprobs = options.logprobs.value_or(0);
  if (session.tokenizer() != nullptr) answer.request.stop_tokens = session.tokenizer()->eos_ids();
  answer.stop_strings = options.stop;
  answer.stream = !options.common.json;
  answer.quiet = options.common.quiet;
  return answer;
}

Result<InputIds> prompt_tokens(const RunOptions& options, Session& session, const std::string& text) {
  CARAT_ASSIGN(const Tokenizer* tokenizer, need_tokenizer(session));
  if (options.chat) {
    CARAT_ASSIGN(const ChatTemplate chat, session_template(session));
    std::vector<ChatMessage> messages = chat_opening(options.system);
    messages.push_back({"user", text});
    return encode_chat(session, chat, messages);
  }
  return encode_text(*tokenizer, text, {.special = options.special}, true, session.budget());
}

/// A picture that cannot be written is refused before the work, not after it.
Status check_profile_file(const RunOptions& options) {
  if (!options.profile || options.profile->empty()) return ok_status();
  if (!options.profile->ends_with(".html")) {
    return invalid(
        fmt::format("--profile {}: expected a FILE.html; without one, --profile comes last", *options.profile));
  }
  return AtomicFile::create(*options.profile).status();
}

/// The table on stderr, unless the machine output has it, and the picture.
Status show_profile(const RunOptions& options, const ProfileReport& report) {
  if (!options.common.json) fmt::print(stderr, "{}", profile_table(report));
  if (options.profile->empty()) return ok_status();
  CARAT_ASSIGN(AtomicFile file, AtomicFile::create(*options.profile));
  CARAT_TRY(file.write(profile_html(report)));
  return file.commit();
}

/// The tokens go out one by one, between the parts before and after them.
Status print_answer_json(Session& session, const Answer& answer, const std::optional<ProfileReport>& profile) {
  constexpr std::size_t kBlock = 16384;
  CARAT_TRY(write_stdout("{\"text\":\""));
  for (std::string_view rest = answer.text; !rest.empty();) {
    std::size_t cut = std::min(kBlock, rest.size());
    while (cut + 4 > kBlock && cut < rest.size() && (rest[cut] & 0xC0) == 0x80) --cut;  // not within a character
    const std::string escaped = json_text(rest.substr(0, cut));
    CARAT_TRY(write_stdout(std::string_view(escaped).substr(1, escaped.size() - 2)));
    rest.remove_prefix(cut);
  }
  std::string text = "\"," + json_text({{"finish_reason", answer.interrupted ? "cancelled" : name(answer.reason)},
                                        {"prompt_tokens", answer.prompt_tokens},
                                        {"completion_tokens", answer.tokens.size()}})
                                 .substr(1);
  text.pop_back();
  text += ",\"tokens\":[";
  for (std::size_t i = 0; i < answer.tokens.size(); ++i) {
    if (i > 0) text += ',';
    text += json_text(token_json(session.tokenizer(), answer, i));
    if (text.size() < kBlock) continue;
    CARAT_TRY(write_stdout(text));
    text.clear();
  }
  text += "],";
  nlohmann::ordered_json rest = {{"timings",
                                  {{"load_s", session.load_seconds()},
                                   {"first_token_s", answer.first_token_seconds},
                                   {"prefill_tokens_per_s", answer.prefill_rate()},
                                   {"decode_tokens_per_s", answer.decode_rate()},
                                   {"decode_steps", answer.drafts.steps},
                                   {"drafted_tokens", answer.drafts.drafted},
                                   {"accepted_tokens", answer.drafts.accepted}}},
                                 {"memory", memory_json(session)}};
  if (profile) rest["profile"] = profile_json(*profile);
  text += json_text(rest).substr(1);
  return write_stdout(text + "\n");
}

Status run_once(const RunOptions& options, const Grammar::Pointer& grammar, Session& session, Engine& engine,
                const std::string& text) {
  CARAT_ASSIGN(AnswerOptions asked, answer_options(options, session, grammar));
  Profile* const profile = session.decoder().profile();
  if (profile != nullptr) profile->begin();
  {
    const ProfileClock clock(profile, ProfileModule::tokenizer);
    if (profile != nullptr) profile->add_bytes(ProfileModule::tokenizer, text.size());
    CARAT_ASSIGN(InputIds prompt, prompt_tokens(options, session, text));
    asked.prompt_room = std::move(prompt.room);
    asked.request.prompt = std::move(prompt.ids);
  }
  if (asked.request.prompt.empty()) return invalid("the prompt is empty and the model takes no BOS token");
  if (options.overflow == "truncate-left") {
    truncate_left(asked.request.prompt, session.kv().context(), session.tokenizer());
  }
  CARAT_ASSIGN(const Answer answer, make_answer(session, engine, std::move(asked)));
  std::optional<ProfileReport> report;
  if (profile != nullptr) report = make_profile_report(session, *profile, answer);
  if (options.common.json) {
    CARAT_TRY(print_answer_json(session, answer, report));
  } else {
    CARAT_TRY(write_stdout("\n"));
  }
  if (report) CARAT_TRY(show_profile(options, *report));
  if (options.stats || answer.interrupted) fmt::print(stderr, "{}", stats_text(session, answer));
  return answer.interrupted ? interrupted("") : ok_status();
}

/// A chat as the options want it.
Status chat_as_asked(const RunOptions& options, const Grammar::Pointer& grammar, Session& session, Engine& engine,
                     LineEditor* editor) {
  ChatSetup setup;
  setup.system = options.system;
  setup.truncate_left = options.overflow == "truncate-left";
  setup.stats = options.stats;
  setup.quiet = options.common.quiet;
  setup.ask = [&] { return answer_options(options, session, grammar); };
  setup.answered = [&](const Answer& answer) {
    Profile* const profile = session.decoder().profile();
    return profile == nullptr ? ok_status() : show_profile(options, make_profile_report(session, *profile, answer));
  };
  return run_chat(session, engine, setup, editor);
}

/// Where the prompt comes from; nothing when people are to be asked for it.
Result<std::optional<InputText>> prompt_source(const RunOptions& options) {
  if (!options.input.empty() && options.input != "-") {
    return invalid(
        fmt::format("run: unexpected argument '{}'; give the prompt with -p TEXT or -f FILE, or - for "
                    "standard input",
                    options.input));
  }
  const int sources = (options.prompt ? 1 : 0) + (options.file.empty() ? 0 : 1) + (options.input.empty() ? 0 : 1);
  if (sources > 1) return invalid("run: give one of -p TEXT, -f FILE and -");
  if (options.prompt) return std::optional(InputText{{}, clean_text(*options.prompt)});
  if (sources == 0 && is_terminal(STDIN_FILENO)) {
    if (options.common.json) return invalid("run: --json needs a prompt: give -p TEXT, -f FILE or -");
    return std::optional<InputText>();
  }
  CARAT_ASSIGN(InputText text, read_input_text(options.file.empty() ? "-" : options.file, options.common));
  return std::optional(std::move(text));
}

/// A number that was asked for is not lowered in silence.
void note_fewer_drafts(const RunOptions& options, const SessionOptions& asked, const Plan& plan) {
  if (options.common.drafts() != Drafts::always || plan.ask.draft_tokens >= asked.draft_tokens) return;
  log_note(fmt::format("--speculate {}: {} at a time, {}", asked.draft_tokens, plan.ask.draft_tokens,
                       drafts_are_exact(plan.ask) ? "the budget, --chunk or --ctx has room for no more"
                                                  : "they would not be exact with --kv-global auto or --kv-evict"));
}

Status run_run(const RunOptions& options) {
  if (options.overflow != "refuse" && options.overflow != "truncate-left") {
    return invalid(fmt::format("--overflow {}: expected refuse or truncate-left", options.overflow));
  }
  CARAT_ASSIGN(SessionOptions asked, options.common.session());
  CARAT_TRY(sampling_params(options).status());
  CARAT_TRY(check_profile_file(options));
  CARAT_ASSIGN(const Grammar::Pointer grammar, asked_grammar(options));
  asked.grammar = grammar != nullptr;
  CARAT_ASSIGN(const std::optional<InputText> input, prompt_source(options));
  asked.chat = options.chat || !input;
  asked.keep_turns = !input;
  const std::unique_ptr<LineEditor> editor = input ? nullptr : open_line_editor();
  if (input) asked.input_bytes = input_room(input->text, options.chat);
  CARAT_ASSIGN(auto session, Session::open(asked, progress_bar("loading", options.common.quiet)));
  CARAT_ASSIGN(Engine engine, Engine::create(*session));
  note_fewer_drafts(options, asked, session->plan());
  Profile profile;
  if (options.profile) session->decoder().set_profile(&profile);
  return input ? run_once(options, grammar, *session, engine, input->text)
               : chat_as_asked(options, grammar, *session, engine, editor.get());
}

void add_sampling_options(CLI::App& command, RunOptions& options) {
  command.add_option("--preset", options.preset, "precise, balanced (default), creative, json, code");
  command.add_option("--temp", options.temperature, "temperature; 0 takes the most likely token");
  command.add_option("--top-k", options.top_k, "sample among the K most likely tokens");
  command.add_option("--top-p", options.top_p, "sample among the most likely tokens that make up P");
  command.add_option("--min-p", options.min_p, "drop tokens less likely than this share of the most likely");
  command.add_option("--repeat-penalty", options.repeat_penalty, "penalty on tokens seen before; 1 is none");
  command.add_option("--presence-penalty", options.presence_penalty, "subtracted once from tokens of the answer");
  command.add_option("--frequency-penalty", options.frequency_penalty, "subtracted each time a token was made");
  command.add_option("--seed", options.seed, "seed of the sampler (default: random)");
  command.add_option("--stop", options.stop, "end the answer before this text; may be given more than once")
      ->allow_extra_args(false);
  command.add_option("--logprobs", options.logprobs, "report the K most likely tokens of each step (with --json)")
      ->check(CLI::Range(0U, kListedCandidates));
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command =
      add_command(app, action, "run", "answer a prompt, or chat",
                  "carat run gemma3-270m -p \"Once upon a time\" -n 64 --memory 420M", options, run_run);
  add_model_options(*command, options->common);
  add_memory_options(*command, options->common);
  add_head_option(*command, options->common);
  add_speculate_option(*command, options->common);
  command->add_option("input", options->input, "- reads the prompt from standard input");
  command->add_option("-p,--prompt", options->prompt, "the prompt");
  command->add_option("-f,--file", options->file, "a file that holds the prompt, - for standard input");
  command->add_option("-n,--tokens", options->max_tokens, "most tokens of the answer (default: to the end)");
  command->add_flag("--chat", options->chat, "render the prompt as a user turn with the model's chat template");
  command->add_option("--system", options->system, "system text of the chat");
  command->add_flag("--special", options->special, "recognise control pieces in the prompt");
  command->add_option("--overflow", options->overflow, "a prompt longer than the context: refuse or truncate-left");
  command->add_option("--json-schema", options->schema_file, "hold the answers to the JSON Schema in this file");
  command->add_option("--grammar", options->grammar_file, "hold the answers to the GBNF grammar in this file");
  command->add_flag("--stats", options->stats, "print speed and the memory table to stderr");
  command
      ->add_option("--profile", options->profile,
                   "print time, bytes and memory by module to stderr; with FILE.html also as a picture")
      ->expected(0, 1)
      ->type_name("[FILE.html]");
  add_sampling_options(*command, *options);
}

}  // namespace carat::cli
