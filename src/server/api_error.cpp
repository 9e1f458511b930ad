#include "server/api_error.h"

#include "text/json_text.h"

namespace carat::server {

ApiError bad_field(std::string param, std::string message) {
  ApiError error;
  error.param = std::move(param);
  error.message = std::move(message);
  return error;
}

ApiError unavailable(std::string message, std::string code, int retry_after) {
  return {503, std::move(message), "server_error", "", std::move(code), retry_after};
}

ApiError api_error(const Status& status) {
  switch (status.code()) {
    case StatusCode::invalid:
    case StatusCode::unsupported: return {.message = status.message()};
    case StatusCode::no_fit: return unavailable(status.message(), "no_memory");
    case StatusCode::interrupted: return unavailable("the server is being stopped", "stopping", 5);
    default: return {.status = 500, .message = status.message(), .type = "server_error"};
  }
}

std::string error_json(const ApiError& error) {
  std::string out = "{\"error\":{\"message\":";
  append_json_string(out, error.message);
  out += ",\"type\":";
  append_json_string(out, error.type);
  out += ",\"param\":";
  append_string_or_null(out, error.param);
  out += ",\"code\":";
  append_string_or_null(out, error.code);
  out += "}}";
  return out;
}

}  // namespace carat::server
