#include "cli/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace carat::cli {
namespace {

struct OptionFacts {
  std::vector<std::string> names;  ///< with their dashes, short ones first
  std::string value;               ///< "TEXT"; empty of flags
  std::string description;
  std::vector<std::string> choices;  ///< when only these values are taken
};

/// CLI11 writes the values of IsMember behind the type, as in "TEXT:{planes,full}".
std::vector<std::string> choices_of(const std::string& type) {
  const std::size_t open = type.find('{');
  const std::size_t close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

OptionFacts facts_of(const CLI::Option& option) {
  OptionFacts facts;
  for (const std::string& name : option.get_snames()) facts.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) facts.names.push_back("--" + name);
  facts.description = option.get_description();
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();
    facts.choices = choices_of(type);
    facts.value = type.substr(0, type.find_first_of(":{"));
    // "INT:INT in [1 - 1024]" is the type and its range.
    facts.value = facts.value.substr(0, facts.value.find(" in "));
    if (facts.value.empty()) facts.value = "FILE";  // CLI11's own --config
  }
  return facts;
}

std::vector<OptionFacts> options_of(const CLI::App& command) {
  std::vector<OptionFacts> all;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional() && !option->get_group().empty()) all.push_back(facts_of(*option));
  }
  return all;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

/// "model" → "MODEL"
std::string positional_name(const CLI::Option& option) {
  std::string name = option.get_name(true);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

/// In brackets when it may be left out.
std::vector<std::string> positionals_of(const CLI::App& command) {
  std::vector<std::string> all;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    std::string name = positional_name(*option);
    if (option->get_items_expected_max() > 1) name += "...";
    all.push_back(option->get_required() ? name : "[" + name + "]");
  }
  return all;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// --- Man page ---

std::string roff(std::string text) {
  text = replaced(replaced(std::move(text), "\\", "\\(rs"), "-", "\\-");
  // A line must not begin with a request.
  return !text.empty() && (text.front() == '.' || text.front() == '\'') ? "\\&" + text : text;
}

std::string man_option(const OptionFacts& option) {
  std::string text = ".TP\n";
  for (const std::string& name : option.names) {
    text += fmt::format("{}\\fB{}\\fR", &name == &option.names.front() ? "" : ", ", roff(name));
  }
  if (!option.value.empty()) text += fmt::format(" \\fI{}\\fR", roff(option.value));
  return text + "\n" + roff(option.description) + "\n";
}

std::string man_command(const CLI::App& command) {
  std::string text = fmt::format(".SS \"carat {}\"\n", roff(command.get_name()));
  std::vector<std::string> positionals = positionals_of(command);
  text += fmt::format(".B carat {}\n[\\fIoptions\\fR] {}\n.PP\n{}\n", roff(command.get_name()),
                      roff(fmt::format("{}", fmt::join(positionals, " "))), roff(command.get_description()));
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional() || option->get_description().empty()) continue;
    text += fmt::format(".TP\n\\fI{}\\fR\n{}\n", roff(positional_name(*option)), roff(option->get_description()));
  }
  for (const OptionFacts& option : options_of(command)) text += man_option(option);
  const std::string footer = command.get_footer();
  if (const std::size_t example = footer.find('\n'); example != std::string::npos) {
    text += ".PP\nExample:\n.PP\n.EX\n" + roff(footer.substr(example + 1)) + "\n.EE\n";
  }
  return text;
}

constexpr std::string_view kManHead = R"(.\" Written by carat itself from its options (carat __reference man).
.TH CARAT 1 "" "carat {version}" "User Commands"
.SH NAME
carat \- run language models inside a memory budget
.SH SYNOPSIS
.B carat
\fICOMMAND\fR [\fIoptions\fR] [\fIMODEL\fR]
.SH DESCRIPTION
carat runs open Gemma models on the CPU inside a memory budget that you choose. What goes where is computed from the
model file's header, shown before anything is loaded, and kept. What does not fit is refused, with the numbers and the
nearest settings that do.
.PP
\fIMODEL\fR is a .gguf file, a Hugging Face folder, or a short name looked up in $CARAT_MODELS. Sizes: K, M, G are powers
of 1000, KiB, MiB, GiB of 1024.
.SH OPTIONS
)";

constexpr std::string_view kManTail = R"(.SH ENVIRONMENT
Every option is also read from a variable: \fB\-\-kv\-global\fR from \fBCARAT_KV_GLOBAL\fR. The command line is stronger
than a file given with \fB\-\-config\fR, the file than the environment.
.TP
.B CARAT_MODELS
where short names are looked up, and where \fBcarat pull\fR puts models (~/.cache/carat/models)
.TP
.B CARAT_HUB
the hub that \fBcarat pull\fR asks (https://huggingface.co)
.TP
.BR HF_TOKEN ", " CARAT_HUB_TOKEN
what \fBcarat pull\fR identifies itself with to the hub, and to no other host
.TP
.B NO_COLOR
no colour when it is set
.SH FILES
.TP
.I ~/.cache/carat
models, measured ceilings, packed weights; under $XDG_CACHE_HOME when it is set
.TP
.I ~/.local/state/carat/history
what was typed in chats; under $XDG_STATE_HOME when it is set
.SH EXIT STATUS
.TP
.B 0
done
.TP
.B 1
a bug in carat
.TP
.B 2
bad usage, or a file that is bad, missing or not supported
.TP
.B 3
does not fit the memory budget
.TP
.B 4
a quality gate failed
.TP
.B 130
interrupted
)";

