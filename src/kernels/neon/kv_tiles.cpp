#include "kernels/neon/vector.h"
// The bodies are written over the Vector above.
#include "kernels/simd/kv_tiles_body.h"
#include "kernels/tables.h"

namespace carat {

void fill_kv_tiles_neon(KernelTable& table) {
  table.hadamard = hadamard;
  table.kv_store_q8 = kv_store_q8;
}

}  // namespace carat
