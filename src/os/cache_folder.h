// Where files are kept that can be made again.
#pragma once

#include <string>

namespace carat {

/// $XDG_CACHE_HOME/carat, or ~/.cache/carat.
std::string cache_folder();

}  // namespace carat
