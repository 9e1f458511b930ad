// Who may ask, and how often. Pure but for the key file.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace carat::server {

/// Keys as their SHA-256: comparing takes the same time whatever was sent.
class ApiKeys {
 public:
  void add(std::string_view key);
  /// One key a line; empty lines and those that begin with # are none.
  Status add_file(const std::string& path);
  bool empty() const { return digests_.empty(); }
  std::size_t size() const { return digests_.size(); }
  /// `authorization`: the header's value, "Bearer KEY".
  bool allow(std::string_view authorization) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  std::vector<Digest> digests_;
};

/// A token bucket an address: `per_minute` at once, refilled evenly. Addresses not heard of for a minute are forgotten,
/// and when there are too many the limit is shared by all new ones.
class RateLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMostAddresses = 4096;

  /// Seconds until the next request may come; 0: this one may. A limit of 0 allows all.
  int take(const std::string& address, std::uint32_t per_minute, Clock::time_point now);

 private:
  struct Bucket {
    double tokens = 0;
    Clock::time_point at;
  };
  void forget_full(Clock::time_point now);

  std::unordered_map<std::string, Bucket> buckets_;
};

}  // namespace carat::server
