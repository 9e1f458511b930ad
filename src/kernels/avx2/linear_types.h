// One function a packed type, each in its own file: sets the entries of that type.
#pragma once

namespace carat {
struct KernelTable;
namespace avx2 {

void fill_q4_0(KernelTable& table);
void fill_q4_1(KernelTable& table);
void fill_q5_0(KernelTable& table);
void fill_q5_1(KernelTable& table);
void fill_q8_0(KernelTable& table);
void fill_q2_k(KernelTable& table);
void fill_q3_k(KernelTable& table);
void fill_q4_k(KernelTable& table);
void fill_q5_k(KernelTable& table);
void fill_q6_k(KernelTable& table);
void fill_iq4_nl(KernelTable& table);
void fill_iq4_xs(KernelTable& table);
void fill_float_types(KernelTable& table);

}  // namespace avx2
}  // namespace carat
