// What a session uses now, by category, beside what was planned and what the kernel counts.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "memory/resident.h"

namespace carat::cli {
namespace {

struct LiveMemory {
  BudgetReport budget;
  ResidentCategories pages;
  ResidentMemory process;
};

LiveMemory read_live_memory(Session& session) {
  LiveMemory live;
  live.budget = session.budget().report();
  if (auto pages = resident_by_category(session.budget()); pages.ok()) live.pages = *pages;
  if (auto process = read_resident_memory(); process.ok()) live.process = *process;
  // No block is reserved for what was there before the plan: what is in use of it is what is allocated.
  constexpr auto kFixed = static_cast<std::size_t>(MemoryCategory::fixed);
  live.budget.categories[kFixed].allocated = live.pages.categories[kFixed].resident;
  return live;
}

}  // namespace

nlohmann::ordered_json memory_json(Session& session) {
  const LiveMemory live = read_live_memory(session);
  const KvUse kv = session.kv().use();
  nlohmann::ordered_json categories;
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    const CategoryUse& use = live.budget[category];
    categories[std::string(name(category))] = {{"planned", use.planned},
                                               {"reserved", use.reserved},
                                               {"allocated", use.allocated},
                                               {"resident", live.pages[category].resident},
                                               {"peak", use.peak}};
  }
  return {{"budget", live.budget.limit},
          {"planned", session.plan().total},
          {"rss", live.process.resident},
          {"peak_rss", live.process.peak},
          {"swap", live.process.swapped},
          {"kv", {{"evicted_pages", kv.evicted_pages}, {"demoted_tiles", kv.demoted_tiles}}},
          {"resident_from", live.pages.source == PageSource::pagemap ? "pagemap" : "mincore"},
          {"categories", std::move(categories)}};
}

std::string memory_table(Session& session) {
  const LiveMemory live = read_live_memory(session);
  std::string text = fmt::format("  {:<12} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "memory", "planned", "reserved",
                                 "allocated", "resident", "peak");
  const auto line = [&](std::string_view what, const CategoryUse& use, std::uint64_t resident) {
    text += fmt::format("  {:<12} {:>10} {:>10} {:>10} {:>10} {:>10}\n", what, human_bytes(use.planned),
                        human_bytes(use.reserved), human_bytes(use.allocated), human_bytes(resident),
                        human_bytes(use.peak));
  };
  CategoryUse sum;
  sum.peak = live.budget.peak;
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    const CategoryUse& use = live.budget[category];
    sum.planned += use.planned;
    sum.reserved += use.reserved;
    sum.allocated += use.allocated;
    if (use.planned + use.peak + live.pages[category].resident > 0) {
      line(name(category), use, live.pages[category].resident);
    }
  }
  line("total", sum, live.pages.total().resident);
  text +=
      fmt::format("  {:<12} VmRSS {}, VmHWM {}, VmSwap {}; budget {}\n", "process", human_bytes(live.process.resident),
                  human_bytes(live.process.peak), human_bytes(live.process.swapped), human_bytes(live.budget.limit));
  const KvUse kv = session.kv().use();
  if (kv.evicted_pages > 0)
    text += fmt::format("  {:<12} {} pages of 64 tokens were evicted\n", "kv", kv.evicted_pages);
  if (kv.demoted_tiles > 0)
    text += fmt::format("  {:<12} {} tiles went down a step in precision\n", "kv", kv.demoted_tiles);
  return text;
}

}  // namespace carat::cli
