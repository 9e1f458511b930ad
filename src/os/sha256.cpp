#include "os/sha256.h"

#include <fmt/core.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

namespace carat {

namespace {

Result<std::string> digest_of(const File& file, const EVP_MD* algorithm, const std::string& before) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (context == nullptr || EVP_DigestInit_ex(context.get(), algorithm, nullptr) != 1) {
    return internal_error("SHA-256 or SHA-1 is not available");
  }
  EVP_DigestUpdate(context.get(), before.data(), before.size());
  std::vector<std::byte> block(48 << 10);
  for (std::uint64_t offset = 0; offset < file.bytes(); offset += block.size()) {
    const std::span<std::byte> part(block.data(), std::min<std::uint64_t>(block.size(), file.bytes() - offset));
    CARAT_TRY(file.read(offset, part));
    EVP_DigestUpdate(context.get(), part.data(), part.size());
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int bytes = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &bytes);
  std::string text;
  for (unsigned int i = 0; i < bytes; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace

Result<std::string> sha256(const File& file) { return digest_of(file, EVP_sha256(), ""); }

Result<std::string> git_blob_id(const File& file) {
  std::string before = fmt::format("blob {}", file.bytes());
  before += '\0';
  return digest_of(file, EVP_sha1(), before);
}

}  // namespace carat
