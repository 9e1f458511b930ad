#include "kernels/avx2/linear_types.h"
#include "kernels/tables.h"

namespace carat {

void fill_linear_avx2(KernelTable& table) {
  avx2::fill_q4_0(table);
  avx2::fill_q4_1(table);
  avx2::fill_q5_0(table);
  avx2::fill_q5_1(table);
  avx2::fill_q8_0(table);
  avx2::fill_q2_k(table);
  avx2::fill_q3_k(table);
  avx2::fill_q4_k(table);
  avx2::fill_q5_k(table);
  avx2::fill_q6_k(table);
  avx2::fill_iq4_nl(table);
  avx2::fill_iq4_xs(table);
  avx2::fill_float_types(table);
}

}  // namespace carat
