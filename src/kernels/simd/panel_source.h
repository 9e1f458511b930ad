// How the unpacking of one folder serves the kernels of another: the tile kernels (kernels/amx) and the matrix products
// of kernels/neon multiply panels that they do not unpack themselves. Data only, so that any file may include it.
#pragma once

#include "kernels/kernel_table.h"

namespace carat {

/// What a matrix-matrix kernel needs to know of one packed block type.
struct PanelSource {
  /// Writes panel `panel` of args.weights as
  ///   quads  [steps][8][16][4]   quant - zero, which always fits a signed byte
  ///   scales [steps][halves][16]
  ///   minima [steps][halves][16] where has_minimum
  void (*unpack)(const LinearArgs& args, std::uint32_t panel, std::int8_t* quads, float* scales,
                 float* minima) = nullptr;
  LinearKernel few[kActivationFormCount] = {};  ///< integer forms: the kernels of rows too few for a matrix product
  std::uint32_t halves = 1;                     ///< scales (and minima) of a step
  bool has_minimum = false;
};

}  // namespace carat
