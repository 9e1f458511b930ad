// The tile kernels of kernels/amx over emulated tiles. Compiled with the flags of avx512, as the kernels are: only the
// function below leaves this file.
#if defined(__x86_64__)
#include "kernels/amx/linear_tiles.h"
#include "kernels/tables.h"
#include "support/emulated_tiles.h"

namespace carat::test {
namespace {

PanelSource sources[kDTypeCount];

void linear_q8(const LinearArgs& args) {
  linear_tiles<EmulatedTiles>(args, sources[static_cast<int>(args.weights.layout.type)]);
}

}  // namespace

void fill_linear_emulated_amx(KernelTable& table, const PanelSource* block_types) {
  for (int type = 0; type < kDTypeCount; ++type) {
    if (block_types[type].unpack == nullptr) continue;
    sources[type] = block_types[type];
    table.linear[type][static_cast<int>(ActivationForm::q8)] = linear_q8;
  }
}

}  // namespace carat::test
#endif
