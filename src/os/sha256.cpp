#include "os/sha256.h"

#include <fmt/core.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

namespace carat {
namespace {

using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

Result<Context> begin_digest() {
  Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (context == nullptr || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) {
    return internal_error("SHA-256 is not available");
  }
  return context;
}

std::string end_digest(const Context& context) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int bytes = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &bytes);
  std::string text;
  for (unsigned int i = 0; i < bytes; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace

Result<std::string> sha256(const File& file) {
  CARAT_ASSIGN(const Context context, begin_digest());
  std::vector<std::byte> block(48 << 10);
  for (std::uint64_t offset = 0; offset < file.bytes(); offset += block.size()) {
    const std::span<std::byte> part(block.data(), std::min<std::uint64_t>(block.size(), file.bytes() - offset));
    CARAT_TRY(file.read(offset, part));
    EVP_DigestUpdate(context.get(), part.data(), part.size());
  }
  return end_digest(context);
}

Result<std::string> sha256(std::string_view text) {
  CARAT_ASSIGN(const Context context, begin_digest());
  EVP_DigestUpdate(context.get(), text.data(), text.size());
  return end_digest(context);
}

}  // namespace carat
