#include "kernels/avx512/linear_types.h"
#include "kernels/tables.h"

namespace carat {

void fill_linear_avx512(KernelTable& table, PanelSource* sources) {
  avx512::fill_q4_0(table, sources);
  avx512::fill_q4_1(table, sources);
  avx512::fill_q5_0(table, sources);
  avx512::fill_q5_1(table, sources);
  avx512::fill_q8_0(table, sources);
  avx512::fill_q2_k(table, sources);
  avx512::fill_q3_k(table, sources);
  avx512::fill_q4_k(table, sources);
  avx512::fill_q5_k(table, sources);
  avx512::fill_q6_k(table, sources);
  avx512::fill_iq4_nl(table, sources);
  avx512::fill_iq4_xs(table, sources);
  avx512::fill_float_types(table);
}

}  // namespace carat
