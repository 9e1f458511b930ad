#include "kernels/neon/linear_panels.h"
#include "kernels/neon/linear_types.h"
#include "kernels/tables.h"

namespace carat {
namespace {

PanelSource block_types[kDTypeCount];  ///< written once, before the table is used

void linear_integer(const LinearArgs& args) {
  const PanelSource& source = block_types[static_cast<int>(args.weights.layout.type)];
  if (args.x.rows <= neon::kDirectTokens) return source.few[static_cast<int>(args.x.form)](args);
  neon::multiply_panels(args, source);
}

void linear_f32(const LinearArgs& args) {
  neon::multiply_float_panels(args, block_types[static_cast<int>(args.weights.layout.type)]);
}

}  // namespace

void fill_linear_neon(KernelTable& table, PanelSource* sources) {
  neon::fill_q4_0(sources);
  neon::fill_q4_1(sources);
  neon::fill_q5_0(sources);
  neon::fill_q5_1(sources);
  neon::fill_q8_0(sources);
  neon::fill_q2_k(sources);
  neon::fill_q3_k(sources);
  neon::fill_q4_k(sources);
  neon::fill_q5_k(sources);
  neon::fill_q6_k(sources);
  neon::fill_iq4_nl(sources);
  neon::fill_iq4_xs(sources);
  neon::fill_float_types(table);
  for (int type = 0; type < kDTypeCount; ++type) {
    if (sources[type].unpack == nullptr) continue;
    block_types[type] = sources[type];
    auto& entry = table.linear[type];
    entry[static_cast<int>(ActivationForm::f32)] = linear_f32;
    entry[static_cast<int>(ActivationForm::q8)] = linear_integer;
    entry[static_cast<int>(ActivationForm::q15)] = linear_integer;
  }
}

}  // namespace carat
