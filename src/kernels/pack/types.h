// The list of packed types. A new one is a struct like those in blocks_of_32.h, a line here, and a file in each ISA
// folder.
#pragma once

#include "base/check.h"
#include "kernels/pack/blocks_of_32.h"
#include "kernels/pack/float_values.h"
#include "kernels/pack/k_blocks.h"

namespace carat::pack {

template <typename... Types>
struct TypeList {};

using BlockTypes = TypeList<PackedQ4_0, PackedQ4_1, PackedQ5_0, PackedQ5_1, PackedQ8_0, PackedQ2_K, PackedQ3_K,
                            PackedQ4_K, PackedQ5_K, PackedQ6_K, PackedIQ4_NL, PackedIQ4_XS>;
using FloatTypes = TypeList<PackedF32, PackedF16, PackedBF16>;

/// Calls visitor(Type{}) for each type of the list.
template <typename... Types, typename Visitor>
void for_each_type(TypeList<Types...>, Visitor&& visitor) {
  (visitor(Types{}), ...);
}

/// Calls visitor(Type{}) for the type of the list that stands for `type`; false when there is none.
template <typename... Types, typename Visitor>
bool visit_type(TypeList<Types...>, DType type, Visitor&& visitor) {
  return ((Types::kType == type ? (visitor(Types{}), true) : false) || ...);
}

}  // namespace carat::pack
