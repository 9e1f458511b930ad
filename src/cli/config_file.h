// Option files given with --config.
#pragma once

#include <CLI/CLI.hpp>
#include <vector>

namespace carat::cli {

/// TOML or INI. Keys outside a section belong to whichever command runs; keys of a section [run] to that command only.
/// A key that no command knows is an error, so that a misspelt one does not go unnoticed.
class CommandConfig : public CLI::ConfigTOML {
 public:
  /// `app` outlives this; its command line has been parsed when the file is read.
  explicit CommandConfig(const CLI::App& app) : app_(&app) {}
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;

 private:
  const CLI::App* app_;
};

}  // namespace carat::cli
