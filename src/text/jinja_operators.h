// Python's operators on template values.
#pragma once

#include <memory>
#include <string_view>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace carat {

/// ==. True and 1 and 1.0 are equal; lists and dicts are compared deeply.
Result<bool> equal(JinjaMeter& meter, const JinjaValue& a, const JinjaValue& b);
/// <0, 0 or >0. Numbers, strings and lists only, as in Python.
Result<int> compare(JinjaMeter& meter, const JinjaValue& a, const JinjaValue& b);
/// `item in container`.
Result<bool> contains(JinjaMeter& meter, const JinjaValue& container, const JinjaValue& item);
/// One of the comparison operators.
Result<bool> apply_comparison(JinjaMeter& meter, JinjaOperator operation, const JinjaValue& a, const JinjaValue& b);
/// One of + - * / // % **. Integers that leave 64 bits are an error.
Result<JinjaValue> apply_arithmetic(JinjaMeter& meter, JinjaOperator operation, const JinjaValue& a,
                                    const JinjaValue& b);

/// `object.name`: methods of Python's types come before keys of the same name, as in Jinja.
Result<JinjaValue> get_attribute(JinjaMeter& meter, const JinjaValue& object, std::string_view name);
/// `object[key]`: keys come before methods.
Result<JinjaValue> get_item(JinjaMeter& meter, const JinjaValue& object, const JinjaValue& key);
/// `object[begin:end:step]`; undefined or none parts are left out.
Result<JinjaValue> get_slice(JinjaMeter& meter, const JinjaValue& object, const JinjaValue& begin,
                             const JinjaValue& end, const JinjaValue& step);

/// What a for loop runs over: items, keys, or characters. Reading a generator empties it.
Result<std::shared_ptr<const JinjaList>> iterate(JinjaMeter& meter, const JinjaValue& value);

/// The place of `key` in the dict, or null. A list or dict as key is an error.
Result<const JinjaValue*> find_key(JinjaMeter& meter, const JinjaDict& dict, const JinjaValue& key);
/// Adds or replaces.
Status set_key(JinjaMeter& meter, JinjaValue::Entries& entries, JinjaValue key, JinjaValue value);

/// First byte offset of `needle` in `text` from `from` on, or npos. Linear.
std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from);

/// The error of using an undefined value: "'x' is undefined".
Status undefined_error(const JinjaValue& value);

/// Is `name` a method of this type in Python? Then the attribute is that method, whatever the data holds.
bool has_method(JinjaValue::Kind kind, std::string_view name);
Result<JinjaValue> call_method(JinjaMeter& meter, const JinjaValue& self, std::string_view name,
                               const JinjaArguments& arguments);

}  // namespace carat
