#include "server/field_reader.h"

#include <fmt/format.h>

#include <cmath>

namespace carat::server {

bool FieldReader::fail(std::string param, std::string message) {
  error_ = bad_field(std::move(param), std::move(message));
  return false;
}

bool FieldReader::take(const Status& status) {
  if (status.ok()) return true;
  error_ = {.message = "the body is not valid JSON: " + status.message(), .code = "invalid_json"};
  return false;
}

bool FieldReader::begin() {
  const auto found = kind();
  if (!found) return false;
  if (*found != JsonKind::object) return fail("", fmt::format("the body is {}, expected an object", name(*found)));
  return take(json_.begin_object());
}

bool FieldReader::end() { return take(json_.end()); }

std::optional<JsonKind> FieldReader::kind() {
  const auto found = json_.kind();
  if (!found.ok()) {
    take(found.status());
    return std::nullopt;
  }
  return *found;
}

bool FieldReader::expect(const std::string& param, JsonKind wanted, std::string_view what) {
  const auto found = kind();
  if (!found) return false;
  return *found == wanted || fail(param, fmt::format("{}: found {}, expected {}", param, name(*found), what));
}

bool FieldReader::is_null() {
  const auto found = json_.kind();
  // skip() checks that the word is whole; if it is not, the next read says so.
  return found.ok() && *found == JsonKind::null && json_.skip().ok();
}

bool FieldReader::begin_object(const std::string& param) {
  return expect(param, JsonKind::object, "an object") && take(json_.begin_object());
}

bool FieldReader::begin_array(const std::string& param) {
  return expect(param, JsonKind::array, "a list") && take(json_.begin_array());
}

bool FieldReader::next_key(std::string& key, bool& more) {
  JsonString name;
  const auto next = json_.next_key(name);
  if (!take(next.status())) return false;
  more = *next;
  // No field of ours is as long; a client's own key may be.
  if (more) key = name.raw.size() > 256 ? std::string() : name.text();
  return true;
}

bool FieldReader::next_element(bool& more) {
  const auto next = json_.next_element();
  if (!take(next.status())) return false;
  more = *next;
  return true;
}

bool FieldReader::skip() { return take(json_.skip()); }

bool FieldReader::text(const std::string& param, std::size_t most_bytes, std::string& value) {
  if (!expect(param, JsonKind::string, "a string")) return false;
  const auto string = json_.string();
  if (!take(string.status())) return false;
  if (string->raw.size() > most_bytes) {
    return fail(param, fmt::format("{}: {} bytes are more than {}", param, string->raw.size(), most_bytes));
  }
  value = string->text();
  return true;
}

bool FieldReader::boolean(const std::string& param, bool& value) {
  if (!expect(param, JsonKind::boolean, "a boolean")) return false;
  const auto found = json_.boolean();
  if (!take(found.status())) return false;
  value = *found;
  return true;
}

bool FieldReader::integer(const std::string& param, std::int64_t least, std::int64_t most, std::int64_t& value) {
  if (!expect(param, JsonKind::number, "an integer")) return false;
  const auto found = json_.number();
  if (!take(found.status())) return false;
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (!found->whole && (found->real != std::floor(found->real) || std::abs(found->real) > kExact)) {
    return fail(param, fmt::format("{}: found {}, expected an integer", param, found->real));
  }
  value = found->whole ? found->integer : static_cast<std::int64_t>(found->real);
  if (value < least || value > most) {
    return fail(param, fmt::format("{}: {} is not within {} and {}", param, value, least, most));
  }
  return true;
}

bool FieldReader::number(const std::string& param, double least, double most, double& value) {
  if (!expect(param, JsonKind::number, "a number")) return false;
  const auto found = json_.number();
  if (!take(found.status())) return false;
  value = found->whole ? static_cast<double>(found->integer) : found->real;
  if (!(value >= least && value <= most)) {
    return fail(param, fmt::format("{}: {} is not within {} and {}", param, value, least, most));
  }
  return true;
}

bool FieldReader::raw(const std::string& param, std::size_t most_bytes, std::string_view& value) {
  if (!kind()) return false;  // past white space
  const std::uint64_t begin = json_.at();
  if (!skip()) return false;
  value = body_.substr(begin, json_.at() - begin);
  if (value.size() > most_bytes) {
    return fail(param, fmt::format("{}: {} bytes are more than {}", param, value.size(), most_bytes));
  }
  return true;
}

}  // namespace carat::server
