// What `carat pull` is asked for: names, repositories and files of a hub, and which of them are safe to use.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace carat {

struct PullTarget {
  std::string repository;  ///< "OWNER/REPO"
  std::string file;        ///< within it; empty: what a model folder needs, or the one .gguf
  std::string name;        ///< under which it is kept, without an ending; empty: its own
};

/// A short name and what it stands for.
struct KnownModel {
  std::string_view name;
  std::string_view repository;
  std::string_view file;
};
std::span<const KnownModel> known_models();

/// "gemma3-270m", "hf:OWNER/REPO" or "hf:OWNER/REPO:FILE"; an error lists the short names.
Result<PullTarget> parse_pull_target(const std::string& text);

/// Whether a path out of a listing, or typed, stays below the folder it is put in: relative, without empty parts, "."
/// and "..", without control characters and backslashes.
bool is_safe_path(std::string_view path);

/// `path` as it stands in a URL: everything but letters, digits, "-._~/" as %XX.
std::string url_path(std::string_view path);

/// The part behind the last "/".
std::string base_name(const std::string& path);

/// All parts of a file split by llama.cpp's convention, "NAME-00001-of-00003.gguf", given any of them; others alone.
/// More than 999 parts are taken for no convention.
std::vector<std::string> split_parts(const std::string& file);

}  // namespace carat
