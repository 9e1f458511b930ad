// The chat page's files, which are part of the program.
#pragma once

#include <string_view>

namespace carat::server {

struct Page {
  std::string_view path;  ///< "/app.js"; the page itself is "/"
  std::string_view type;
  std::string_view bytes;
};

/// Null where there is none of this path.
const Page* find_page(std::string_view path);

}  // namespace carat::server
