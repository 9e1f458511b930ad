// Fetches a model from a hub into a folder: resumed, verified, and there only when it is whole.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/names.h"

namespace carat {

struct PullOptions {
  std::string hub = "https://huggingface.co";
  std::string token;          ///< sent to the hub and to no other host
  std::string models_folder;  ///< made if it is missing
  /// Bytes done and in all, of this run's files; false ends it. The total grows where the hub does not tell it before.
  std::function<bool(std::uint64_t done, std::uint64_t total)> progress;
  std::function<void(const std::string& note)> note;
  bool (*interrupted)() = nullptr;
};

struct PulledFile {
  std::string path;  ///< in the models folder
  std::uint64_t bytes = 0;
  std::string digest;  ///< what it was verified by: SHA-256, or git's id of small files
};

struct Pulled {
  std::string path;  ///< of the file, the first part, or the folder
  bool was_there = false;
  std::vector<PulledFile> files;
};

/// Where what is not whole yet lies, under the models folder: one folder a model, which a later pull goes on with.
inline constexpr const char* kPullFolder = ".pull";

/// Errors are one line: what the hub said, a file of that name that differs, a wrong digest, a full disk.
/// StatusCode::interrupted keeps what came.
Result<Pulled> pull(const PullTarget& target, const PullOptions& options);

}  // namespace carat
