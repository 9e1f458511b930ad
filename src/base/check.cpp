#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace carat {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "carat: internal error: %s does not hold at %s:%d; please report this\n", condition, file, line);
  std::fflush(stderr);
  std::_Exit(1);  // exit code 1 is the contract for our own bugs; abort() would say 134
}

}  // namespace carat
