// Errors are values: anything a user or a file can cause is a Status, never an exception or an abort.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace carat {

/// What kind of failure a Status reports. Each kind maps to one process exit code (see exit_code()).
enum class StatusCode : unsigned char {
  ok,
  invalid,      ///< bad usage or a bad input file: exit 2
  io,           ///< the operating system refused a read or a write: exit 2
  unsupported,  ///< a valid file or option that this build cannot serve: exit 2
  no_fit,       ///< the request does not fit the memory budget: exit 3
  gate,         ///< a quality gate failed: exit 4
  interrupted,  ///< stopped by a signal: exit 130
  internal,     ///< a bug in carat: exit 1
};

/// The process exit code for a failure of kind `code`.
constexpr int exit_code(StatusCode code) {
  switch (code) {
    case StatusCode::ok: return 0;
    case StatusCode::invalid:
    case StatusCode::io:
    case StatusCode::unsupported: return 2;
    case StatusCode::no_fit: return 3;
    case StatusCode::gate: return 4;
    case StatusCode::interrupted: return 130;
    case StatusCode::internal: break;
  }
  return 1;
}

/// Success, or one line that says what failed, where (file, tensor, byte offset, option), and what would work.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {
    CARAT_CHECK(code != StatusCode::ok);
  }

  bool ok() const { return code_ == StatusCode::ok; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  /// The same failure with `where` and ": " put before its message; success stays success.
  Status with_context(std::string_view where) && {
    if (!ok()) message_ = std::string(where) + ": " + message_;
    return std::move(*this);
  }

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
};

inline Status ok_status() { return {}; }
inline Status invalid(std::string message) { return {StatusCode::invalid, std::move(message)}; }
inline Status io_error(std::string message) { return {StatusCode::io, std::move(message)}; }
inline Status unsupported(std::string message) { return {StatusCode::unsupported, std::move(message)}; }
inline Status no_fit(std::string message) { return {StatusCode::no_fit, std::move(message)}; }
inline Status interrupted(std::string message) { return {StatusCode::interrupted, std::move(message)}; }
inline Status internal_error(std::string message) { return {StatusCode::internal, std::move(message)}; }

/// A value of type T, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {  // NOLINT(google-explicit-constructor)
    CARAT_CHECK(!std::get<1>(state_).ok());
  }

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { CARAT_CHECK(ok()); return *std::get_if<0>(&state_); }
  const T& value() const& { CARAT_CHECK(ok()); return *std::get_if<0>(&state_); }
  T&& value() && { CARAT_CHECK(ok()); return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  /// The failure, or success when a value is held.
  Status status() const& { return ok() ? Status() : *std::get_if<1>(&state_); }
  Status status() && { return ok() ? Status() : std::move(*std::get_if<1>(&state_)); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace carat

#define CARAT_CONCAT_INNER(a, b) a##b
#define CARAT_CONCAT(a, b) CARAT_CONCAT_INNER(a, b)

/// Returns the failure of `expression` (a Status) from the enclosing function.
#define CARAT_TRY(expression)                                   \
  do {                                                          \
    ::carat::Status carat_status = (expression);                \
    if (!carat_status.ok()) return carat_status;                \
  } while (false)

/// `CARAT_ASSIGN(auto x, f());` binds x to the value of a Result, or returns its failure.
#define CARAT_ASSIGN(declaration, expression) \
  CARAT_ASSIGN_INNER(CARAT_CONCAT(carat_result_, __LINE__), declaration, expression)
#define CARAT_ASSIGN_INNER(result, declaration, expression) \
  auto result = (expression);                               \
  if (!result.ok()) return std::move(result).status();      \
  declaration = std::move(result).value()
