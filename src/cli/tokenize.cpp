// carat tokenize and detokenize.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/text_input.h"

namespace carat::cli {
namespace {

struct TokenizeOptions {
  CommonOptions common;
  std::string text;
  bool text_given = false;
  bool pieces = false;
  bool no_bos = false;
  bool special = false;
};

struct DetokenizeOptions {
  CommonOptions common;
  std::vector<std::string> ids;
  bool special = false;
};

/// A tokenizer without its model: only the header is read.
struct OpenTokenizer {
  std::unique_ptr<Budget> budget = std::make_unique<Budget>();
  std::unique_ptr<Tokenizer> tokenizer;
};

Result<OpenTokenizer> open_tokenizer(const CommonOptions& common) {
  OpenTokenizer open;
  CARAT_ASSIGN(const std::string path, resolve_model(common.model));
  CARAT_ASSIGN(const ModelFile file, ModelFile::open(path, *open.budget));
  CARAT_ASSIGN(open.tokenizer, file.tokenizer(*open.budget));
  if (open.tokenizer == nullptr) return unsupported(fmt::format("{}: the file has no tokenizer", path));
  return open;
}

/// A JSON array on one line, written a block at a time: as one value it would be many times the ids.
Status print_ids(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, bool pieces) {
  constexpr std::size_t kBlock = 16384;
  std::string text = "[";
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) text += ',';
    text += pieces ? json_text(std::string(tokenizer.piece(ids[i]))) : std::to_string(ids[i]);
    if (text.size() < kBlock) continue;
    CARAT_TRY(write_stdout(text));
    text.clear();
  }
  return write_stdout(text + "]\n");
}

Status tokenize_one(const Tokenizer& tokenizer, const TokenizeOptions& options, const std::string& text) {
  CARAT_ASSIGN(const InputIds input,
               encode_text(tokenizer, text, {.special = options.special}, !options.no_bos, input_budget()));
  return print_ids(tokenizer, input.ids, options.pieces);
}

Status run_tokenize(const TokenizeOptions& options) {
  CARAT_ASSIGN(const OpenTokenizer open, open_tokenizer(options.common));
  if (options.text_given) return tokenize_one(*open.tokenizer, options, clean_text(options.text));
  if (!options.common.json) {
    CARAT_ASSIGN(const InputText input, read_input_text("-", options.common));
    return tokenize_one(*open.tokenizer, options, input.text);
  }
  LineReader input(STDIN_FILENO);
  for (std::uint64_t number = 1;; ++number) {
    CARAT_ASSIGN(const std::optional<std::string> line, input.next());
    if (!line) break;
    if (line->empty()) continue;
    const auto value = nlohmann::json::parse(*line, nullptr, false);
    if (!value.is_string()) return invalid(fmt::format("standard input, line {}: expected a JSON string", number));
    CARAT_TRY(tokenize_one(*open.tokenizer, options, clean_text(value.get<std::string>())));
  }
  return ok_status();
}

Status detokenize_one(const Tokenizer& tokenizer, const DetokenizeOptions& options,
                      const std::vector<std::int32_t>& ids) {
  CARAT_TRY(check_ids(ids, static_cast<std::uint32_t>(tokenizer.size())));
  const std::string text = tokenizer.decode(ids, options.special);
  if (options.common.json) return print_json(text);
  return write_stdout(text + "\n");
}

Status run_detokenize(const DetokenizeOptions& options) {
  CARAT_ASSIGN(const OpenTokenizer open, open_tokenizer(options.common));
  if (!options.ids.empty()) {
    // "1 2 3", "1,2,3" and "[1, 2, 3]" alike.
    std::string joined = fmt::format("{}", fmt::join(options.ids, ","));
    if (joined.find('[') == std::string::npos) joined = "[" + joined + "]";
    CARAT_ASSIGN(const InputIds input, parse_ids(joined));
    return detokenize_one(*open.tokenizer, options, input.ids);
  }
  LineReader input(STDIN_FILENO);
  while (true) {
    CARAT_ASSIGN(const std::optional<std::string> line, input.next());
    if (!line) break;
    if (line->empty()) continue;
    CARAT_ASSIGN(const InputIds input, parse_ids(*line));
    CARAT_TRY(detokenize_one(*open.tokenizer, options, input.ids));
  }
  return ok_status();
}

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = add_command(app, action, "tokenize", "text to token ids, one JSON array a line",
                                  "carat tokenize gemma3-270m \"Hello\"", options, run_tokenize);
  add_model_options(*command, options->common);
  command->add_option_function<std::string>(
      "text",
      [options](const std::string& text) {
        options->text = text;
        options->text_given = true;
      },
      "the text; without it standard input is read (with --json: one JSON string a line)");
  command->add_flag("--pieces", options->pieces, "print the pieces instead of their ids");
  command->add_flag("--no-bos", options->no_bos, "leave out the BOS token");
  command->add_flag("--special", options->special, "recognise control pieces such as <start_of_turn>");
}

void add_detokenize(CLI::App& app, Action& action) {
  auto options = std::make_shared<DetokenizeOptions>();
  CLI::App* command = add_command(app, action, "detokenize", "token ids to text",
                                  "carat detokenize gemma3-270m 9259 1902", options, run_detokenize);
  add_model_options(*command, options->common);
  command->add_option("ids", options->ids, "the ids; without them standard input is read, one JSON array a line");
  command->add_flag("--special", options->special, "show control pieces by name");
}

}  // namespace carat::cli
