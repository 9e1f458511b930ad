// The elementwise kernels over a Vector of sixteen floats; kernels/ref/elementwise.cpp is the specification. The
// including file has included its own vector.h first; everything here has internal linkage (see kernels/tables.h).
//
// rms_norm, add and rope use the operations of ref in the order of ref, without fused multiply-adds: the same bits.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/math.h"

namespace carat {
namespace {

constexpr float kInfinity = __builtin_inff();

/// Loads `count` < 16 floats; the other lanes hold `filler`.
inline Vector::F load_some(const float* x, std::uint64_t count, float filler) {
  float padded[16];
  for (std::uint64_t i = 0; i < 16; ++i) padded[i] = i < count ? x[i] : filler;
  return Vector::load(padded);
}

inline void store_some(float* x, std::uint64_t count, Vector::F value) {
  float padded[16];
  Vector::store(padded, value);
  for (std::uint64_t i = 0; i < count; ++i) x[i] = padded[i];
}

void rms_norm(const float* x, const float* weight, float weight_offset, float eps, std::uint32_t n, float* out) {
  using V = Vector;
  V::F p0 = V::zero();
  V::F p1 = V::zero();
  V::F p2 = V::zero();
  V::F p3 = V::zero();
  std::uint32_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const V::F x0 = V::load(x + i);
    const V::F x1 = V::load(x + i + 16);
    const V::F x2 = V::load(x + i + 32);
    const V::F x3 = V::load(x + i + 48);
    p0 = V::add(p0, V::mul(x0, x0));
    p1 = V::add(p1, V::mul(x1, x1));
    p2 = V::add(p2, V::mul(x2, x2));
    p3 = V::add(p3, V::mul(x3, x3));
  }
  float partial[64];
  V::store(partial, p0);
  V::store(partial + 16, p1);
  V::store(partial + 32, p2);
  V::store(partial + 48, p3);
  for (std::uint32_t lane = 0; i + lane < n; ++lane) partial[lane] += x[i + lane] * x[i + lane];
  p0 = V::add(V::load(partial), V::load(partial + 32));
  p1 = V::add(V::load(partial + 16), V::load(partial + 48));
  const float mean = V::sum(V::add(p0, p1)) / static_cast<float>(n);
  const float scale = 1.0F / __builtin_sqrtf(mean + eps);
  const V::F scales = V::set1(scale);
  const V::F offset = V::set1(weight_offset);
  for (i = 0; i + 16 <= n; i += 16) {
    V::store(out + i, V::mul(V::mul(V::load(x + i), scales), V::add(offset, V::load(weight + i))));
  }
  for (; i < n; ++i) out[i] = (x[i] * scale) * (weight_offset + weight[i]);
}

void add(float* x, const float* y, std::uint32_t n) {
  using V = Vector;
  std::uint32_t i = 0;
  for (; i + 16 <= n; i += 16) V::store(x + i, V::add(V::load(x + i), V::load(y + i)));
  for (; i < n; ++i) x[i] += y[i];
}

void rope(float* x, std::uint32_t heads, std::uint32_t head_dim, const float* cosine, const float* sine) {
  using V = Vector;
  const std::uint32_t half = head_dim / 2;
  for (std::uint32_t h = 0; h < heads; ++h) {
    float* first = x + std::size_t{h} * head_dim;
    float* second = first + half;
    std::uint32_t i = 0;
    for (; i + 16 <= half; i += 16) {
      const V::F a = V::load(first + i);
      const V::F b = V::load(second + i);
      const V::F c = V::load(cosine + i);
      const V::F s = V::load(sine + i);
      V::store(first + i, V::sub(V::mul(a, c), V::mul(b, s)));
      V::store(second + i, V::add(V::mul(b, c), V::mul(a, s)));
    }
    for (; i < half; ++i) {
      const float a = first[i];
      const float b = second[i];
      first[i] = a * cosine[i] - b * sine[i];
      second[i] = b * cosine[i] + a * sine[i];
    }
  }
}

inline Vector::F negated(Vector::F x) { return Vector::sub(Vector::zero(), x); }

/// x sigmoid(y), as x / (1 + e^-y).
inline Vector::F times_sigmoid(Vector::F x, Vector::F y) {
  using V = Vector;
  return V::div(x, V::add(V::set1(1.0F), exponential(negated(y))));
}

/// 0.5 x (1 + tanh u) = x sigmoid(2u): the same function, which keeps its relative accuracy where tanh u is near -1.
inline Vector::F gelu_tanh(Vector::F x) {
  using V = Vector;
  constexpr float kTwoSqrtTwoOverPi = 1.5957691216057308F;
  const V::F cube = V::mul(V::mul(V::mul(V::set1(0.044715F), x), x), x);
  return times_sigmoid(x, V::mul(V::set1(kTwoSqrtTwoOverPi), V::add(x, cube)));
}

inline Vector::F silu(Vector::F x) { return times_sigmoid(x, x); }

void gated(Activation activation, const float* gate, const float* up, std::uint32_t n, float* out) {
  using V = Vector;
  const bool gelu = activation == Activation::gelu_tanh;
  const auto apply = [gelu](V::F g, V::F u) { return V::mul(gelu ? gelu_tanh(g) : silu(g), u); };
  std::uint32_t i = 0;
  for (; i + 16 <= n; i += 16) V::store(out + i, apply(V::load(gate + i), V::load(up + i)));
  if (i < n) store_some(out + i, n - i, apply(load_some(gate + i, n - i, 0), load_some(up + i, n - i, 0)));
}

void softcap(float* x, float cap, std::uint64_t n) {
  using V = Vector;
  if (cap == 0) return;
  const V::F caps = V::set1(cap);
  const auto apply = [caps](V::F value) { return V::mul(caps, hyperbolic_tangent(V::div(value, caps))); };
  std::uint64_t i = 0;
  for (; i + 16 <= n; i += 16) V::store(x + i, apply(V::load(x + i)));
  if (i < n) store_some(x + i, n - i, apply(load_some(x + i, n - i, 0)));
}

KernelTable::MaxSum max_sum_exp(const float* x, std::uint64_t n) {
  using V = Vector;
  constexpr std::uint64_t kBlock = 1024;
  // The running maximum is the second operand: a NaN in x is passed over here and found by its own mask.
  V::F m0 = V::set1(-kInfinity);
  V::F m1 = m0;
  V::Mask not_a_number = V::is_nan(m0);
  std::uint64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const V::F x0 = V::load(x + i);
    const V::F x1 = V::load(x + i + 16);
    not_a_number = V::either(not_a_number, V::either(V::is_nan(x0), V::is_nan(x1)));
    m0 = V::max(x0, m0);
    m1 = V::max(x1, m1);
  }
  float maximum = V::largest(V::max(m0, m1));
  bool bad = V::any(not_a_number);
  for (; i < n; ++i) {
    bad |= __builtin_isnan(x[i]);
    maximum = x[i] > maximum ? x[i] : maximum;
  }
  if (bad) return {maximum, __builtin_nanf("")};
  if (maximum == -kInfinity) return {maximum, 0};
  double total = 0;
  const V::F shift = V::set1(maximum);
  for (std::uint64_t begin = 0; begin < n; begin += kBlock) {
    const std::uint64_t end = n - begin < kBlock ? n : begin + kBlock;
    V::F partial = V::zero();
    for (i = begin; i + 16 <= end; i += 16) {
      partial = V::add(partial, exponential(V::sub(V::load(x + i), shift)));
    }
    if (i < end) {
      partial = V::add(partial, exponential(V::sub(load_some(x + i, end - i, -kInfinity), shift)));
    }
    total += static_cast<double>(V::sum(partial));
  }
  return {maximum, static_cast<float>(total)};
}

}  // namespace
}  // namespace carat
