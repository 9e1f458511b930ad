#include "cli/config_file.h"

#include <fmt/format.h>

#include <algorithm>

namespace carat::cli {
namespace {

bool has_option(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = app.get_option_no_throw(name.size() == 1 ? "-" + name : "--" + name);
  return option != nullptr && option->get_name() != "--config";
}

/// CLI11's own lookup throws when there is none.
const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  const auto found = app.get_subcommands([&](const CLI::App* one) { return one->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

bool some_command_has(const CLI::App& app, const std::string& name) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(commands.begin(), commands.end(), [&](const CLI::App* one) { return has_option(*one, name); });
}

}  // namespace

std::vector<CLI::ConfigItem> CommandConfig::from_config(std::istream& input) const {
  std::vector<CLI::ConfigItem> items;
  const std::vector<CLI::App*> chosen = app_->get_subcommands();
  for (CLI::ConfigItem& item : CLI::ConfigTOML::from_config(input)) {
    if (item.name == "++" || item.name == "--") continue;  // where a section begins and ends
    if (item.parents.empty()) {
      if (!some_command_has(*app_, item.name)) {
        throw CLI::ConfigError(
            fmt::format("the configuration file has the key '{}', which no command knows", item.name));
      }
      // A key of other commands only: the same file serves them all.
      if (chosen.empty() || !has_option(*chosen.front(), item.name)) continue;
      item.parents = {chosen.front()->get_name()};
    } else {
      const CLI::App* section = find_command(*app_, item.parents.front());
      if (section == nullptr || !has_option(*section, item.name)) {
        throw CLI::ConfigError(
            fmt::format("the configuration file has the key '{}', which no command knows", item.fullname()));
      }
      if (chosen.empty() || section != chosen.front()) continue;
    }
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace carat::cli
