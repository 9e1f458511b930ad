// What the processor can do and the operating system lets programs use.
#pragma once

#include <cstdint>
#include <string>

namespace carat {

/// An instruction set is true only when the processor has it and the system saves its registers (x86-64: XCR0; AMX:
/// also the permission that Linux grants per process). On the other architecture its fields stay false.
struct CpuFeatures {
  std::string brand;  ///< "AMD EPYC 9B14"; "unknown" when not told
  std::string vendor;
  int family = 0;  ///< display family and model, as in /proc/cpuinfo
  int model = 0;
  int stepping = 0;

  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512vl = false;
  bool avx512dq = false;
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool avx_vnni = false;
  bool amx_tile = false;
  bool amx_int8 = false;
  bool amx_bf16 = false;

  bool neon = false;
  bool dotprod = false;
  bool i8mm = false;
};

/// The CPUID registers and system state that x86-64 detection looks at. Plain data, so that machines that are not at
/// hand can be tested.
struct X86State {
  std::uint32_t leaf1_eax = 0;
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint64_t xcr0 = 0;  ///< 0 when the system has not enabled XSAVE
  bool amx_permitted = false;
};

/// Fills the x86-64 fields of a CpuFeatures from the registers (Intel SDM vol. 2A, CPUID; vol. 1, 13.3).
CpuFeatures decode_x86(const X86State& state);

/// This machine's, read once. On x86-64 with AMX the first call asks Linux for the tile registers of this process.
const CpuFeatures& cpu_features();

/// "avx2 fma f16c avx512f …", only what is usable.
std::string feature_list(const CpuFeatures& features);

}  // namespace carat
