#include "memory/resident.h"

#include <cstdio>
#include <cstring>

namespace carat {

Result<ResidentMemory> read_resident_memory() {
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return io_error("/proc/self/status cannot be opened; is /proc mounted?");
  ResidentMemory memory;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    unsigned long long kib = 0;
    if (std::sscanf(line, "VmRSS: %llu kB", &kib) == 1) memory.resident = kib * 1024;
    if (std::sscanf(line, "VmHWM: %llu kB", &kib) == 1) memory.peak = kib * 1024;
    if (std::sscanf(line, "VmSwap: %llu kB", &kib) == 1) memory.swapped = kib * 1024;
  }
  std::fclose(file);
  return memory;
}

}  // namespace carat
