// The values a template computes with: Python's none, bool, int, float, str, list, tuple and dict, and Jinja's own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja_meter.h"
#include "text/jinja_text.h"

namespace carat {

struct JinjaString;
struct JinjaList;
struct JinjaDict;
struct JinjaFunction;
struct JinjaLoop;
struct JinjaNamespace;

/// An undefined value is what a missing variable or attribute is: it prints as nothing, is false and empty, and any
/// further use is an error. Values are immutable and shared, so that copies are cheap; only namespaces change. Strings
/// given by a caller are `data`; only program_text() makes text that may hold control pieces (see JinjaText).
class JinjaValue {
 public:
  enum class Kind : std::uint8_t {
    undefined,
    none,
    boolean,
    integer,
    floating,
    text,
    list,
    dict,
    function,
    loop,
    name_space,
  };
  using Entries = std::vector<std::pair<JinjaValue, JinjaValue>>;

  JinjaValue() = default;  ///< undefined
  /// A missing variable `name`, whose characters live in the template.
  static JinjaValue undefined(std::string_view name = {});
  /// The missing attribute or key `name` of `owner`.
  static JinjaValue missing(std::string_view name, const JinjaValue& owner);
  static JinjaValue none() { return JinjaValue(Kind::none); }
  static JinjaValue boolean(bool value);
  static JinjaValue integer(std::int64_t value);
  static JinjaValue floating(double value);
  static JinjaValue text(std::string_view bytes);          ///< a caller's string
  static JinjaValue program_text(std::string_view bytes);  ///< our own string, as bos_token is
  static JinjaValue list(std::vector<JinjaValue> items);
  /// Keys keep their order and are distinct.
  static JinjaValue dict(std::vector<std::pair<std::string, JinjaValue>> entries);
  /// The function strftime_now(format) of transformers, at a fixed wall clock: seconds since 1970-01-01 00:00 local.
  static JinjaValue strftime_now(std::int64_t wall_clock_seconds);

  explicit JinjaValue(std::shared_ptr<const JinjaString> value) : kind_(Kind::text), object_(std::move(value)) {}
  explicit JinjaValue(std::shared_ptr<const JinjaList> value) : kind_(Kind::list), object_(std::move(value)) {}
  explicit JinjaValue(std::shared_ptr<const JinjaDict> value) : kind_(Kind::dict), object_(std::move(value)) {}
  explicit JinjaValue(std::shared_ptr<const JinjaFunction> value) : kind_(Kind::function), object_(std::move(value)) {}
  explicit JinjaValue(std::shared_ptr<const JinjaLoop> value) : kind_(Kind::loop), object_(std::move(value)) {}
  explicit JinjaValue(JinjaNamespace* value) : kind_(Kind::name_space) { scalar_.name_space = value; }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return is(Kind::undefined); }
  bool is_none() const { return is(Kind::none); }
  bool is_text() const { return is(Kind::text); }
  bool is_list() const { return is(Kind::list); }
  bool is_dict() const { return is(Kind::dict); }

  // Each needs the kind it names.
  bool as_boolean() const { return scalar_.integer != 0; }
  double as_floating() const { return scalar_.floating; }
  const JinjaText& as_text() const;
  const JinjaList& as_list() const { return *static_cast<const JinjaList*>(object_.get()); }
  const JinjaDict& as_dict() const { return *static_cast<const JinjaDict*>(object_.get()); }
  const JinjaFunction& as_function() const { return *static_cast<const JinjaFunction*>(object_.get()); }
  const JinjaLoop& as_loop() const { return *static_cast<const JinjaLoop*>(object_.get()); }
  JinjaNamespace& as_namespace() const { return *scalar_.name_space; }
  std::shared_ptr<const JinjaList> shared_list() const { return std::static_pointer_cast<const JinjaList>(object_); }
  /// The name of an undefined value, and the kind of object that lacks it (undefined: it is a variable).
  std::string_view undefined_name() const { return {scalar_.name, name_bytes_}; }
  Kind undefined_owner() const { return owner_; }

