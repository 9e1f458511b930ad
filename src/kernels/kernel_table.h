// Kernel tables: function pointers chosen once at start. The ref table is the specification of every entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "tensor/activations.h"
#include "tensor/dtype.h"
#include "tensor/kv_view.h"
#include "tensor/packed_layout.h"
#include "tensor/scratch.h"

namespace carat {

/// out[t][r] = sum over c of x[t][c] * W[r][c], for panels [panel_begin, panel_end) of W and all rows of x.
/// Sums run over steps of 32 columns in ascending order, per output: for integer forms
///   acc = fma(weight_scale * activation_scale, float(integer dot of the step), acc)   then the minimum's term
/// in the order docs/packed_layout.md states, so that bits do not depend on T, on panel ranges or on threads.
struct LinearArgs {
  PackedMatrix weights;
  Activations x;         ///< x.columns == weights.columns()
  float* out = nullptr;  ///< [x.rows][out_stride]; column r of the matrix' output at out[t * out_stride + r]
  std::uint64_t out_stride = 0;
  std::uint32_t panel_begin = 0;
  std::uint32_t panel_end = 0;
  std::byte* scratch = nullptr;  ///< linear_scratch_bytes(columns), 64-byte aligned, of this thread alone
};
using LinearKernel = void (*)(const LinearArgs&);

/// What the high plane of a matrix (form `planes`) alone says about its products with rows in the q15 form: of each
/// panel, the largest of its rows' estimate + reach * spread, where the product's error, divided by the spread, behaves
/// as a normal variable. Infinity where the panel's low plane is not as even as that needs.
/// ref/planes.cpp states the arithmetic.
struct PlaneScanArgs {
  PackedMatrix weights;
  Activations x;
  const float* energies = nullptr;  ///< [x.rows][columns / 32] sum of the squares of a step's integer values
  float reach = 0;
  float* bounds = nullptr;  ///< [x.rows][bound_stride], indexed by panel
  std::uint64_t bound_stride = 0;
  std::uint32_t panel_begin = 0;
  std::uint32_t panel_end = 0;
};

/// Where quantize_activations writes; arrays as in Activations.
struct ActivationBuffers {
  std::int8_t* high = nullptr;
  std::int8_t* low = nullptr;
  float* scales = nullptr;
  std::int32_t* sums = nullptr;
};

/// Attention of `rows` query rows of one sequence over one kv head, restricted to tiles [tile_begin, tile_end):
/// the un-normalised partial state of an online softmax, to be merged with other tile ranges in ascending order.
/// Key j is visible to row i iff j <= positions[i] and (window == 0 or positions[i] - j < window).
/// score = softcap(scale * q·k): cap before the mask. Keys no row may see are not read (stale tiles may hold
/// anything). A row that sees no key of the range leaves maximum -inf, sum 0, out 0.
/// The bits of a row do not depend on `rows`.
struct AttentionArgs {
  const float* queries = nullptr;  ///< row i, head h (of this group) at queries[i * query_stride + h * head_dim]
  std::uint64_t query_stride = 0;
  const std::int32_t* positions = nullptr;  ///< [rows], ascending by one
  std::uint32_t rows = 0;
  std::uint32_t group = 0;  ///< query heads that share this kv head
  KvView kv;
  /// Quantized forms: the queries times a Hadamard matrix, [rows][group][head_dim], for keys that are kept so. Values
  /// are summed as they are kept: `out` is in the rotated basis where the layout says rotated.
  const float* rotated_queries = nullptr;
  /// Tile `own_tile` is read at `own` in form `own_layout` instead of through the table: the tokens that lie in no
  /// full tile yet, or did not when these rows were new. Null: everything is in the table.
  const std::byte* own = nullptr;
  const KvTileLayout* own_layout = nullptr;
  std::uint64_t own_tile = 0;
  std::uint32_t kv_head = 0;
  std::uint32_t window = 0;
  float scale = 1;
  float softcap = 0;
  std::uint64_t tile_begin = 0;
  std::uint64_t tile_end = 0;
  float* maximum = nullptr;  ///< [rows][group] running maximum of scores
  float* sum = nullptr;      ///< [rows][group] sum of exp(score - maximum)
  float* out = nullptr;      ///< [rows][group][head_dim] sum of exp(score - maximum) * value
  /// Null, or [tile_end - tile_begin][rows][group][2]: the running maximum after each tile, and the tile's own sum of
  /// exp(score - that maximum); a tile that a row does not see leaves -inf and 0.
  float* tile_sums = nullptr;
  std::byte* scratch = nullptr;  ///< attention_scratch_bytes(rows, group, head_dim), 64-byte aligned
};

enum class Activation : std::uint8_t { gelu_tanh, silu };

/// Element types whose products a processor may have an instruction for.
enum class ProductForm : std::uint8_t { int8, bf16, f32 };
inline constexpr int kProductFormCount = 3;

/// Multiply-adds in registers and nothing else: the most that an instruction set can do of one form. No kernel does
/// more, so this is the ceiling of prefill.
struct ProductProbe {
  std::string_view instruction;                          ///< "vpdpbusd"
  double operations = 0;                                 ///< of a round; a multiply-add is two
  std::uint64_t (*run)(std::uint64_t rounds) = nullptr;  ///< returns more for more rounds, so that none is left out
};

/// One implementation of everything the operators need. Every pointer is set, except linear[type][form] where the
/// type is a float type and the form is not f32 (float weights always see float activations) and where a type has no
/// packed form yet; and products[form] where the instruction set has no instruction for the form.
struct KernelTable {
  std::string_view name;  ///< "ref", "avx2", "avx512", …

