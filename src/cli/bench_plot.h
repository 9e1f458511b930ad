// The figures of carat bench as a picture.
#pragma once

#include <string>

#include "cli/bench_report.h"

namespace carat::cli {

/// An SVG document: a panel for each kind with a bar for each figure (the median), a line from the least to the most,
/// and behind it, paler, the ceiling. Panels have scales of their own. Needs nothing but itself.
std::string bench_svg(const BenchReport& report);

}  // namespace carat::cli