std::string man_page(const CLI::App& app) {
  std::string text = replaced(std::string(kManHead), "{version}", CARAT_VERSION);
  for (const OptionFacts& option : options_of(app)) text += man_option(option);
  text += ".SH COMMANDS\n";
  for (const CLI::App* command : commands_of(app)) text += man_command(*command);
  return text + std::string(kManTail);
}

// --- Completions ---

/// Names of models in $CARAT_MODELS, by the shell itself: completion must not wait for a program.
constexpr std::string_view kBashHead =
    R"bash(# bash completion of carat, written by carat itself (carat __reference bash)
_carat_models() {
  local folder=${CARAT_MODELS:-$HOME/.cache/carat/models} file
  for file in "$folder"/*.gguf; do
    [[ -e $file ]] && file=${file##*/} && printf '%s\n' "${file%.gguf}"
  done
}
_carat() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} options
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "{commands} --help --version" -- "$word")
    return
  fi
  case $command in
{options}  esac
  case $command:$before in
{choices}  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -W "$(_carat_models)" -- "$word"; compgen -f -- "$word")
  fi
}
complete -o filenames -F _carat carat
)bash";

std::string bash_completion(const CLI::App& app) {
  std::string names;
  std::string options;
  std::string choices;
  for (const CLI::App* command : commands_of(app)) {
    names += (names.empty() ? "" : " ") + command->get_name();
    std::string all;
    for (const OptionFacts& option : options_of(*command)) {
      for (const std::string& name : option.names) {
        all += (all.empty() ? "" : " ") + name;
        if (option.choices.empty()) continue;
        choices += fmt::format("    {}:{}) mapfile -t COMPREPLY < <(compgen -W \"{}\" -- \"$word\"); return ;;\n",
                               command->get_name(), name, fmt::join(option.choices, " "));
      }
    }
    options += fmt::format("    {}) options=\"{}\" ;;\n", command->get_name(), all);
  }
  return replaced(replaced(replaced(std::string(kBashHead), "{commands}", names), "{options}", options), "{choices}",
                  choices);
}

/// Inside '…' of zsh and fish; brackets and colons mean something to zsh's _arguments.
std::string quoted(std::string text, bool zsh) {
  text = replaced(std::move(text), "'", zsh ? "'\\''" : "\\'");
  if (!zsh) return text;
  for (const char* special : {"[", "]", ":"}) text = replaced(std::move(text), special, std::string("\\") + special);
  return text;
}

std::string zsh_completion(const CLI::App& app) {
  std::string text =
      "#compdef carat\n# written by carat itself (carat __reference zsh)\n"
      "_carat_models() {\n"
      "  local -a names\n"
      "  names=(${CARAT_MODELS:-$HOME/.cache/carat/models}/*.gguf(N:t:r))\n"
      "  _alternative 'models:model:compadd -a names' 'files:file:_files'\n"
      "}\n"
      "_carat() {\n"
      "  local -a commands\n  commands=(\n";
  for (const CLI::App* command : commands_of(app)) {
    text += fmt::format("    '{}:{}'\n", command->get_name(), quoted(command->get_description(), true));
  }
  text +=
      "  )\n  if ((CURRENT == 2)); then\n    _describe command commands\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  ((CURRENT--))\n  case $command in\n";
  for (const CLI::App* command : commands_of(app)) {
    text += fmt::format("    {}) _arguments -s", command->get_name());
    for (const OptionFacts& option : options_of(*command)) {
      for (const std::string& name : option.names) {
        text += fmt::format(" \\\n      '{}[{}]", name, quoted(option.description, true));
        if (!option.choices.empty()) {
          text += fmt::format(":{}:({})", option.value, fmt::join(option.choices, " "));
        } else if (!option.value.empty()) {
          text += fmt::format(":{}:_files", quoted(option.value, true));
        }
        text += "'";
      }
    }
    text += " \\\n      '*:model:_carat_models' ;;\n";
  }
  return text + "  esac\n}\n_carat \"$@\"\n";
}

std::string fish_completion(const CLI::App& app) {
  std::string text =
      "# fish completion of carat, written by carat itself (carat __reference fish)\n"
      "function __carat_models\n"
      "    set -l folder $HOME/.cache/carat/models\n"
      "    set -q CARAT_MODELS; and set folder $CARAT_MODELS\n"
      "    for file in $folder/*.gguf\n"
      "        basename $file .gguf\n"
      "    end\n"
      "end\n";
  for (const CLI::App* command : commands_of(app)) {
    text += fmt::format("complete -c carat -f -n __fish_use_subcommand -a {} -d '{}'\n", command->get_name(),
                        quoted(command->get_description(), false));
  }
  for (const CLI::App* command : commands_of(app)) {
    const std::string seen = fmt::format("'__fish_seen_subcommand_from {}'", command->get_name());
    text += fmt::format("complete -c carat -n {} -a '(__carat_models)'\n", seen);
    for (const OptionFacts& option : options_of(*command)) {
      text += fmt::format("complete -c carat -n {}", seen);
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.value.empty()) text += " -r";
      if (!option.choices.empty()) text += fmt::format(" -a '{}'", fmt::join(option.choices, " "));
      text += fmt::format(" -d '{}'\n", quoted(option.description, false));
    }
  }
  return text;
}

}  // namespace

Result<std::string> reference_text(const CLI::App& app, std::string_view kind) {
  if (kind == "man") return man_page(app);
  if (kind == "bash") return bash_completion(app);
  if (kind == "zsh") return zsh_completion(app);
  if (kind == "fish") return fish_completion(app);
  return invalid(fmt::format("{} {}: expected man, bash, zsh or fish", kReferenceCommand, kind));
}

}  // namespace carat::cli
