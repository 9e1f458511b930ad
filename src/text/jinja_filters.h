// Jinja's filters (`value | name(arguments)`) and tests (`value is name argument`).
#pragma once

#include <string_view>

#include "text/jinja_value.h"

namespace carat {

/// jinja_filters.cpp and, for those that read sequences, jinja_filters_sequence.cpp.
Result<JinjaValue> apply_filter(JinjaMeter& meter, std::string_view name, const JinjaValue& value,
                                const JinjaArguments& arguments);
/// jinja_tests.cpp.
Result<bool> apply_test(JinjaMeter& meter, std::string_view name, const JinjaValue& value,
                        const JinjaArguments& arguments);

/// A filter of sequences, or nullopt when `name` is none.
Result<std::optional<JinjaValue>> apply_sequence_filter(JinjaMeter& meter, std::string_view name,
                                                        const JinjaValue& value, const JinjaArguments& arguments);
/// len(value).
Result<std::int64_t> length_of(JinjaMeter& meter, const JinjaValue& value);

}  // namespace carat
