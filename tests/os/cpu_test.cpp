#include "os/cpu.h"

#include <gtest/gtest.h>

namespace carat {
namespace {

// The registers of a Sapphire Rapids server (family 6, model 143) with everything on.
X86State sapphire_rapids() {
  X86State state;
  state.leaf1_eax = 0x000806f8;
  state.leaf1_ecx = 1U << 12 | 1U << 27 | 1U << 28 | 1U << 29;
  state.leaf7_ebx = 1U << 5 | 1U << 16 | 1U << 17 | 1U << 30 | 1U << 31;
  state.leaf7_ecx = 1U << 11;
  state.leaf7_edx = 1U << 22 | 1U << 23 | 1U << 24 | 1U << 25;
  state.leaf7_1_eax = 1U << 4 | 1U << 5;
  state.xcr0 = 0x602e7;
  state.amx_permitted = true;
  return state;
}

TEST(Cpu, DecodesAFullServer) {
  const CpuFeatures cpu = decode_x86(sapphire_rapids());
  EXPECT_EQ(cpu.family, 6);
  EXPECT_EQ(cpu.model, 143);
  EXPECT_EQ(cpu.stepping, 8);
  EXPECT_EQ(feature_list(cpu),
            "avx2 fma f16c avx_vnni avx512f avx512bw avx512vl avx512dq avx512_vnni avx512_bf16 avx512_fp16 amx_tile "
            "amx_int8 amx_bf16");
}

TEST(Cpu, DecodesAnExtendedFamily) {
  X86State state;
  state.leaf1_eax = 0x00a10f11;  // EPYC Zen 4: family 25, model 17
  const CpuFeatures cpu = decode_x86(state);
  EXPECT_EQ(cpu.family, 25);
  EXPECT_EQ(cpu.model, 17);
  EXPECT_EQ(cpu.stepping, 1);
}

TEST(Cpu, NothingWithoutTheSystemsConsent) {
  X86State state = sapphire_rapids();
  state.xcr0 = 0;
  EXPECT_EQ(feature_list(decode_x86(state)), "");

  state = sapphire_rapids();
  state.xcr0 = 0x7;  // AVX only: a hypervisor or kernel that hides AVX-512
  state.amx_permitted = false;
  EXPECT_EQ(feature_list(decode_x86(state)), "avx2 fma f16c avx_vnni");

  state = sapphire_rapids();
  state.xcr0 = 0x67;  // upper registers (bit 7) not saved
  EXPECT_FALSE(decode_x86(state).avx512f);
}

TEST(Cpu, TilesNeedThePermissionAndBothStates) {
  X86State state = sapphire_rapids();
  state.amx_permitted = false;
  EXPECT_FALSE(decode_x86(state).amx_tile);
  EXPECT_FALSE(decode_x86(state).amx_int8);
  state = sapphire_rapids();
  state.xcr0 = 0x202e7;
  EXPECT_FALSE(decode_x86(state).amx_bf16);
  EXPECT_TRUE(decode_x86(state).avx512_vnni);
}

TEST(Cpu, ThisMachineAgreesWithTheCompilersView) {
  const CpuFeatures& cpu = cpu_features();
  EXPECT_FALSE(cpu.brand.empty());
  EXPECT_EQ(&cpu, &cpu_features());
#if defined(__x86_64__)
  EXPECT_FALSE(cpu.neon);
  EXPECT_EQ(cpu.avx2, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(cpu.fma, __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(cpu.avx512f, __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(cpu.avx512_vnni, __builtin_cpu_supports("avx512vnni") != 0);
#elif defined(__aarch64__)
  EXPECT_TRUE(cpu.neon);
#endif
}

}  // namespace
}  // namespace carat
