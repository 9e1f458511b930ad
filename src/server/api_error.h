// What a client is told when its request is refused: OpenAI's error object and the HTTP status it goes with.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace carat::server {

struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;    ///< the field at fault; empty: null
  std::string code;     ///< empty: null
  int retry_after = 0;  ///< seconds; 0: no such header
};

ApiError bad_field(std::string param, std::string message);
/// 503: what is asked for is not there now.
ApiError unavailable(std::string message, std::string code, int retry_after = 1);
/// A failure of the engine as HTTP sees it: no memory is 503, bad input 400, the rest 500.
ApiError api_error(const Status& status);

/// {"error":{"message","type","param","code"}}
std::string error_json(const ApiError& error);

}  // namespace carat::server
