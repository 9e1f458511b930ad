// Allocates one block: strict_probe BYTES reserved|unreserved. What strict_allocations.cpp does with it is the test.
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "memory/budget.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::size_t bytes = std::strtoul(argv[1], nullptr, 10);
  carat::Budget budget;
  auto room =
      budget.try_reserve(carat::MemoryCategory::io, std::string_view(argv[2]) == "reserved" ? bytes : 0, "probe");
  if (!room.ok()) return 2;
  const std::vector<char> block(bytes, 'x');
  std::printf("%zu bytes, %d\n", block.size(), block.back());
  return 0;
}
