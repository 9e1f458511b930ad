// The avx2 linear kernels of one packed block type: entries for all three activation forms.
// Byte products are VPMADDUBSW, which adds pairs in 16 bits: as many quads are added there as cannot overflow.
#pragma once

#include "kernels/avx2/linear_panels.h"
#include "kernels/avx2/linear_unpack.h"

namespace carat {
namespace {

/// Tokens of one pass over a panel, and the most tokens for which passes over the packed bytes are faster than
/// unpacking into scratch first.
constexpr std::uint32_t kPassTokens = 4;
constexpr std::uint32_t kDirectTokens = 4;
constexpr int kPrefetchAhead = 512;

/// Eight-bit weights are unpacked as signed, others as unsigned with their zero folded in through the sums.
template <typename Type>
constexpr bool kSigned = Type::kMaxQuant > 127;
template <typename Type>
constexpr int kCorrectedZero = kSigned<Type> ? 0 : Type::kZero;
/// Quads whose pair sums (weight * 127 twice) fit 16 bits together: 8 of 4-bit, 4 of 5-bit, 2 of 6-bit, 1 of 8-bit
/// weights (|weight| <= 128).
template <typename Type>
constexpr int kQuadsIn16Bits = kSigned<Type> ? 1 : 32767 / (2 * 127 * Type::kMaxQuant);

/// One row of integer activations and where its outputs for the panel at hand go.
struct Token {
  const std::int8_t* high;
  const std::int8_t* low;
  const float* scales;
  const std::int32_t* sums;
  float* out;
};

template <bool kTwoPlanes>
CARAT_INLINE Token token_at(const LinearArgs& args, std::uint64_t t, std::uint32_t panel) {
  const Activations& x = args.x;
  return {x.high + t * x.columns,
          kTwoPlanes ? x.low + t * x.columns : nullptr,
          x.scales + (kTwoPlanes ? t : t * (x.columns / kStepColumns)),
          x.sums + t * (x.columns / 16),
          args.out + t * args.out_stride + std::uint64_t{panel} * kPanelRows};
}

CARAT_INLINE __m256i broadcast_quad(const std::int8_t* at) {
  int quad;
  __builtin_memcpy(&quad, at, sizeof quad);
  return _mm256_set1_epi32(quad);
}

/// Pair sums of one quad: unsigned × signed, or signed × signed as |w| × (x with the sign of w).
template <typename Type>
CARAT_INLINE __m256i multiply_pairs(__m256i w, __m256i x) {
  if constexpr (kSigned<Type>) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  return _mm256_maddubs_epi16(w, x);
}

/// Sums of byte products of kQuads quads, exact in 32 bits.
template <typename Type, int kQuads>
CARAT_INLINE __m256i dot_plane(const __m256i* quads, const std::int8_t* x) {
  constexpr int kTogether = kQuadsIn16Bits<Type> < kQuads ? kQuadsIn16Bits<Type> : kQuads;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i total = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int first = 0; first < kQuads; first += kTogether) {
    __m256i pairs = multiply_pairs<Type>(quads[first], broadcast_quad(x + 4 * first));
#pragma GCC unroll 8
    for (int q = first + 1; q < first + kTogether; ++q) {
      pairs = _mm256_add_epi16(pairs, multiply_pairs<Type>(quads[q], broadcast_quad(x + 4 * q)));
    }
    total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, ones));
  }
  return total;
}

/// Steps straight from the packed bytes.
template <typename Type>
struct PackedSource {
  using Unpacked = Unpack<Type>;
  const std::byte* group_at;
  typename Unpacked::Group group;

  [[gnu::always_inline]] void begin_group() { Unpacked::begin(group_at, group); }
  [[gnu::always_inline]] void end_group() { group_at += Type::kGroupBytes; }
  [[gnu::always_inline]] void prefetch(int step) const {
    constexpr int kStepBytes = Type::kGroupBytes / Type::kGroupSteps;
    for (int ahead = 0; ahead < kStepBytes; ahead += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(group_at + step * kStepBytes + kPrefetchAhead + ahead), _MM_HINT_T0);
    }
  }
  [[gnu::always_inline]] void quads(int step, int side, __m256i* out) const {
    Unpacked::quads(group_at, step, side, out);
  }
  [[gnu::always_inline]] __m256 scale(int step, int half, int side) const {
    return Unpacked::scale(group_at, group, step, half, side);
  }
  [[gnu::always_inline]] __m256 minimum(int step, int half, int side) const {
    return Unpacked::minimum(group_at, group, step, half, side);
  }
};

