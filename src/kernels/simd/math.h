// exp and tanh over the sixteen lanes of a Vector. The including file has included its own vector.h first; everything
// here has internal linkage (see kernels/tables.h). Coefficients: weighted least squares on Chebyshev nodes, iterated
// towards the minimax fit of the relative error, rounded to float.
#pragma once

namespace carat {
namespace {

/// e^x, within 1.5 ulp. Exactly 1 at 0; 0 below -104 (and at -inf), inf above 88.73, subnormal results rounded once;
/// NaN stays NaN.
/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r = 1 + r + r² q(r) to 3e-9 relative.
inline Vector::F exponential(Vector::F x) {
  using V = Vector;
  // The constant is the first operand, so that a NaN in x passes through.
  x = V::max(V::set1(-104.0F), x);
  x = V::min(V::set1(89.0F), x);
  const V::F n = V::round(V::mul(x, V::set1(1.44269504F)));
  // ln 2 in two floats: n times the first is exact inside the fused operation, so r has one rounding error.
  V::F r = V::fma(n, V::set1(-0x1.62e430p-1F), x);
  r = V::fma(n, V::set1(0x1.05c610p-29F), r);
  V::F q = V::set1(0x1.6a2176p-10F);
  q = V::fma(q, r, V::set1(0x1.123b8ap-7F));
  q = V::fma(q, r, V::set1(0x1.5558fcp-5F));
  q = V::fma(q, r, V::set1(0x1.555490p-3F));
  q = V::fma(q, r, V::set1(0x1.fffffcp-2F));
  const V::F p = V::add(V::fma(V::mul(r, r), q, r), V::set1(1.0F));
  return V::scale_by_power(p, n);
}

/// tanh x, within 2.5 ulp; odd, exact at 0, ±1 at ±inf; NaN stays NaN.
/// |x| < 0.625: x + x³ p(x²) to 5e-9 relative; else 1 - 2 / (e^2|x| + 1), where the subtraction loses nothing.
inline Vector::F hyperbolic_tangent(Vector::F x) {
  using V = Vector;
  const V::F z = V::abs(x);
  const V::F square = V::mul(z, z);
  V::F p = V::set1(-0.005697384F);
  p = V::fma(p, square, V::set1(0.020632546F));
  p = V::fma(p, square, V::set1(-0.053737797F));
  p = V::fma(p, square, V::set1(0.1333142F));
  p = V::fma(p, square, V::set1(-0.3333328F));
  const V::F small = V::fma(V::mul(z, square), p, z);
  const V::F e = exponential(V::add(z, z));
  const V::F large = V::sub(V::set1(1.0F), V::div(V::set1(2.0F), V::add(e, V::set1(1.0F))));
  return V::copy_sign(V::select(V::less(z, V::set1(0.625F)), small, large), x);
}

}  // namespace
}  // namespace carat
