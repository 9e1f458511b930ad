#include "kernels/kernel_table.h"

#include <array>
#include <string>

#include "kernels/tables.h"
#include "os/cpu.h"

namespace carat {
namespace {

/// The tables of this binary, best first. Each starts as a copy of the next one down, so that an entry a family does
/// not have is the best other one.
struct Tables {
  std::array<KernelTable, 3> table;
  KernelTable amx;  ///< products alone
};

#if defined(__x86_64__)
constexpr std::array<std::string_view, 3> kNames = {"avx512", "avx2", "ref"};

bool runs_avx2() {
  const CpuFeatures& cpu = cpu_features();
  return cpu.avx2 && cpu.fma && cpu.f16c;
}
bool runs_avx512() {
  const CpuFeatures& cpu = cpu_features();
  return runs_avx2() && cpu.avx512f && cpu.avx512bw && cpu.avx512dq && cpu.avx512vl && cpu.avx512_vnni;
}
#else
constexpr std::array<std::string_view, 1> kNames = {"ref"};
#endif

Tables make_tables() {
  Tables tables;
  auto& [avx512, avx2, ref] = tables.table;
  ref.name = "ref";
  fill_linear_ref(ref);
  fill_planes_ref(ref);
  fill_quantize_ref(ref);
  fill_embed_ref(ref);
  fill_elementwise_ref(ref);
  fill_kv_tiles_ref(ref);
  fill_attention_ref(ref);
#if defined(__x86_64__)
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
  fill_linear_avx512(avx512);
  fill_planes_avx512(avx512);
  fill_quantize_avx512(avx512);
  fill_elementwise_avx512(avx512);
  fill_kv_tiles_avx512(avx512);
  fill_attention_avx512(avx512);
  fill_products_avx512(avx512);
  tables.amx.name = "amx";
  fill_products_amx(tables.amx);
#endif
  return tables;
}

struct Usable {
  std::array<const KernelTable*, 3> list{};
  std::size_t count = 0;
};

const Tables& tables() {
  static const Tables all = make_tables();
  return all;
}

const Usable& usable() {
  static const Usable chosen = [] {
    const Tables& all = tables();
    Usable found;
#if defined(__x86_64__)
    if (runs_avx512()) found.list[found.count++] = &all.table[0];
    if (runs_avx2()) found.list[found.count++] = &all.table[1];
#endif
    found.list[found.count++] = &all.table[2];
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
  struct Found {
    std::array<const KernelTable*, 4> list{};
    std::size_t count = 0;
  };
  static const Found found = [] {
    Found all;
    if (cpu_features().amx_tile) all.list[all.count++] = &tables().amx;
    for (const KernelTable* table : usable_kernel_tables()) all.list[all.count++] = table;
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
