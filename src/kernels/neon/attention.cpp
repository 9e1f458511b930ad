#include "kernels/neon/vector.h"
// The bodies are written over the Vector above.
#include "kernels/simd/attention_body.h"
#include "kernels/tables.h"

namespace carat {

/// kv_store stays that of ref: it is a scatter of 4-byte elements.
void fill_attention_neon(KernelTable& table) {
  table.attention = attention;
  table.attention_merge = attention_merge;
}

}  // namespace carat
