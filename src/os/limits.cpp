#include "os/limits.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>

namespace carat {
namespace {

constexpr unsigned long kExceptAdvised = 2;  ///< PR_THP_DISABLE_EXCEPT_ADVISED, newer than Debian 12's headers

void keep_tighter(std::optional<MappingRoom>& room, decltype(RLIMIT_AS) resource, std::uint64_t used,
                  const char* name) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const std::uint64_t left = limit.rlim_cur - std::min<std::uint64_t>(used, limit.rlim_cur);
  if (!room || left < room->bytes) room = MappingRoom{left, name};
}

}  // namespace

std::optional<MappingRoom> mapping_room(std::uint64_t mapped, std::uint64_t data) {
  std::optional<MappingRoom> room;
  keep_tighter(room, RLIMIT_AS, mapped, "ulimit -v");
  keep_tighter(room, RLIMIT_DATA, data, "ulimit -d");
  return room;
}

void keep_huge_pages_to_advised_memory() { prctl(PR_SET_THP_DISABLE, 1UL, kExceptAdvised, 0UL, 0UL); }

}  // namespace carat
