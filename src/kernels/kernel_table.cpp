#include "kernels/kernel_table.h"

#include <array>
#include <string>

#include "base/log.h"
#include "kernels/simd/panel_source.h"
#include "kernels/tables.h"
#include "os/cpu.h"

namespace carat {
namespace {

#if defined(__x86_64__)
constexpr std::array<std::string_view, 4> kNames = {"amx", "avx512", "avx2", "ref"};
#else
constexpr std::array<std::string_view, 3> kNames = {"i8mm", "neon", "ref"};
#endif

/// The tables of this binary, best first, as kNames has them. Each starts as a copy of the next one down, so that an
/// entry a family does not have is the best other one.
using Tables = std::array<KernelTable, kNames.size()>;

void fill_ref(KernelTable& table) {
  table.name = "ref";
  fill_linear_ref(table);
  fill_planes_ref(table);
  fill_quantize_ref(table);
  fill_embed_ref(table);
  fill_elementwise_ref(table);
  fill_kv_tiles_ref(table);
  fill_attention_ref(table);
}

#if defined(__x86_64__)
bool runs_avx2() {
  const CpuFeatures& cpu = cpu_features();
  return cpu.avx2 && cpu.fma && cpu.f16c;
}
bool runs_avx512() {
  const CpuFeatures& cpu = cpu_features();
  return runs_avx2() && cpu.avx512f && cpu.avx512bw && cpu.avx512dq && cpu.avx512vl && cpu.avx512_vnni;
}
bool runs_amx() {
  const CpuFeatures& cpu = cpu_features();
  if (!runs_avx512() || !cpu.amx_tile || !cpu.amx_int8) return false;
  if (amx_self_test()) return true;
  log_note("amx: the tile registers of this machine lose their contents or compute wrong; using avx512");
  return false;
}

constexpr std::array<bool (*)(), kNames.size()> kRuns = {runs_amx, runs_avx512, runs_avx2, [] { return true; }};

Tables make_tables() {
  Tables tables;
  auto& [amx, avx512, avx2, ref] = tables;
  fill_ref(ref);
  avx2 = ref;
  avx2.name = "avx2";
  fill_linear_avx2(avx2);
  fill_planes_avx2(avx2);
  fill_quantize_avx2(avx2);
  fill_elementwise_avx2(avx2);
  fill_kv_tiles_avx2(avx2);
  fill_attention_avx2(avx2);
  fill_products_avx2(avx2);
  avx512 = avx2;
  avx512.name = "avx512";
  std::array<PanelSource, kDTypeCount> sources;
  fill_linear_avx512(avx512, sources.data());
  fill_planes_avx512(avx512);
  fill_quantize_avx512(avx512);
  fill_elementwise_avx512(avx512);
  fill_kv_tiles_avx512(avx512);
  fill_attention_avx512(avx512);
  fill_products_avx512(avx512);
  amx = avx512;
  amx.name = "amx";
  fill_linear_amx(amx, sources.data());
  for (ProductProbe& probe : amx.products) probe = {};
  fill_products_amx(amx);
  return tables;
}
#else
bool runs_neon() { return cpu_features().neon && cpu_features().dotprod; }
bool runs_i8mm() { return runs_neon() && cpu_features().i8mm; }

constexpr std::array<bool (*)(), kNames.size()> kRuns = {runs_i8mm, runs_neon, [] { return true; }};

Tables make_tables() {
  Tables tables;
  auto& [i8mm, neon, ref] = tables;
  fill_ref(ref);
  neon = ref;
  neon.name = "neon";
  std::array<PanelSource, kDTypeCount> sources;
  fill_linear_neon(neon, sources.data());
  fill_planes_neon(neon);
  fill_quantize_neon(neon);
  fill_elementwise_neon(neon);
  fill_kv_tiles_neon(neon);
  fill_attention_neon(neon);
  fill_products_neon(neon);
  i8mm = neon;
  i8mm.name = "i8mm";
  fill_i8mm(i8mm, sources.data());
  return tables;
}
#endif

const Tables& tables() {
  static const Tables all = make_tables();
  return all;
}

struct Usable {
  std::array<const KernelTable*, kNames.size()> list{};
  std::size_t count = 0;
};

const Usable& usable() {
  static const Usable chosen = [] {
    Usable found;
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (kRuns[i]()) found.list[found.count++] = &tables()[i];
    }
    return found;
  }();
  return chosen;
}

std::string usable_names() {
  std::string names;
  for (const KernelTable* table : usable_kernel_tables()) {
    if (!names.empty()) names += ", ";
    names += table->name;
  }
  return names;
}

}  // namespace

std::span<const KernelTable* const> usable_kernel_tables() { return {usable().list.data(), usable().count}; }

std::span<const KernelTable* const> product_tables() {
  static const Usable found = [] {
    Usable all;
#if defined(__x86_64__)
    // Tiles that lose their contents still show what the processor can do.
    if (cpu_features().amx_tile) all.list[all.count++] = &tables()[0];
#endif
    for (const KernelTable* table : usable_kernel_tables()) {
      if (all.count == 0 || table != all.list[0]) all.list[all.count++] = table;
    }
    return all;
  }();
  return {found.list.data(), found.count};
}

Result<const KernelTable*> select_kernel_table(std::string_view name) {
  if (name.empty()) return usable_kernel_tables().front();
  for (const KernelTable* table : usable_kernel_tables()) {
    if (table->name == name) return table;
  }
  for (const std::string_view known : kNames) {
    if (known == name) {
      return unsupported("isa " + std::string(name) + ": this machine cannot run it; it can run " + usable_names());
    }
  }
  return invalid("isa '" + std::string(name) + "': no such kernel table; this machine can run " + usable_names());
}

}  // namespace carat
