// carat convert: the same model as another format's file.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/command.h"
#include "memory/resident.h"
#include "os/signals.h"
#include "quantize/convert.h"

namespace carat::cli {
namespace {

struct ConvertCommandOptions {
  CommonOptions common;
  std::string output;
  std::string type;
  bool force = false;
};

/// What the process takes beside the budget: binary, stacks, allocator slack.
constexpr std::uint64_t kFixedBytes = 12 << 20;
constexpr std::uint64_t kDefaultBytes = 128 << 20;

Result<std::uint64_t> budget_bytes(const std::string& text) {
  if (text.empty()) return kDefaultBytes - kFixedBytes;
  CARAT_ASSIGN(const MemoryLimitAsk ask, parse_memory(text));
  if (ask.share > 0) return invalid("--memory: convert takes a size, as 256M");
  if (ask.bytes <= kFixedBytes) {
    return invalid(fmt::format("--memory {}: expected more than {} bytes", text, kFixedBytes));
  }
  return ask.bytes - kFixedBytes;
}

nlohmann::ordered_json files_json(const std::vector<HashedFile>& files) {
  auto list = nlohmann::ordered_json::array();
  for (const HashedFile& file : files) {
    list.push_back({{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  return list;
}

Status print_report(const ConvertReport& report, const CommonOptions& common) {
  const auto resident = read_resident_memory();
  const std::uint64_t peak = resident.ok() ? resident->peak : 0;
  if (common.json) {
    return print_json({{"inputs", files_json(report.inputs)},
                       {"outputs", files_json(report.outputs)},
                       {"changes", report.changes},
                       {"memory", {{"peak_rss", peak}}}});
  }
  std::string text;
  for (const auto& [what, files] : {std::pair("read ", &report.inputs), std::pair("wrote", &report.outputs)}) {
    for (const HashedFile& file : *files) text += fmt::format("{} {}  {}\n", what, file.sha256, file.path);
  }
  for (const std::string& change : report.changes) text += fmt::format("note: {}\n", change);
  return write_stdout(text + fmt::format("resident at its highest: {}\n", human_bytes(peak)));
}

Status run_convert(const ConvertCommandOptions& options) {
  CARAT_ASSIGN(const std::uint64_t limit, budget_bytes(options.common.memory));
  ConvertOptions ask;
  if (!options.type.empty()) {
    CARAT_ASSIGN(ask.type, conversion_type(options.type));
  }
  CARAT_ASSIGN(ask.input, resolve_model(options.common.model));
  ask.output = options.output;
  ask.force = options.force;
  // The bar's rate counts from the first tensor on, not from the hashing before it.
  LoadProgress bar;
  ask.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (done == 0) return !interrupted_by_user();
    if (!bar) bar = progress_bar("convert", options.common.quiet);
    return bar(done, total);
  };
  Budget budget(limit);
  CARAT_ASSIGN(const ConvertReport report, convert(ask, budget));
  return print_report(report, options.common);
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  auto options = std::make_shared<ConvertCommandOptions>();
  CLI::App* command = add_command(app, action, "convert", "write a model in another file format or float type",
                                  "carat convert gemma3-270m gemma3-270m-hf --type bf16", options, run_convert);
  command->add_option("IN", options->common.model, "a .gguf file, a Hugging Face folder, or a name in $CARAT_MODELS")
      ->required();
  command->add_option("OUT", options->output, "a folder's name for Hugging Face, or a name that ends in .gguf")
      ->required();
  command->add_option("--type", options->type, "of the matrices: f32, f16, bf16, q8_0 (default: as stored)");
  command->add_flag("--force", options->force, "replace what is at OUT");
  command->add_option("--memory", options->common.memory, "the most this process may use (default: 128MiB)");
  command->add_flag("--json", options->common.json, "machine output on stdout");
  add_verbosity_options(*command, options->common);
}

}  // namespace carat::cli
