// What `carat run --profile` says: a request's profile with the shapes, memory and settings it ran with.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/profile.h"
#include "cli/answer.h"
#include "engine/session.h"

namespace carat::cli {

struct ModuleReport {
  double seconds = 0;
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  double gb_per_s() const { return seconds > 0 ? static_cast<double>(bytes) * 1e-9 / seconds : 0; }
};

struct PhaseReport {
  std::string name;
  std::size_t tokens = 0;
  double tokens_per_second = 0;
  double seconds = 0;        ///< wall time
  double other_seconds = 0;  ///< of them in no module
  std::array<ModuleReport, kProfileModuleCount> modules{};
};

struct ProfileReport {
  struct Category {
    std::string name;
    std::uint64_t planned = 0;
    std::uint64_t peak = 0;
  };
  std::vector<std::pair<std::string, std::string>> settings;  ///< model, machine, threads, …: for the header
  std::array<PhaseReport, kProfilePhaseCount> phases;
  /// Bytes a module holds: weights, keys and values, tokenizer, logits. 0: none of its own.
  std::array<std::uint64_t, kProfileModuleCount> memory{};
  std::vector<Category> categories;
  double expected_gb_per_s = 0;  ///< memory bandwidth that the plan assumes

  double seconds() const;
  /// The share of the wall time that lies in modules.
  double coverage() const;
};

ProfileReport make_profile_report(Session& session, const Profile& profile, const Answer& answer);

/// "attention local", for people.
std::string module_label(ProfileModule module);
/// "1.23 ms", "4.56 s"
std::string human_seconds(double seconds);

std::string profile_table(const ProfileReport& report);
/// "profile" of the machine output.
nlohmann::ordered_json profile_json(const ProfileReport& report);
/// A page that needs nothing but itself.
std::string profile_html(const ProfileReport& report);

}  // namespace carat::cli
