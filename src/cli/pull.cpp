// carat pull: models from a hub, into the folder of models.
#include "hub/pull.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/command.h"
#include "model/model_file.h"
#include "os/signals.h"

namespace carat::cli {
namespace {

struct PullCommandOptions {
  CommonOptions common;
  std::string what;
  std::string hub = PullOptions().hub;
  std::string as;
};

std::string token_of_environment() {
  for (const char* variable : {"CARAT_HUB_TOKEN", "HF_TOKEN"}) {
    if (const char* token = std::getenv(variable); token != nullptr && *token != 0) return token;
  }
  return "";
}

/// A short name means any file of that name: nothing is asked of the network for it.
Result<Pulled> pull_unless_there(const PullTarget& target, const PullOptions& options) {
  const std::string path = fmt::format("{}/{}.gguf", options.models_folder, target.name);
  std::error_code error;
  if (target.name.empty() || !std::filesystem::exists(path, error)) return pull(target, options);
  Pulled pulled{.path = path, .was_there = true};
  pulled.files.push_back({path, std::filesystem::file_size(path, error), ""});
  return pulled;
}

Status print_pulled(const PullCommandOptions& options, const Pulled& pulled) {
  if (!options.common.json) {
    if (pulled.was_there) log_note(fmt::format("{} was there already", pulled.path));
    return write_stdout(pulled.path + "\n");
  }
  auto files = nlohmann::ordered_json::array();
  std::uint64_t bytes = 0;
  for (const PulledFile& file : pulled.files) {
    files.push_back({{"path", file.path}, {"bytes", file.bytes}});
    if (!file.digest.empty()) files.back()[file.digest.size() == 64 ? "sha256" : "git_id"] = file.digest;
    bytes += file.bytes;
  }
  return print_json(
      {{"path", pulled.path}, {"bytes", bytes}, {"was_there", pulled.was_there}, {"files", std::move(files)}});
}

Status run_pull(const PullCommandOptions& options) {
  CARAT_ASSIGN(PullTarget target, parse_pull_target(options.what));
  const bool known = !target.name.empty();
  if (!options.as.empty()) {
    if (!is_safe_path(options.as) || options.as.find('/') != std::string::npos || options.as.front() == '.') {
      return invalid(fmt::format("--as {}: expected a name without /", options.as));
    }
    target.name = options.as;
  }
  PullOptions asked;
  asked.hub = options.hub;
  asked.token = token_of_environment();
  asked.models_folder = models_folder();
  asked.interrupted = interrupted_by_user;
  asked.note = [](const std::string& note) { log_note(note); };
  asked.progress = progress_bar(fmt::format("pulling {}", options.what), options.common.quiet);
  auto pulled = known ? pull_unless_there(target, asked) : pull(target, asked);
  if (pulled.ok()) return print_pulled(options, *pulled);
  Status failure = std::move(pulled).status();
  if (failure.code() == StatusCode::interrupted) log_note("what came is kept: pull again to go on");
  return failure;
}

}  // namespace

void add_pull(CLI::App& app, Action& action) {
  auto options = std::make_shared<PullCommandOptions>();
  CLI::App* command = add_command(app, action, "pull", "fetch a model from a hub into $CARAT_MODELS",
                                  "carat pull hf:ggml-org/gemma-3-1b-it-GGUF", options, run_pull);
  command
      ->add_option("what", options->what,
                   "a known name (gemma3-1b-it, …), hf:OWNER/REPO for a model folder or the one .gguf in it, or "
                   "hf:OWNER/REPO:FILE")
      ->required();
  command->add_option("--as", options->as, "the name to keep it under (default: its own)");
  command->add_option("--hub", options->hub, "where to fetch from (default: https://huggingface.co)");
  command->add_flag("--json", options->common.json, "machine output on stdout");
  add_verbosity_options(*command, options->common);
}

}  // namespace carat::cli
