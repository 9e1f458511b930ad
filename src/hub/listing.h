// What a repository of the hub holds, and which of its files a model is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace carat {

struct HubFile {
  std::string path;         ///< within the repository
  std::uint64_t bytes = 0;  ///< 0: not told
  std::string sha256;       ///< of large files; 64 lower-case digits
  std::string git_id;       ///< of small ones; see git_blob_id()
};

struct HubListing {
  std::string commit;  ///< to fetch all files from one state of the repository
  std::vector<HubFile> files;
};

/// The hub's answer to /api/models/OWNER/REPO?blobs=true. Paths that would lead out of a folder are an error, and so
/// are digests that are none.
Result<HubListing> parse_listing(const std::string& json);

/// A model folder: the files of the repository's top that carat reads, and its licence.
bool has_model_folder(const HubListing& listing);
std::vector<HubFile> folder_files(const HubListing& listing);

/// The one .gguf of a repository, all parts of it if it is split; vision projectors do not count. An error lists what
/// there is.
Result<std::vector<HubFile>> only_gguf(const HubListing& listing, const std::string& repository);

bool is_sha256(std::string_view text);
bool is_git_id(std::string_view text);

}  // namespace carat
