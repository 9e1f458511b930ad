// Reads a request's JSON field by field, and keeps the first thing that is wrong with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/json_reader.h"
#include "server/api_error.h"

namespace carat::server {

/// Each method reads one value. False: error() says what is wrong, and nothing more is to be read. `param` names the
/// field in OpenAI's way: "messages[2].role".
class FieldReader {
 public:
  explicit FieldReader(std::string_view body) : body_(body), json_(body) {}

  /// The body is an object: its first key comes next.
  bool begin();
  /// Nothing follows the body's object.
  bool end();
  const ApiError& error() const { return error_; }
  bool fail(std::string param, std::string message);

  bool begin_object(const std::string& param);
  bool begin_array(const std::string& param);
  /// True and `more`: a key was read and its value comes next.
  bool next_key(std::string& key, bool& more);
  bool next_element(bool& more);
  bool skip();
  /// Hands each key of the object that was begun to `field`, which reads its value.
  template <typename Field>
  bool each_key(const Field& field) {
    std::string key;
    for (bool more = false; next_key(key, more);) {
      if (!more) return true;
      if (!field(key)) return false;
    }
    return false;
  }
  /// Hands the index of each element of the array that was begun to `element`, which reads it.
  template <typename Element>
  bool each_element(const Element& element) {
    bool more = false;
    for (std::size_t i = 0; next_element(more); ++i) {
      if (!more) return true;
      if (!element(i)) return false;
    }
    return false;
  }

  /// What comes next; nothing where it is no JSON at all, which error() then says.
  std::optional<JsonKind> kind();
  /// Takes a null if one comes next.
  bool is_null();

  bool text(const std::string& param, std::size_t most_bytes, std::string& value);
  bool boolean(const std::string& param, bool& value);
  bool integer(const std::string& param, std::int64_t least, std::int64_t most, std::int64_t& value);
  bool number(const std::string& param, double least, double most, double& value);
  /// The text of any value as it stands in the body.
  bool raw(const std::string& param, std::size_t most_bytes, std::string_view& value);

 private:
  /// The value that comes next is of this kind.
  bool expect(const std::string& param, JsonKind wanted, std::string_view what);
  bool take(const Status& status);

  std::string_view body_;
  JsonReader json_;
  ApiError error_;
};

}  // namespace carat::server