/// Steps that were unpacked into scratch.
template <typename Type>
struct ScratchSource {
  const std::uint8_t* quads_at;
  const float* scales_at;
  const float* minima_at;

  [[gnu::always_inline]] void begin_group() {}
  [[gnu::always_inline]] void end_group() {
    quads_at += Type::kGroupSteps * 512;
    scales_at += Type::kGroupSteps * Type::kHalves * 16;
    minima_at += Type::kGroupSteps * Type::kHalves * 16;
  }
  [[gnu::always_inline]] void prefetch(int) const {}
  [[gnu::always_inline]] void quads(int step, int side, __m256i* out) const {
    for (int q = 0; q < 8; ++q) {
      out[q] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(quads_at + step * 512 + q * 64 + side * 32));
    }
  }
  [[gnu::always_inline]] __m256 scale(int step, int half, int side) const {
    return _mm256_loadu_ps(scales_at + (step * Type::kHalves + half) * 16 + side * 8);
  }
  [[gnu::always_inline]] __m256 minimum(int step, int half, int side) const {
    return _mm256_loadu_ps(minima_at + (step * Type::kHalves + half) * 16 + side * 8);
  }
};

template <typename Type, typename Source, int kTokens, bool kTwoPlanes>
void multiply_panel(Source source, std::uint32_t groups, const Token* tokens, std::uint32_t rows) {
  constexpr int kQuads = 8 / Type::kHalves;
  __m256 acc[kTokens][2];
  for (int t = 0; t < kTokens; ++t) acc[t][0] = acc[t][1] = _mm256_setzero_ps();
  std::uint64_t s = 0;
  for (std::uint32_t g = 0; g < groups; ++g, source.end_group()) {
    source.begin_group();
    for (int step = 0; step < Type::kGroupSteps; ++step, ++s) {
      source.prefetch(step);
#pragma GCC unroll 2
      for (int side = 0; side < 2; ++side) {
        __m256i quads[8];
        source.quads(step, side, quads);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          const Token& token = tokens[t];
          const std::int32_t sums[2] = {token.sums[2 * s], token.sums[2 * s + 1]};
#pragma GCC unroll 2
          for (int half = 0; half < Type::kHalves; ++half) {
            const std::uint64_t column = s * kStepColumns + static_cast<unsigned>(half) * 16;
            __m256i dot = dot_plane<Type, kQuads>(quads + half * kQuads, token.high + column);
            if constexpr (kTwoPlanes) {
              dot = _mm256_add_epi32(_mm256_slli_epi32(dot, 7),
                                     dot_plane<Type, kQuads>(quads + half * kQuads, token.low + column));
            }
            if constexpr (kCorrectedZero<Type> != 0) {
              const std::int32_t sum = Type::kHalves == 2 ? sums[half] : sums[0] + sums[1];
              dot = _mm256_add_epi32(dot, _mm256_set1_epi32(-kCorrectedZero<Type> * sum));
            }
            const __m256 scale = source.scale(step, half, side);
            const __m256 factor = kTwoPlanes ? scale : _mm256_mul_ps(scale, _mm256_set1_ps(token.scales[s]));
            acc[t][side] = _mm256_fmadd_ps(factor, _mm256_cvtepi32_ps(dot), acc[t][side]);
          }
          if constexpr (Type::kHasMinimum) {
#pragma GCC unroll 2
            for (int half = 0; half < Type::kHalves; ++half) {
              const auto sum = static_cast<float>(Type::kHalves == 2 ? sums[half] : sums[0] + sums[1]);
              acc[t][side] = _mm256_fmadd_ps(source.minimum(step, half, side),
                                             _mm256_set1_ps(kTwoPlanes ? sum : token.scales[s] * sum), acc[t][side]);
            }
          }
        }
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int side = 0; side < 2; ++side) {
      const __m256 scale = _mm256_set1_ps(kTwoPlanes ? tokens[t].scales[0] : 1.0f);
      const __m256 value = kTwoPlanes ? _mm256_mul_ps(acc[t][side], scale) : acc[t][side];
      avx2::store_rows(tokens[t].out, side, rows, value);
    }
  }
}

template <typename Type, typename Source, bool kTwoPlanes>
void multiply_tokens(const Source& source, const Range<Type>& range, std::uint32_t p) {
  const LinearArgs& args = range.args;
  for_token_passes<kPassTokens>(args.x.rows, [&](auto count, std::uint32_t first) {
    Token tokens[count.value];
    for (std::uint32_t i = 0; i < count.value; ++i) tokens[i] = token_at<kTwoPlanes>(args, first + i, p);
    multiply_panel<Type, Source, count.value, kTwoPlanes>(source, range.groups, tokens, range.rows(p));
  });
}