  LinearKernel linear[kDTypeCount][kActivationFormCount] = {};
  /// Writes a panel of a matrix in the form `planes` as a panel of the form `panels`: what `linear` reads.
  void (*join_planes)(const PackedMatrix& weights, std::uint32_t panel, std::byte* out) = nullptr;
  void (*scan_planes)(const PlaneScanArgs&) = nullptr;
  /// Quantizes `rows` rows of `columns` floats to `form` (q8 or q15). A row of zeros has scale 0. Round to nearest
  /// even. Non-finite input gives scale NaN, so that the fault stays visible.
  void (*quantize)(ActivationForm form, const float* x, std::uint32_t rows, std::uint32_t columns,
                   const ActivationBuffers& out) = nullptr;
  /// out[c] = scale * W[row][c]: an embedding row out of a packed matrix, bit-exact with the scalar codec times scale.
  void (*embed_row)(const PackedMatrix& weights, std::uint32_t row, float scale, float* out) = nullptr;

  /// out = x / sqrt(mean(x²) + eps) * (weight_offset + weight); in place allowed.
  void (*rms_norm)(const float* x, const float* weight, float weight_offset, float eps, std::uint32_t n,
                   float* out) = nullptr;
  /// x += y
  void (*add)(float* x, const float* y, std::uint32_t n) = nullptr;
  /// Rotate-half RoPE of `heads` heads at x[h * head_dim]: pairs (i, i + head_dim/2) by angle (cosine[i], sine[i]).
  void (*rope)(float* x, std::uint32_t heads, std::uint32_t head_dim, const float* cosine, const float* sine) = nullptr;
  /// out = activation(gate) * up
  void (*gated)(Activation activation, const float* gate, const float* up, std::uint32_t n, float* out) = nullptr;
  /// x = cap * tanh(x / cap)
  void (*softcap)(float* x, float cap, std::uint64_t n) = nullptr;

  /// x = x H / sqrt(n) for each of `rows` rows of n = 2^k >= 16 floats, H the Hadamard matrix: its own inverse.
  void (*hadamard)(float* x, std::uint32_t rows, std::uint32_t n) = nullptr;
  /// Writes one token's key and value rows ([kv_heads][head_dim] floats each) into slot `slot` of a tile: kv_store of
  /// the forms f32 and bf16, kv_store_q8 of q8.
  using KvStore = void (*)(const KvTileLayout& layout, std::byte* tile, std::uint32_t slot, const float* keys,
                           const float* values);
  KvStore kv_store = nullptr;
  KvStore kv_store_q8 = nullptr;
  /// Writes one head's keys and values of all 64 tokens, [64][head_dim] floats each, into a tile of a form below 8
  /// bits.
  void (*kv_store_tile)(const KvTileLayout& layout, std::byte* tile, std::uint32_t kv_head, const float* keys,
                        const float* values) = nullptr;
  /// The inverse of both, for any form: one head's keys and values, [64][head_dim] floats each. Slots that were never
  /// written give anything.
  void (*kv_load_tile)(const KvTileLayout& layout, const std::byte* tile, std::uint32_t kv_head, float* keys,
                       float* values) = nullptr;
  void (*attention)(const AttentionArgs&) = nullptr;
  /// Folds partial state b (later tiles) into a, for `count` rows × heads of head_dim.
  void (*attention_merge)(float* maximum_a, float* sum_a, float* out_a, const float* maximum_b, const float* sum_b,
                          const float* out_b, std::uint32_t count, std::uint32_t head_dim) = nullptr;

  /// Largest value and sum of exp(x - largest); NaN anywhere gives NaN in `sum`.
  struct MaxSum {
    float maximum;
    float sum;
  };
  MaxSum (*max_sum_exp)(const float* x, std::uint64_t n) = nullptr;

  /// For measurements alone. Of this instruction set: not taken over from the table below.
  ProductProbe products[kProductFormCount] = {};
};

/// The tables compiled into this binary that this machine can run, best first; the last one is ref.
std::span<const KernelTable* const> usable_kernel_tables();

/// The tables whose `products` this machine can run, widest first: the usable ones, and amx even where its self-test
/// failed.
std::span<const KernelTable* const> product_tables();

/// The table called `name`, or the best usable one when name is empty. An unknown name or one that this machine
/// cannot run is an error that lists what it can.
Result<const KernelTable*> select_kernel_table(std::string_view name);

/// Packs rows [panel * 16, …) of a matrix, given as file blocks (row-major, row_bytes each, missing rows zero), into
/// one panel. `rows` is how many are present (1..16).
void pack_panel(const PackedLayout& layout, const std::byte* file_rows, std::uint32_t rows, std::byte* panel);

/// The same for a matrix of the form `planes` (Q8_0): one panel of each plane.
void pack_planes(const PackedLayout& layout, const std::byte* file_rows, std::uint32_t rows, std::byte* high,
                 std::byte* low);

/// Dequantizes row `row` of a packed matrix, in either form: the inverse of packing followed by the scalar codec.
void unpack_row(const PackedMatrix& weights, std::uint32_t row, float* out);

}  // namespace carat
