#include "cli/usage_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

namespace carat::cli {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

/// The nearest of `names` when it is near enough to be what was meant; else empty.
std::string nearest(std::string_view typed, const std::vector<std::string>& names) {
  constexpr std::size_t kLongest = 40;  // the table grows with the product of the lengths
  if (typed.size() > kLongest) return {};
  std::size_t best = std::numeric_limits<std::size_t>::max();
  std::string found;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(typed, name);
    if (distance < best) {
      best = distance;
      found = name;
    }
  }
  return best <= std::max<std::size_t>(1, typed.size() / 3) ? found : std::string();
}

std::string guess(const std::string& name) { return name.empty() ? "" : fmt::format("; did you mean {}?", name); }

std::string unknown_command(const CLI::App& app, const std::string& typed) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return fmt::format("there is no command '{}'{} The commands are {}", typed,
                     nearest(typed, names).empty() ? "." : guess(nearest(typed, names)), fmt::join(names, ", "));
}

std::string unknown_argument(const CLI::App& command, const std::string& typed) {
  const std::string help = fmt::format("`carat {} --help` lists what it takes", command.get_name());
  if (typed.size() < 2 || typed.front() != '-') {
    return fmt::format("{}: unexpected argument '{}'; a text with spaces needs quotes; {}", command.get_name(), typed,
                       help);
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::string name = typed.substr(0, typed.find('='));
  return fmt::format("{}: there is no option {}{}{}", command.get_name(), name, guess(nearest(name, names)),
                     nearest(name, names).empty() ? "; " + help : "");
}

std::string example_of(const CLI::App& command) {
  const std::string footer = command.get_footer();
  const std::size_t at = footer.rfind("\n  ");
  return at == std::string::npos ? "" : footer.substr(at + 3);
}

}  // namespace

std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const std::vector<std::string> left = app.remaining(true);
  if (chosen.empty()) {
    if (left.empty()) return "a command is missing; `carat --help` lists them";
    if (left.front().starts_with("-")) {
      return fmt::format("options such as {} come after a command: carat COMMAND …; `carat --help` lists the commands",
                         left.front());
    }
    return unknown_command(app, left.front());
  }
  const CLI::App& command = *chosen.front();
  const auto* missing = dynamic_cast<const CLI::RequiredError*>(&error);
  if (missing != nullptr || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    // An unknown option swallows what follows it, so it is the cause when something seems to be missing.
    const auto unknown = std::find_if(left.begin(), left.end(), [](const auto& one) { return one != "--"; });
    if (unknown != left.end()) return unknown_argument(command, *unknown);
  }
  std::string text = error.what();
  if (missing != nullptr) {
    const std::string_view ending = " is required";
    const std::string what = text.ends_with(ending) ? text.substr(0, text.size() - ending.size()) : text;
    return fmt::format("{}: {} is missing; for example: {}", command.get_name(), what == "model" ? "MODEL" : what,
                       example_of(command));
  }
  const std::string_view conversion = "Could not convert: ";
  if (text.starts_with(conversion)) text = text.substr(conversion.size()) + ": is not a number that fits this option";
  return fmt::format("{}; see `carat {} --help`", text, command.get_name());
}

}  // namespace carat::cli
