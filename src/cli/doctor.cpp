// carat doctor: what this machine allows and can do, and what carat chose.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/ceiling_cache.h"
#include "cli/command.h"
#include "os/machine.h"

namespace carat::cli {
namespace {

struct DoctorOptions {
  CommonOptions common;
  bool remeasure = false;
};

/// Ceilings, and where they come from; none where they could not be measured.
struct Found {
  std::optional<Ceilings> ceilings;
  bool cached = false;
  std::string path;  ///< of the file that keeps them; empty when they could not be kept
};

/// From the cache, else measured and kept. What stands in the way is a note, but for a signal.
Result<Found> find_ceilings(const Machine& machine, const DoctorOptions& options) {
  const int threads = machine.cpus.threads;
  Found found;
  found.path = ceilings_path(machine, threads);
  if (!options.remeasure) found.ceilings = load_ceilings(machine, threads);
  found.cached = found.ceilings.has_value();
  if (found.cached) return found;
  const auto process = process_facts({}, threads);
  if (!process.ok()) {
    log_note("the ceilings are not measured: " + process.status().message());
    return found;
  }
  Budget budget(process->limit - std::min(process->limit, process->fixed));
  auto measured =
      measure_ceilings(machine, threads, budget, progress_bar("measuring", options.common.quiet, ProgressUnit::items));
  if (!measured.ok()) {
    if (measured.status().code() == StatusCode::interrupted) return std::move(measured).status();
    log_note("the ceilings are not measured: " + measured.status().message());
    return found;
  }
  found.ceilings = std::move(measured).value();
  const Status kept = save_ceilings(machine, threads, *found.ceilings);
  if (!kept.ok()) {
    log_note("the measured ceilings are not kept: " + kept.message());
    found.path.clear();
  }
  return found;
}

nlohmann::ordered_json json_of(const Found& found) {
  if (!found.ceilings) return nullptr;
  nlohmann::ordered_json json = to_json(*found.ceilings);
  json["cached"] = found.cached;
  json["file"] = found.path.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(found.path);
  return json;
}

std::string text_of(const Found& found) {
  if (!found.ceilings) return "";
  std::string text;
  for (const Ceilings::Read& read : found.ceilings->reads) {
    text += fmt::format("{:<12}{:.1f} GB/s with {} {}, {} {} each\n", text.empty() ? "reads" : "", read.rate.gb_per_s,
                        read.threads, read.threads == 1 ? "thread" : "threads", read.rate.streams,
                        read.rate.streams == 1 ? "stream" : "streams");
  }
  bool first = true;
  for (const Ceilings::Product& product : found.ceilings->products) {
    if (product.threads != 1) continue;
    text += fmt::format("{:<12}{:<5}{:<11}{:.2f} TOPS with 1 thread", std::exchange(first, false) ? "products" : "",
                        name(product.form), product.instruction, product.tops);
    for (const Ceilings::Product& more : found.ceilings->products) {
      if (more.threads == 1 || more.instruction != product.instruction) continue;
      text += fmt::format(", {:.2f} with {}", more.tops, more.threads);
    }
    text += "\n";
  }
  return text + fmt::format("{:<12}{}{}\n", "", found.cached ? "measured before" : "measured now",
                            found.path.empty() ? ", not kept" : ", kept in " + found.path);
}

std::vector<std::string> table_names() {
  std::vector<std::string> names;
  for (const KernelTable* table : usable_kernel_tables()) names.emplace_back(table->name);
  return names;
}

Status run_doctor(const DoctorOptions& options) {
  const Machine machine = read_machine();
  CARAT_ASSIGN(const KernelTable* kernels, select_kernel_table(options.common.isa));
  const std::optional<MemoryLimit> ceiling = memory_ceiling(machine);
  CARAT_ASSIGN(const Found found, find_ceilings(machine, options));
  if (options.common.json) {
    nlohmann::ordered_json json = {
        {"cpu", machine.cpu.brand},
        {"isa", kernels->name},
        {"kernel_tables", table_names()},
        {"threads", machine.cpus.threads},
        {"cpus", machine.cpus.cpus},
        {"physical_cores", machine.cpus.physical_cores},
        {"memory_available", machine.memory.available},
        {"memory_total", machine.memory.total},
        {"huge_pages", machine.huge_pages},
        {"kernel", machine.kernel},
    };
    json["cpu_quota"] = machine.cpus.quota ? nlohmann::ordered_json(machine.cpus.quota->cpus) : nullptr;
    json["cgroup_memory_limit"] =
        machine.memory_limit ? nlohmann::ordered_json(machine.memory_limit->bytes) : nlohmann::ordered_json();
    json["default_budget"] = ceiling ? static_cast<std::uint64_t>(static_cast<double>(ceiling->bytes) * 0.8) : 0;
    for (const CacheLevel& cache : machine.caches)
      json["caches"].push_back({{"level", cache.level}, {"bytes", cache.bytes}});
    json["ceilings"] = json_of(found);
    return print_json(json);
  }
  std::string text = fmt::format("cpu         {}\nkernels     {} (usable: {})\nthreads     {} ({} CPUs, {} cores{})\n",
                                 machine.cpu.brand, kernels->name, fmt::join(table_names(), ", "), machine.cpus.threads,
                                 machine.cpus.cpus.size(), machine.cpus.physical_cores,
                                 machine.cpus.quota ? fmt::format(", quota {:.2f}", machine.cpus.quota->cpus) : "");
  text += fmt::format("memory      {} available of {}\n", human_bytes(machine.memory.available),
                      human_bytes(machine.memory.total));
  text += machine.memory_limit ? fmt::format("limit       {} by {}\n", human_bytes(machine.memory_limit->bytes),
                                             machine.memory_limit->file)
                               : "limit       no cgroup limit\n";
  if (ceiling) {
    text +=
        fmt::format("budget      {} without --memory (80% of {})\n",
                    human_bytes(static_cast<std::uint64_t>(static_cast<double>(ceiling->bytes) * 0.8)), ceiling->file);
  }
  text += fmt::format("huge pages  {}\nkernel      Linux {}\n",
                      machine.huge_pages.empty() ? "none" : machine.huge_pages, machine.kernel);
  return write_stdout(text + text_of(found));
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command =
      add_command(app, action, "doctor", "show the CPU, the kernels chosen, the machine's limits and ceilings",
                  "carat doctor", options, run_doctor);
  command->add_flag("--json", options->common.json, "machine output on stdout");
  command->add_option("--isa", options->common.isa,
                      "kernel table to use: ref, avx2, avx512, amx; on ARM ref, neon, i8mm");
  command->add_flag("--remeasure", options->remeasure, "measure the ceilings although they are kept from before");
  add_verbosity_options(*command, options->common);
}

}  // namespace carat::cli
