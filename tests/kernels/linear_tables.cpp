#include "kernels/linear_tables.h"

#include <array>

#include "kernels/simd/panel_source.h"
#include "kernels/tables.h"

namespace carat::test {

#if defined(__x86_64__)
void fill_linear_emulated_amx(KernelTable& table, const PanelSource* block_types);

namespace {

const KernelTable& emulated_amx(const KernelTable& avx512) {
  static const KernelTable emulated = [&avx512] {
    KernelTable table = avx512;
    table.name = "amx_emulated";
    std::array<PanelSource, kDTypeCount> sources;
    fill_linear_avx512(table, sources.data());
    fill_linear_emulated_amx(table, sources.data());
    return table;
  }();
  return emulated;
}

}  // namespace
#endif

const std::vector<const KernelTable*>& linear_tables() {
  static const std::vector<const KernelTable*> all = [] {
    std::vector<const KernelTable*> found;
#if defined(__x86_64__)
    for (const KernelTable* table : usable_kernel_tables()) {
      if (table->name == "avx512") found.push_back(&emulated_amx(*table));
    }
#endif
    found.insert(found.end(), usable_kernel_tables().begin(), usable_kernel_tables().end());
    return found;
  }();
  return all;
}

}  // namespace carat::test
