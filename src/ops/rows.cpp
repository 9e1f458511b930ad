#include "ops/rows.h"

namespace carat {

void rms_norm(const OpContext& context, const float* x, std::uint32_t rows, std::uint32_t width, const float* weight,
              float offset, float eps, float* out) {
  for_rows(context, rows, width, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint64_t t = begin; t < end; ++t) {
      context.kernels->rms_norm(x + t * width, weight, offset, eps, width, out + t * width);
    }
  });
}

void add(const OpContext& context, float* x, const float* y, std::uint32_t rows, std::uint32_t width) {
  for_rows(context, rows, width, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint64_t t = begin; t < end; ++t) context.kernels->add(x + t * width, y + t * width, width);
  });
}

void add_bias(const OpContext& context, float* x, const float* bias, std::uint32_t rows, std::uint32_t width) {
  for_rows(context, rows, width, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint64_t t = begin; t < end; ++t) context.kernels->add(x + t * width, bias, width);
  });
}

void gated(const OpContext& context, Activation activation, float* gate, const float* up, std::uint32_t rows,
           std::uint32_t width) {
  for_rows(context, rows, 4 * std::uint64_t{width}, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint64_t t = begin; t < end; ++t) {
      context.kernels->gated(activation, gate + t * width, up + t * width, width, gate + t * width);
    }
  });
}

}  // namespace carat
