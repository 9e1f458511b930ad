#include "kernels/tables.h"

namespace carat {

void fill_quantize_avx512(KernelTable&) {}

}  // namespace carat
