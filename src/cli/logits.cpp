// carat logits: raw logits of chosen positions as a .npy file.
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/text_input.h"
#include "metrics/perplexity.h"
#include "os/file.h"
#include "os/signals.h"

namespace carat::cli {
namespace {

struct LogitsOptions {
  CommonOptions common;
  std::string file;
  std::string ids;
  std::string positions;
  std::string out;
  bool decode = false;
};

struct PositionRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

/// "A:B", half-open, either side may be empty.
Result<PositionRange> parse_range(const std::string& text, std::uint32_t count) {
  PositionRange range{0, count};
  if (text.empty() || count == 0) return range;
  const Status bad = invalid(fmt::format("--positions {}: expected BEGIN:END within 0:{}", text, count));
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return bad;
  const auto number = [](std::string_view part, std::uint32_t& value) {
    if (part.empty()) return true;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size();
  };
  if (!number(std::string_view(text).substr(0, colon), range.begin) ||
      !number(std::string_view(text).substr(colon + 1), range.end)) {
    return bad;
  }
  if (range.begin >= range.end || range.end > count) return bad;
  return range;
}

/// The header of a version 1.0 .npy file of float32 [rows, columns] in C order.
std::string npy_header(std::uint64_t rows, std::uint64_t columns) {
  std::string text = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  while ((10 + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string header = "\x93NUMPY";
  header += '\x01';
  header += '\0';
  header += static_cast<char>(text.size() & 0xFF);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

Result<InputIds> ids_of_text(const std::string& text, Session& session) {
  CARAT_ASSIGN(const Tokenizer* tokenizer, need_tokenizer(session));
  return encode_text(*tokenizer, text, {}, true, session.budget());
}

Status run_logits(const LogitsOptions& options) {
  if (options.file.empty() == options.ids.empty()) return invalid("logits: give either -f FILE or --ids JSON");
  CARAT_ASSIGN(SessionOptions asked, options.common.session());
  asked.logits_rows = 16;
  asked.sampler = false;
  asked.exact_for_float_weights = true;
  // What can be wrong with the texts and files is found before the model is loaded.
  InputText input;
  InputIds given;
  if (options.ids.empty()) {
    CARAT_ASSIGN(input, read_input_text(options.file, options.common));
  } else {
    CARAT_ASSIGN(given, parse_ids(options.ids));
    CARAT_TRY(parse_range(options.positions, static_cast<std::uint32_t>(given.ids.size())).status());
  }
  CARAT_ASSIGN(AtomicFile out, AtomicFile::create(options.out));
  if (options.ids.empty()) asked.input_bytes = input_room(input.text, false);
  CARAT_ASSIGN(auto session, Session::open(asked, progress_bar("loading", options.common.quiet)));
  if (options.ids.empty()) {
    CARAT_ASSIGN(given, ids_of_text(input.text, *session));
    input = {};
  }
  const std::vector<std::int32_t>& ids = given.ids;
  if (ids.empty()) return invalid("logits: the text has no tokens");
  CARAT_TRY(check_ids(ids, session->config().vocab));
  if (ids.size() > session->kv().context()) {
    return invalid(fmt::format("logits: {} tokens are more than the context of {}; raise --ctx", ids.size(),
                               session->kv().context()));
  }
  CARAT_ASSIGN(const PositionRange range, parse_range(options.positions, static_cast<std::uint32_t>(ids.size())));
  CARAT_TRY(out.write(npy_header(range.end - range.begin, session->config().vocab)));
  CARAT_TRY(for_each_logits(
      session->decoder(), session->kv(), ids, range.begin, range.end,
      [&](std::uint32_t, std::span<const float> row) -> Status {
        if (interrupted_by_user()) return interrupted("stopped by a signal");
        return out.write(std::as_bytes(row));
      },
      options.decode ? TokenOrigin::generated : TokenOrigin::prompt));
  CARAT_TRY(out.commit());
  if (!options.common.json) return ok_status();
  return print_json({{"positions", range.end - range.begin}, {"vocab", session->config().vocab}, {"out", options.out}});
}

}  // namespace

void add_logits(CLI::App& app, Action& action) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* command =
      add_command(app, action, "logits", "write raw logits of chosen positions to a .npy file",
                  "carat logits gemma3-270m -f prompt.txt --positions 0:64 --out logits.npy", options, run_logits);
  add_model_options(*command, options->common);
  add_memory_options(*command, options->common);
  command->add_option("-f,--file", options->file, "a text file, - for standard input");
  command->add_option("--ids", options->ids, "token ids as a JSON array, used as given");
  command->add_option("--positions", options->positions, "BEGIN:END, half-open (default: all)");
  command->add_flag("--decode", options->decode, "as generated tokens are computed, not as those of a prompt");
  command->add_option("--out", options->out, "the .npy file: float32 [positions, vocabulary]")->required();
}

}  // namespace carat::cli
