#include "os/cpu.h"

#include <string_view>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "os/sysfs.h"
#endif

namespace carat {
namespace {

constexpr bool bit(std::uint64_t word, int index) { return (word >> index & 1) != 0; }

// XCR0: bits 1–2 SSE and AVX; 5–7 AVX-512 mask, upper halves, upper registers; 17–18 AMX tile config and data.
constexpr std::uint64_t kAvxState = 0x6;
constexpr std::uint64_t kAvx512State = kAvxState | 0xe0;
constexpr std::uint64_t kAmxState = 0x60000;

#if defined(__x86_64__)
struct Registers {
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
};

Registers cpuid(std::uint32_t leaf, std::uint32_t subleaf = 0) {
  Registers out;
  __get_cpuid_count(leaf, subleaf, &out.eax, &out.ebx, &out.ecx, &out.edx);  // zeros above the highest leaf
  return out;
}

std::uint64_t read_xcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

// The tile registers are 8 KiB of state a thread, so Linux (5.16+) gives them only to processes that ask.
bool ask_for_tiles() {
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

std::string text_of(std::initializer_list<std::uint32_t> registers) {
  std::string text;
  for (const std::uint32_t value : registers) {
    std::array<char, 4> bytes{};
    std::memcpy(bytes.data(), &value, sizeof value);
    text.append(bytes.data(), bytes.size());
  }
  text.resize(text.find_last_not_of(std::string_view("\0 ", 2)) + 1);
  text.erase(0, text.find_first_not_of(' ') == std::string::npos ? 0 : text.find_first_not_of(' '));
  return text;
}

std::string read_brand() {
  if (cpuid(0x80000000U).eax < 0x80000004U) return "unknown";
  std::string brand;
  const Registers a = cpuid(0x80000002U);
  const Registers b = cpuid(0x80000003U);
  const Registers c = cpuid(0x80000004U);
  brand = text_of({a.eax, a.ebx, a.ecx, a.edx, b.eax, b.ebx, b.ecx, b.edx, c.eax, c.ebx, c.ecx, c.edx});
  return brand.empty() ? "unknown" : brand;
}

CpuFeatures read_features() {
  X86State state;
  const Registers leaf1 = cpuid(1);
  const Registers leaf7 = cpuid(7);
  state.leaf1_eax = leaf1.eax;
  state.leaf1_ecx = leaf1.ecx;
  state.leaf7_ebx = leaf7.ebx;
  state.leaf7_ecx = leaf7.ecx;
  state.leaf7_edx = leaf7.edx;
  if (leaf7.eax >= 1) state.leaf7_1_eax = cpuid(7, 1).eax;
  constexpr int kOsxsave = 27;
  if (bit(leaf1.ecx, kOsxsave)) state.xcr0 = read_xcr0();
  constexpr int kAmxTile = 24;
  if (bit(leaf7.edx, kAmxTile) && (state.xcr0 & kAmxState) == kAmxState) state.amx_permitted = ask_for_tiles();
  CpuFeatures features = decode_x86(state);
  features.brand = read_brand();
  const Registers leaf0 = cpuid(0);
  features.vendor = text_of({leaf0.ebx, leaf0.edx, leaf0.ecx});
  return features;
}
#elif defined(__aarch64__)
CpuFeatures read_features() {
  CpuFeatures features;
  const unsigned long hwcap = getauxval(AT_HWCAP);
  const unsigned long hwcap2 = getauxval(AT_HWCAP2);
  features.neon = (hwcap & HWCAP_ASIMD) != 0;
  features.dotprod = (hwcap & HWCAP_ASIMDDP) != 0;
  features.i8mm = (hwcap2 & HWCAP2_I8MM) != 0;
  // Boards name the product in the device tree; servers name it nowhere but in the part number.
  features.brand = read_system_file("", "/proc/device-tree/model").value_or("ARM64");
  while (!features.brand.empty() && features.brand.back() == '\0') features.brand.pop_back();
  features.vendor = "ARM";
  return features;
}
#else
#error "carat runs on x86-64 and ARM64"
#endif

}  // namespace

CpuFeatures decode_x86(const X86State& state) {
  CpuFeatures out;
  const int base_family = static_cast<int>(state.leaf1_eax >> 8 & 0xf);
  const int base_model = static_cast<int>(state.leaf1_eax >> 4 & 0xf);
  out.family = base_family == 15 ? base_family + static_cast<int>(state.leaf1_eax >> 20 & 0xff) : base_family;
  out.model = base_family == 6 || base_family == 15
                  ? base_model | static_cast<int>(state.leaf1_eax >> 16 & 0xf) << 4
                  : base_model;
  out.stepping = static_cast<int>(state.leaf1_eax & 0xf);

  const bool avx = bit(state.leaf1_ecx, 28) && (state.xcr0 & kAvxState) == kAvxState;
  out.fma = avx && bit(state.leaf1_ecx, 12);
  out.f16c = avx && bit(state.leaf1_ecx, 29);
  out.avx2 = avx && bit(state.leaf7_ebx, 5);
  out.avx_vnni = out.avx2 && bit(state.leaf7_1_eax, 4);

  out.avx512f = out.avx2 && bit(state.leaf7_ebx, 16) && (state.xcr0 & kAvx512State) == kAvx512State;
  out.avx512dq = out.avx512f && bit(state.leaf7_ebx, 17);
  out.avx512bw = out.avx512f && bit(state.leaf7_ebx, 30);
  out.avx512vl = out.avx512f && bit(state.leaf7_ebx, 31);
  out.avx512_vnni = out.avx512f && bit(state.leaf7_ecx, 11);
  out.avx512_bf16 = out.avx512f && bit(state.leaf7_1_eax, 5);
  out.avx512_fp16 = out.avx512bw && bit(state.leaf7_edx, 23);

  out.amx_tile = state.amx_permitted && bit(state.leaf7_edx, 24) && (state.xcr0 & kAmxState) == kAmxState;
  out.amx_bf16 = out.amx_tile && bit(state.leaf7_edx, 22);
  out.amx_int8 = out.amx_tile && bit(state.leaf7_edx, 25);
  return out;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = read_features();
  return features;
}

std::string feature_list(const CpuFeatures& features) {
  const std::pair<bool, std::string_view> named[] = {
      {features.avx2, "avx2"},
      {features.fma, "fma"},
      {features.f16c, "f16c"},
      {features.avx_vnni, "avx_vnni"},
      {features.avx512f, "avx512f"},
      {features.avx512bw, "avx512bw"},
      {features.avx512vl, "avx512vl"},
      {features.avx512dq, "avx512dq"},
      {features.avx512_vnni, "avx512_vnni"},
      {features.avx512_bf16, "avx512_bf16"},
      {features.avx512_fp16, "avx512_fp16"},
      {features.amx_tile, "amx_tile"},
      {features.amx_int8, "amx_int8"},
      {features.amx_bf16, "amx_bf16"},
      {features.neon, "neon"},
      {features.dotprod, "dotprod"},
      {features.i8mm, "i8mm"},
  };
  std::string list;
  for (const auto& [present, feature] : named) {
    if (!present) continue;
    if (!list.empty()) list += ' ';
    list += feature;
  }
  return list;
}

}  // namespace carat
