// The command line: parse, run one command, say what went wrong in one line.
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <cctype>
#include <csignal>

#include "base/log.h"
#include "cli/command.h"
#include "cli/config_file.h"
#include "cli/reference.h"
#include "cli/usage_error.h"
#include "os/limits.h"
#include "os/signals.h"

namespace carat::cli {
namespace {

/// Every --option also reads CARAT_OPTION from the environment.
void name_environment_variables(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string name = option->get_single_name();
    if (name.empty() || option->get_positional() || name == "help" || name == "version") continue;
    std::string variable = "CARAT_";
    for (const char c : name) {
      variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    option->envname(variable);
  }
  for (CLI::App* command : app.get_subcommands({})) name_environment_variables(*command);
}

/// Help and version go to stdout, which may be closed or full.
int print_help(const Result<std::string>& text) {
  const Status status = text.ok() ? write_stdout(*text) : text.status();
  if (!status.ok()) log_error(status.message());
  return exit_code(status.code());
}

/// glibc gives each thread an arena of its own and keeps freed blocks: slack that nobody planned.
void bound_allocator_slack() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 64 << 10);
  mallopt(M_TRIM_THRESHOLD, 256 << 10);
}

/// A file opened while one of the three standard descriptors is closed would take its number, and messages would be
/// written into it. Closed ones are filled with what fails in the direction they are used.
void fill_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) < 0 && errno == EBADF) {
      // open() takes the lowest free number, which is this one.
      open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : descriptor == STDOUT_FILENO ? O_RDONLY : O_WRONLY);
    }
  }
}

int run(int argc, char** argv) {
  fill_standard_descriptors();
  bound_allocator_slack();
  keep_huge_pages_to_advised_memory();
  CLI::App app("carat runs Gemma models inside a memory budget you choose.", "carat");
  app.set_version_flag("--version", "carat " CARAT_VERSION);
  Action action;
  add_commands(app, action);
  const SignalGuard signals;
  // A file size limit then fails a write, as a full disk does, instead of killing the process with the file half made.
  std::signal(SIGXFSZ, SIG_IGN);
  if (argc < 2) {
    fmt::print(stderr, "{}", app.help());
    return exit_code(StatusCode::invalid);
  }
  if (argc == 3 && argv[1] == kReferenceCommand) return print_help(reference_text(app, argv[2]));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return print_help(app.help());
  } catch (const CLI::CallForVersion& version) {
    return print_help(std::string(version.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    log_error(usage_error(app, error));
    return exit_code(StatusCode::invalid);
  }
  const Status status = action();
  if (!status.ok() && !(status.code() == StatusCode::interrupted && status.message().empty())) {
    log_error(status.message());
  }
  return exit_code(status.code());
}

}  // namespace

void add_commands(CLI::App& app, Action& action, std::shared_ptr<ServeOptions>* serve) {
  app.set_config("--config", "", "read options from a TOML or INI file");
  app.config_formatter(std::make_shared<CommandConfig>(app));
  app.require_subcommand(1);
  app.footer("`carat COMMAND --help` shows the options of a command, and an example.");
  add_run(app, action);
  add_plan(app, action);
  add_info(app, action);
  const auto options = add_serve(app, action);
  if (serve != nullptr) *serve = options;
  add_tokenize(app, action);
  add_detokenize(app, action);
  add_logits(app, action);
  add_perplexity(app, action);
  add_convert(app, action);
  add_bench(app, action);
  add_doctor(app, action);
  add_pull(app, action);
  name_environment_variables(app);
}

}  // namespace carat::cli

int main(int argc, char** argv) {
  try {
    return carat::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    carat::log_error("the system gave no more memory; lower --memory or --ctx");
    return carat::exit_code(carat::StatusCode::no_fit);
  } catch (const std::exception& error) {
    carat::log_error(fmt::format("internal error: {}", error.what()));
    return carat::exit_code(carat::StatusCode::internal);
  }
}