template <typename Type>
void unpack_panel(const std::byte* panel, std::uint32_t groups, const PanelScratch& out) {
  PackedSource<Type> source{panel, {}};
  std::uint64_t s = 0;
  for (std::uint32_t g = 0; g < groups; ++g, source.end_group()) {
    source.begin_group();
    for (int step = 0; step < Type::kGroupSteps; ++step, ++s) {
      for (int side = 0; side < 2; ++side) {
        __m256i quads[8];
        source.quads(step, side, quads);
        for (int q = 0; q < 8; ++q) {
          std::uint8_t* to = out.quads + s * 512 + static_cast<unsigned>(q * 64 + side * 32);
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), quads[q]);
        }
        for (int half = 0; half < Type::kHalves; ++half) {
          const std::uint64_t part = s * Type::kHalves + static_cast<unsigned>(half);
          const std::uint64_t at = part * 16 + static_cast<unsigned>(side * 8);
          _mm256_storeu_ps(out.scales + at, source.scale(step, half, side));
          if constexpr (Type::kHasMinimum) _mm256_storeu_ps(out.minima + at, source.minimum(step, half, side));
        }
      }
    }
  }
}

template <typename Type, bool kTwoPlanes>
void linear_integer(const LinearArgs& args) {
  const auto range = Range<Type>::of(args);
  const PanelScratch scratch = PanelScratch::at(args.scratch, range.columns / kStepColumns);
  for (std::uint32_t p = args.panel_begin; p < args.panel_end; ++p) {
    if (args.x.rows <= kDirectTokens) {
      multiply_tokens<Type, PackedSource<Type>, kTwoPlanes>({range.panel(p), {}}, range, p);
    } else {
      unpack_panel<Type>(range.panel(p), range.groups, scratch);
      multiply_tokens<Type, ScratchSource<Type>, kTwoPlanes>({scratch.quads, scratch.scales, scratch.minima}, range, p);
    }
  }
}

/// The weights of a panel as floats, [columns][16], as the scalar codec rounds them.
template <typename Type>
void dequantize_panel(const std::byte* panel, std::uint32_t groups, float* out) {
  PackedSource<Type> source{panel, {}};
  const __m256i zero = _mm256_set1_epi32(kCorrectedZero<Type>);
  for (std::uint32_t g = 0; g < groups; ++g, source.end_group()) {
    source.begin_group();
    for (int step = 0; step < Type::kGroupSteps; ++step, out += kStepColumns * kPanelRows) {
      for (int side = 0; side < 2; ++side) {
        __m256i quads[8];
        source.quads(step, side, quads);
        for (int q = 0; q < 8; ++q) {
          __m256 minimum = _mm256_setzero_ps();
          if constexpr (Type::kHasMinimum) minimum = source.minimum(step, q * Type::kHalves / 8, side);
          const __m256 scale = source.scale(step, q * Type::kHalves / 8, side);
          for (int j = 0; j < 4; ++j) {
            // The byte moves to the top of its lane and back down, with its sign if it has one.
            const __m256i top = _mm256_sll_epi32(quads[q], _mm_cvtsi32_si128(24 - 8 * j));
            const __m256i quant = kSigned<Type> ? _mm256_srai_epi32(top, 24) : _mm256_srli_epi32(top, 24);
            const __m256 value = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_sub_epi32(quant, zero)));
            _mm256_storeu_ps(out + (4 * q + j) * static_cast<int>(kPanelRows) + side * 8,
                             Type::kHasMinimum ? _mm256_add_ps(value, minimum) : value);
          }
        }
      }
    }
  }
}

template <typename Type>
void linear_f32(const LinearArgs& args) {
  const auto range = Range<Type>::of(args);
  auto* weights = reinterpret_cast<float*>(args.scratch);
  for (std::uint32_t p = args.panel_begin; p < args.panel_end; ++p) {
    dequantize_panel<Type>(range.panel(p), range.groups, weights);
    avx2::multiply_float_panel(
        {weights, range.rows(p), args.x, args.out + std::uint64_t{p} * kPanelRows, args.out_stride});
  }
}

template <typename Type>
void fill_block_type(KernelTable& table) {
  auto& entry = table.linear[static_cast<int>(Type::kType)];
  entry[static_cast<int>(ActivationForm::f32)] = linear_f32<Type>;
  entry[static_cast<int>(ActivationForm::q8)] = linear_integer<Type, false>;
  entry[static_cast<int>(ActivationForm::q15)] = linear_integer<Type, true>;
}

}  // namespace
}  // namespace carat
