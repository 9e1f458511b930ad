// The tables whose linear kernels are compared with ref: those this machine can run, best first and ref last; before
// them "amx_emulated" where the machine has avx512, which is amx on tiles in plain C++, whether there is AMX or not.
#pragma once

#include <vector>

#include "kernels/kernel_table.h"

namespace carat::test {

const std::vector<const KernelTable*>& linear_tables();

}  // namespace carat::test
