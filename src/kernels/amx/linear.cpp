// The q8 form of the block types; the other forms stay those of avx512, whose unpacking this takes.
#include "kernels/amx/linear_tiles.h"
#include "kernels/amx/native_tiles.h"
#include "kernels/tables.h"

namespace carat {
namespace {

PanelSource sources[kDTypeCount];  ///< written once, before the table is used

void linear_q8(const LinearArgs& args) {
  linear_tiles<NativeTiles>(args, sources[static_cast<int>(args.weights.layout.type)]);
}

}  // namespace

void fill_linear_amx(KernelTable& table, const PanelSource* block_types) {
  for (int type = 0; type < kDTypeCount; ++type) {
    if (block_types[type].unpack == nullptr) continue;
    sources[type] = block_types[type];
    table.linear[type][static_cast<int>(ActivationForm::q8)] = linear_q8;
  }
}

}  // namespace carat
