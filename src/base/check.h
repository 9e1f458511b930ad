// CARAT_CHECK guards our own invariants. It is never reached by bad input: that is a Status.
#pragma once

namespace carat {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}

#define CARAT_CHECK(condition)                                                  \
  do {                                                                          \
    if (!(condition)) [[unlikely]] ::carat::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
