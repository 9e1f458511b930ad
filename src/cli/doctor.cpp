// carat doctor: what this machine allows, and what carat chose.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "os/machine.h"

namespace carat::cli {
namespace {

struct DoctorOptions {
  CommonOptions common;
};

std::vector<std::string> table_names() {
  std::vector<std::string> names;
  for (const KernelTable* table : usable_kernel_tables()) names.emplace_back(table->name);
  return names;
}

Status run_doctor(const DoctorOptions& options) {
  const Machine machine = read_machine();
  CARAT_ASSIGN(const KernelTable* kernels, select_kernel_table(options.common.isa));
  const std::optional<MemoryLimit> ceiling = memory_ceiling(machine);
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
  return write_stdout(text);
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = add_command(app, action, "doctor", "show the CPU, the kernels chosen and the machine's limits",
                                  "carat doctor", options, run_doctor);
  command->add_flag("--json", options->common.json, "machine output on stdout");
  command->add_option("--isa", options->common.isa, "kernel table to use: ref, avx2, avx512");
  add_verbosity_options(*command, options->common);
}

}  // namespace carat::cli
