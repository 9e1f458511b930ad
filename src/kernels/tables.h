// What the folders of kernels/ export: one function a kernel family and instruction set, each of which sets its own
// entries of a table. Everything else in those files has internal linkage, so that no instruction of a wide ISA leaks
// into code that runs everywhere (tools/check_isa_symbols.py proves it).
#pragma once

namespace carat {

struct KernelTable;
struct PanelSource;

// ref: the specification; sets every entry.
void fill_linear_ref(KernelTable& table);       ///< linear, for every packed type and form
void fill_planes_ref(KernelTable& table);       ///< join_planes, scan_planes
void fill_quantize_ref(KernelTable& table);     ///< quantize
void fill_embed_ref(KernelTable& table);        ///< embed_row
void fill_elementwise_ref(KernelTable& table);  ///< rms_norm, add, rope, gated, softcap, max_sum_exp
void fill_kv_tiles_ref(KernelTable& table);     ///< hadamard, kv_store, kv_store_tile, kv_load_tile
void fill_attention_ref(KernelTable& table);    ///< attention, attention_merge

#if defined(__x86_64__)
// avx2: needs AVX2, FMA and F16C. Starts as a copy of ref.
void fill_linear_avx2(KernelTable& table);
void fill_planes_avx2(KernelTable& table);
void fill_quantize_avx2(KernelTable& table);
void fill_elementwise_avx2(KernelTable& table);
void fill_kv_tiles_avx2(KernelTable& table);
void fill_attention_avx2(KernelTable& table);
void fill_products_avx2(KernelTable& table);

// avx512: needs AVX-512 F, BW, DQ, VL and VNNI besides. Starts as a copy of avx2.
void fill_linear_avx512(KernelTable& table, PanelSource* sources);  ///< sources: [kDTypeCount], block types are set
void fill_planes_avx512(KernelTable& table);
void fill_quantize_avx512(KernelTable& table);
void fill_elementwise_avx512(KernelTable& table);
void fill_kv_tiles_avx512(KernelTable& table);
void fill_attention_avx512(KernelTable& table);
void fill_products_avx512(KernelTable& table);

// amx: needs AMX tiles, their int8 products, and tile registers that keep their contents. Starts as a copy of avx512.
void fill_linear_amx(KernelTable& table, const PanelSource* sources);  ///< sources: as avx512 set them
void fill_products_amx(KernelTable& table);
bool amx_self_test();  ///< under a millisecond or two; asks for tiles that are permitted
#endif

#if defined(__aarch64__)
// neon: needs the dot products of ARMv8.2 (SDOT). Starts as a copy of ref.
void fill_linear_neon(KernelTable& table, PanelSource* sources);  ///< sources: [kDTypeCount], block types are set
void fill_planes_neon(KernelTable& table);
void fill_quantize_neon(KernelTable& table);
void fill_elementwise_neon(KernelTable& table);
void fill_kv_tiles_neon(KernelTable& table);
void fill_attention_neon(KernelTable& table);
void fill_products_neon(KernelTable& table);

// i8mm: needs the matrix products of bytes (SMMLA) besides. Starts as a copy of neon.
void fill_i8mm(KernelTable& table, const PanelSource* sources);  ///< linear and products; sources: as neon set them
#endif

}  // namespace carat
