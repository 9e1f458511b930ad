// SHA-256 of files, by OpenSSL's libcrypto.
#pragma once

#include <string>

#include "base/status.h"
#include "os/file.h"

namespace carat {

/// The digest of a whole file as 64 lower-case hexadecimal digits.
Result<std::string> sha256(const File& file);

}  // namespace carat
