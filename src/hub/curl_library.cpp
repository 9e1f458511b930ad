#include "hub/curl_library.h"

#include <dlfcn.h>

namespace carat {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, CurlLibrary& curl) {
  return find(library, "curl_global_init", curl.global_init) && find(library, "curl_easy_init", curl.easy_init) &&
         find(library, "curl_easy_setopt", curl.easy_setopt) && find(library, "curl_easy_perform", curl.easy_perform) &&
         find(library, "curl_easy_getinfo", curl.easy_getinfo) && find(library, "curl_easy_reset", curl.easy_reset) &&
         find(library, "curl_easy_cleanup", curl.easy_cleanup) &&
         find(library, "curl_easy_strerror", curl.easy_strerror) &&
         find(library, "curl_slist_append", curl.slist_append) &&
         find(library, "curl_slist_free_all", curl.slist_free_all) && find(library, "curl_url", curl.url) &&
         find(library, "curl_url_cleanup", curl.url_cleanup) && find(library, "curl_url_set", curl.url_set) &&
         find(library, "curl_url_get", curl.url_get) && find(library, "curl_free", curl.free);
}

Result<const CurlLibrary*> load_once() {
  static CurlLibrary curl;
  // Debian names the builds with other TLS libraries differently; any of them does.
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"}) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr || !find_all(library, curl)) continue;
    if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return internal_error("libcurl cannot be initialised");
    return &curl;
  }
  return unsupported("pull needs libcurl, which is not installed here; on Debian: apt-get install libcurl4");
}

}  // namespace

Result<const CurlLibrary*> CurlLibrary::load() {
  static const Result<const CurlLibrary*> loaded = load_once();
  return loaded;
}

}  // namespace carat