  /// The same list, dict, string, function or namespace, not an equal one.
  bool same_object(const JinjaValue& other) const;
  /// An int, or a bool as Python's int.
  std::optional<std::int64_t> integer_value() const;
  /// An int, bool or float.
  std::optional<double> number_value() const;
  /// Python's bool().
  bool truthy() const;
  const char* type_name() const;
  /// How deep lists, dicts and functions lie in each other; 0 for a scalar.
  int depth() const;

 private:
  explicit JinjaValue(Kind kind) : kind_(kind) {}

  // One pointer for all shared kinds rather than a variant of shared_ptrs, which is larger and slower to copy.
  Kind kind_ = Kind::undefined;
  Kind owner_ = Kind::undefined;
  std::uint32_t name_bytes_ = 0;
  union Scalar {
    std::int64_t integer = 0;  // bool too
    double floating;
    const char* name;
    JinjaNamespace* name_space;
  } scalar_;
  std::shared_ptr<const void> object_;
};

/// Python's name of a type, for messages.
const char* type_name(JinjaValue::Kind kind);

struct JinjaString {
  JinjaText text;
  JinjaCharge charge;
};

/// list and tuple as in Python. A view (range(), dict.keys()) prints with its label around it; a generator (map(),
/// select(), …) is always true, has no length or index, and is empty after it was read once.
struct JinjaList {
  enum class Kind : std::uint8_t { list, tuple, view, generator };
  Kind kind = Kind::list;
  int depth = 1;
  std::vector<JinjaValue> items;
  std::string label = {};
  mutable std::size_t consumed = 0;  ///< generators only, which never leave the rendering that made them
  JinjaCharge charge = {};
};

struct JinjaDict {
  int depth = 1;
  JinjaValue::Entries entries;
  JinjaCharge charge = {};

  const JinjaValue* find(std::string_view key) const;
};

/// `{% set ns.x = … %}`. Owned by the rendering; others point to it, so that a cycle of namespaces leaks nothing.
struct JinjaNamespace {
  std::vector<std::pair<std::string, JinjaValue>> attributes;

  JinjaValue* find(std::string_view name);
};

struct JinjaMacro;  // of the evaluator

struct JinjaFunction {
  enum class Kind : std::uint8_t { builtin, method, macro };
  Kind kind;
  std::string name;
  JinjaValue self = {};               ///< of a method
  const JinjaMacro* macro = nullptr;  ///< owned by the rendering
  std::int64_t wall_clock = 0;        ///< of strftime_now
  JinjaCharge charge = {};
};

/// The variable `loop` at one item.
struct JinjaLoop {
  std::shared_ptr<const JinjaList> items;
  std::size_t index = 0;
  JinjaCharge charge = {};
};

// Makers of values inside a rendering: each checks and charges the meter.
Result<JinjaValue> make_text(JinjaMeter& meter, JinjaText text);
Result<JinjaValue> make_text(JinjaMeter& meter, std::string_view bytes, JinjaOrigin origin);
Result<JinjaValue> make_list(JinjaMeter& meter, std::vector<JinjaValue> items,
                             JinjaList::Kind kind = JinjaList::Kind::list, std::string label = {});
/// Keys are distinct, and hashable (no lists or dicts).
Result<JinjaValue> make_dict(JinjaMeter& meter, JinjaValue::Entries entries);
Result<JinjaValue> make_function(JinjaMeter& meter, JinjaFunction function);

/// Positional and named arguments of a call, filter or test.
struct JinjaArguments {
  std::vector<JinjaValue> positional;
  std::vector<std::pair<std::string_view, JinjaValue>> named;

  /// One value for each of `names`, undefined where it is not given. Too many and unknown ones are errors.
  Result<std::vector<JinjaValue>> bind(std::string_view function, std::span<const std::string_view> names) const;
};

}  // namespace carat
