#include "server/guards.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cmath>

#include "os/file.h"

namespace carat::server {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

}  // namespace

void ApiKeys::add(std::string_view key) {
  Digest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  digests_.push_back(digest);
}

Status ApiKeys::add_file(const std::string& path) {
  std::string text;
  CARAT_TRY(read_text(path, 1 << 16, [&](std::string_view block) {
    text += block;
    return ok_status();
  }));
  const std::size_t before = digests_.size();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view key = trimmed(std::string_view(text).substr(at, end - at));
    if (!key.empty() && key.front() != '#') add(key);
    at = end + 1;
  }
  if (digests_.size() == before) return invalid(fmt::format("{}: holds no key; write one a line", path));
  return ok_status();
}

bool ApiKeys::allow(std::string_view authorization) const {
  constexpr std::string_view kScheme = "Bearer ";
  if (!authorization.starts_with(kScheme)) return false;
  const std::string_view key = trimmed(authorization.substr(kScheme.size()));
  Digest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  bool found = false;
  for (const Digest& known : digests_) found |= CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0;
  return found;
}

void RateLimiter::forget_full(Clock::time_point now) {
  std::erase_if(buckets_, [now](const auto& one) { return now - one.second.at > std::chrono::minutes(1); });
}

int RateLimiter::take(const std::string& address, std::uint32_t per_minute, Clock::time_point now) {
  if (per_minute == 0) return 0;
  if (buckets_.size() >= kMostAddresses && !buckets_.contains(address)) forget_full(now);
  const bool full = buckets_.size() >= kMostAddresses && !buckets_.contains(address);
  const double most = per_minute;
  Bucket& bucket = buckets_.try_emplace(full ? std::string() : address, Bucket{most, now}).first->second;
  const double seconds = std::chrono::duration<double>(now - bucket.at).count();
  bucket.tokens = std::min(most, bucket.tokens + seconds * most / 60);
  bucket.at = now;
  if (bucket.tokens >= 1) {
    bucket.tokens -= 1;
    return 0;
  }
  return static_cast<int>(std::ceil((1 - bucket.tokens) * 60 / most));
}

}  // namespace carat::server
