#include "kernels/tables.h"

namespace carat {

void fill_linear_avx512(KernelTable&) {}

}  // namespace carat
