// The hub's addresses and answers: lists of files, and files with their digests.
#pragma once

#include <cstdint>
#include <string>

#include "hub/http.h"
#include "hub/listing.h"
#include "hub/pull.h"

namespace carat {

/// Part of the error for what the hub does not have.
inline constexpr const char* kNotFound = "the hub has no such repository or file";

class HubClient {
 public:
  static Result<HubClient> create(const PullOptions& options);

  Result<HubListing> list(const std::string& repository);
  /// Fetches `file` of the state `commit` into `partial`, which may hold its beginning; its digest is known afterwards
  /// and compared.
  Status fetch(const std::string& repository, const std::string& commit, HubFile& file, const std::string& partial);
  /// What the hub tells of a file, without its contents: the digest and the size.
  Status describe(const std::string& repository, const std::string& commit, HubFile& file);

  /// Bytes of the files that are done, and of all that are known.
  void set_progress(std::uint64_t done, std::uint64_t total) { done_ = done, total_ = total; }

 private:
  struct Fetching;
  HubClient(HttpClient http, const PullOptions& options) : http_(std::move(http)), options_(&options) {}
  std::string file_url(const std::string& repository, const std::string& commit, const std::string& path) const;
  enum class Outcome : std::uint8_t { whole, again, busy };
  Result<Outcome> fetch_once(const HttpGet& request, HubFile& file, Fetching& state);
  Status fetch_bytes(const std::string& url, HubFile& file, Fetching& state);
  Status head(const HttpAnswer& answer, HubFile& file, Fetching& state);
  Status refused(const HttpAnswer& answer) const;
  Status wait_to_retry(int attempt) const;

  HttpClient http_;
  const PullOptions* options_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

/// Compares a whole file with the digest in `file`.
Status verify(const std::string& path, const HubFile& file);

}  // namespace carat
