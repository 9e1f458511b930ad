// One function a packed type, each in its own file: sets what linear.cpp needs of that type.
#pragma once

namespace carat {
struct KernelTable;
struct PanelSource;
namespace neon {

void fill_q4_0(PanelSource* sources);
void fill_q4_1(PanelSource* sources);
void fill_q5_0(PanelSource* sources);
void fill_q5_1(PanelSource* sources);
void fill_q8_0(PanelSource* sources);
void fill_q2_k(PanelSource* sources);
void fill_q3_k(PanelSource* sources);
void fill_q4_k(PanelSource* sources);
void fill_q5_k(PanelSource* sources);
void fill_q6_k(PanelSource* sources);
void fill_iq4_nl(PanelSource* sources);
void fill_iq4_xs(PanelSource* sources);
void fill_float_types(KernelTable& table);

}  // namespace neon
}  // namespace carat
