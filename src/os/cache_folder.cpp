#include "os/cache_folder.h"

#include <cstdlib>

namespace carat {

std::string cache_folder() {
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder != nullptr && *folder == '/') {
    return std::string(folder) + "/carat";
  }
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "" : home) + "/.cache/carat";
}

}  // namespace carat
