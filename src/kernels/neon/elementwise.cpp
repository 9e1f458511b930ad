#include "kernels/neon/vector.h"
// The bodies are written over the Vector above.
#include "kernels/simd/elementwise_body.h"
#include "kernels/tables.h"

namespace carat {

void fill_elementwise_neon(KernelTable& table) {
  table.rms_norm = rms_norm;
  table.add = add;
  table.rope = rope;
  table.gated = gated;
  table.softcap = softcap;
  table.max_sum_exp = max_sum_exp;
}

}  // namespace carat
