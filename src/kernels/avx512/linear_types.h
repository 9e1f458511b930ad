// One function a packed type, each in its own file: sets the entries of that type, in the table and in `sources`.
#pragma once

namespace carat {
struct KernelTable;
struct PanelSource;
namespace avx512 {

void fill_q4_0(KernelTable& table, PanelSource* sources);
void fill_q4_1(KernelTable& table, PanelSource* sources);
void fill_q5_0(KernelTable& table, PanelSource* sources);
void fill_q5_1(KernelTable& table, PanelSource* sources);
void fill_q8_0(KernelTable& table, PanelSource* sources);
void fill_q2_k(KernelTable& table, PanelSource* sources);
void fill_q3_k(KernelTable& table, PanelSource* sources);
void fill_q4_k(KernelTable& table, PanelSource* sources);
void fill_q5_k(KernelTable& table, PanelSource* sources);
void fill_q6_k(KernelTable& table, PanelSource* sources);
void fill_iq4_nl(KernelTable& table, PanelSource* sources);
void fill_iq4_xs(KernelTable& table, PanelSource* sources);
void fill_float_types(KernelTable& table);

}  // namespace avx512
}  // namespace carat
