// What all commands share: common options, how a command is registered, machine output.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/engine.h"
#include "engine/session.h"

namespace carat::cli {

/// Set by the command line's callback of the chosen command, run by main() after all is parsed.
using Action = std::function<Status()>;

struct CommonOptions {
  std::string model;
  std::string preset;  ///< --arch, in place of the model
  std::string quant = "q4_0";
  std::string head_type;
  std::string memory;
  std::string kv_local;
  std::string kv_global;
  std::string kv_global_bytes;
  std::string kv_evict = "off";
  std::uint32_t kv_keep = 0;
  std::string head = "planes";
  std::string speculate = "off";  ///< or auto, or a number
  std::string isa;
  int threads = 0;
  std::uint32_t context = 0;
  std::uint32_t parallel = 1;
  std::uint32_t chunk = 512;
  bool json = false;
  bool quiet = false;
  bool verbose = false;

  /// -q and -v as the level of the log.
  void set_verbosity() const;
  /// --speculate as a request wants it.
  Drafts drafts() const;
  /// The same as options of a session; checks what the parser cannot.
  Result<SessionOptions> session() const;
};

/// Adds a subcommand whose options live as long as the app.
template <typename Options>
CLI::App* add_command(CLI::App& app, Action& action, const char* name, const char* description, const char* example,
                      std::shared_ptr<Options> options, Status (*run)(const Options&)) {
  CLI::App* command = app.add_subcommand(name, description);
  command->footer(std::string("Example:\n  ") + example);
  // So that --config may stand behind the command, too.
  command->fallthrough();
  command->callback([&action, options, run] {
    action = [options, run] {
      options->common.set_verbosity();
      return run(*options);
    };
  });
  return command;
}

/// MODEL, and the options every command has (--json, -v, -q, --threads, --isa).
void add_model_options(CLI::App& command, CommonOptions& options, bool model_required = true);
void add_verbosity_options(CLI::App& command, CommonOptions& options);
/// --head
void add_head_option(CLI::App& command, CommonOptions& options);
/// --arch, --quant and --head-type, in place of MODEL.
void add_preset_options(CLI::App& command, CommonOptions& options);
/// --memory, --ctx, --chunk, and the options of the KV cache.
void add_memory_options(CLI::App& command, CommonOptions& options);
/// --speculate, on by default.
void add_speculate_option(CLI::App& command, CommonOptions& options);

void add_run(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_detokenize(CLI::App& app, Action& action);
void add_logits(CLI::App& app, Action& action);
void add_perplexity(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_pull(CLI::App& app, Action& action);
struct ServeOptions;
std::shared_ptr<ServeOptions> add_serve(CLI::App& app, Action& action);
/// All commands, --config and the environment; `serve`, when not null, is set to the options of that command.
void add_commands(CLI::App& app, Action& action, std::shared_ptr<ServeOptions>* serve = nullptr);

/// Writes all of `text` to stdout, unbuffered; a closed or full output is an error, a signal while a reader keeps it
/// waiting is StatusCode::interrupted.
Status write_stdout(std::string_view text);
/// Compact JSON on one line; invalid UTF-8 in strings becomes U+FFFD.
std::string json_text(const nlohmann::ordered_json& value);
/// The same on stdout, as a line.
Status print_json(const nlohmann::ordered_json& value);

/// What `plan --json` prints. `measured`: the expected speed comes from the ceilings of this machine.
nlohmann::ordered_json plan_json(const Plan& plan, bool measured);

/// "memory" of the machine output: budget, planned, what the process uses, and the categories as they are now.
nlohmann::ordered_json memory_json(Session& session);
/// The table of the same for people.
std::string memory_table(Session& session);

/// What a progress callback counts.
enum class ProgressUnit : std::uint8_t { bytes, items };

/// A progress callback that draws on stderr: a bar on a terminal, a line every few seconds otherwise, nothing when
/// quiet. It also stops the work when a signal came.
LoadProgress progress_bar(std::string what, bool quiet, ProgressUnit unit = ProgressUnit::bytes);

}  // namespace carat::cli
