// The ceilings that `carat doctor` measured, kept between runs in one small file a machine.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "engine/session.h"
#include "metrics/ceilings.h"
#include "os/machine.h"

namespace carat::cli {

/// $XDG_CACHE_HOME/carat, or ~/.cache/carat, and in it a name made of the CPU's model and the number of threads.
std::string ceilings_path(const Machine& machine, int threads);

/// What is kept for this CPU, its kernel tables and this number of threads; nullopt when there is nothing, or what is
/// there is damaged or of another machine.
std::optional<Ceilings> load_ceilings(const Machine& machine, int threads);
/// Makes the folder, and replaces the file when it is whole.
Status save_ceilings(const Machine& machine, int threads, const Ceilings& ceilings);

nlohmann::ordered_json to_json(const Ceilings& ceilings);

/// What a plan may expect by them of `threads` threads with that kernel table; nullopt where nothing is kept, or the
/// table's products were not measured.
std::optional<SpeedFacts> measured_speed(const Machine& machine, std::string_view table, int threads);

}  // namespace carat::cli
