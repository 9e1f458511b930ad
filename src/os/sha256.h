// Digests of files, by OpenSSL's libcrypto.
#pragma once

#include <string>

#include "base/status.h"
#include "os/file.h"

namespace carat {

/// The digest of a whole file as 64 lower-case hexadecimal digits.
Result<std::string> sha256(const File& file);

/// What git names a file's contents by: SHA-1 of "blob N\0" and its N bytes, as 40 digits.
Result<std::string> git_blob_id(const File& file);

}  // namespace carat
