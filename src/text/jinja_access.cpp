// Attributes, items, slices and iteration (declared in jinja_operators.h).
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "text/jinja_operators.h"

namespace carat {

using Kind = JinjaValue::Kind;

namespace {

Result<JinjaValue> bind_method(JinjaMeter& meter, const JinjaValue& self, std::string_view name) {
  JinjaFunction function{.kind = JinjaFunction::Kind::method, .name = std::string(name)};
  function.self = self;
  return make_function(meter, std::move(function));
}

Result<JinjaValue> loop_attribute(JinjaMeter& meter, const JinjaValue& object, std::string_view name) {
  const JinjaLoop& loop = object.as_loop();
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = static_cast<std::int64_t>(loop.items->items.size());
  if (name == "index") return JinjaValue::integer(index + 1);
  if (name == "index0") return JinjaValue::integer(index);
  if (name == "revindex") return JinjaValue::integer(length - index);
  if (name == "revindex0") return JinjaValue::integer(length - index - 1);
  if (name == "first") return JinjaValue::boolean(index == 0);
  if (name == "last") return JinjaValue::boolean(index + 1 == length);
  if (name == "length") return JinjaValue::integer(length);
  if (name == "depth") return JinjaValue::integer(1);  // of recursion
  if (name == "depth0") return JinjaValue::integer(0);
  if (name == "previtem") return index > 0 ? loop.items->items[loop.index - 1] : JinjaValue::undefined("previtem");
  if (name == "nextitem")
    return index + 1 < length ? loop.items->items[loop.index + 1] : JinjaValue::undefined("nextitem");
  if (name == "cycle") return bind_method(meter, object, name);
  return JinjaValue::missing(name, object);
}

}  // namespace

Result<JinjaValue> get_attribute(JinjaMeter& meter, const JinjaValue& object, std::string_view name) {
  if (object.is_undefined()) return undefined_error(object);
  if (object.is(Kind::loop)) return loop_attribute(meter, object, name);
  const bool generator = object.is_list() && object.as_list().kind == JinjaList::Kind::generator;
  if (has_method(object.kind(), name) && !generator) return bind_method(meter, object, name);
  if (object.is_dict()) {
    CARAT_TRY(meter.step(1 + object.as_dict().entries.size() / 16));
    const JinjaValue* found = object.as_dict().find(name);
    return found != nullptr ? *found : JinjaValue::missing(name, object);
  }
  if (object.is(Kind::name_space)) {
    const JinjaValue* found = object.as_namespace().find(name);
    return found != nullptr ? *found : JinjaValue::missing(name, object);
  }
  return JinjaValue::missing(name, object);
}

namespace {

/// Byte range of one character; false when the index is outside.
bool character_range(std::string_view text, std::int64_t index, std::size_t& begin, std::size_t& end) {
  if (index < 0) index += static_cast<std::int64_t>(count_code_points(text));
  if (index < 0) return false;
  begin = code_point_offset(text, static_cast<std::size_t>(index));
  if (begin >= text.size()) return false;
  end = begin + decode_code_point(text, begin).bytes;
  return true;
}

}  // namespace

Result<JinjaValue> get_item(JinjaMeter& meter, const JinjaValue& object, const JinjaValue& key) {
  if (object.is_undefined()) return undefined_error(object);
  if (object.is_dict() && !key.is_undefined()) {
    CARAT_ASSIGN(const JinjaValue* found, find_key(meter, object.as_dict(), key));
    if (found != nullptr) return *found;
  }
  if (key.is_text()) {
    const std::string_view name = key.as_text().view();
    if (object.is(Kind::loop)) return loop_attribute(meter, object, name);
    if (object.is(Kind::name_space)) {
      const JinjaValue* found = object.as_namespace().find(name);
      if (found != nullptr) return *found;
    }
    if (has_method(object.kind(), name)) return bind_method(meter, object, name);
  }
  const auto index = key.integer_value();
  if (index && object.is_list() && object.as_list().kind != JinjaList::Kind::generator) {
    const auto& items = object.as_list().items;
    const auto size = static_cast<std::int64_t>(items.size());
    const std::int64_t at = *index < 0 ? *index + size : *index;
    if (at >= 0 && at < size) return items[static_cast<std::size_t>(at)];
  } else if (index && object.is_text()) {
    CARAT_TRY(meter.step_bytes(object.as_text().size()));
    std::size_t begin = 0;
    std::size_t end = 0;
    if (character_range(object.as_text().view(), *index, begin, end)) {
      return make_text(meter, object.as_text().slice(begin, end));
    }
  }
  return JinjaValue::missing("that item", object);
}

namespace {

struct SliceRange {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t step;
};

Result<std::optional<std::int64_t>> slice_part(const JinjaValue& value) {
  if (value.is_undefined() || value.is_none()) return std::optional<std::int64_t>();
  const auto index = value.integer_value();
  if (!index) return invalid(fmt::format("a slice needs integers, not {}", value.type_name()));
  return std::optional(*index);
}

/// Python's slice.indices(length).
Result<SliceRange> slice_range(std::int64_t length, const JinjaValue& begin, const JinjaValue& end,
                               const JinjaValue& step) {
  CARAT_ASSIGN(const auto first, slice_part(begin));
  CARAT_ASSIGN(const auto last, slice_part(end));
  CARAT_ASSIGN(const auto stride, slice_part(step));
  SliceRange range{0, length, stride.value_or(1)};
  if (range.step == 0) return invalid("the step of a slice cannot be 0");
  range.step = std::clamp<std::int64_t>(range.step, -length - 1, length + 1);
  const std::int64_t lower = range.step < 0 ? -1 : 0;
  const std::int64_t upper = range.step < 0 ? length - 1 : length;
  const auto place = [&](std::int64_t index) {
    if (index < 0) index = index < -length ? lower : index + length;
    return std::clamp(index, lower, upper);
  };
  range.begin = first ? place(*first) : (range.step < 0 ? upper : lower);
  range.end = last ? place(*last) : (range.step < 0 ? lower : upper);
  return range;
}

Result<JinjaValue> slice_text(JinjaMeter& meter, const JinjaText& text, const JinjaValue& begin, const JinjaValue& end,
                              const JinjaValue& step) {
  CARAT_TRY(meter.step_bytes(text.size()));
  const auto length = static_cast<std::int64_t>(count_code_points(text.view()));
  CARAT_ASSIGN(const SliceRange range, slice_range(length, begin, end, step));
  if (range.step == 1) {
    if (range.begin >= range.end) return make_text(meter, JinjaText());
    const std::size_t first = code_point_offset(text.view(), static_cast<std::size_t>(range.begin));
    const std::size_t count = static_cast<std::size_t>(range.end - range.begin);
    return make_text(meter, text.slice(first, first + code_point_offset(text.view().substr(first), count)));
  }
  CARAT_TRY(meter.room_for(text.size() * sizeof(std::size_t)));
  CARAT_TRY(meter.step(static_cast<std::uint64_t>(length) / 16));
  std::vector<std::size_t> offsets;
  for (std::size_t at = 0; at < text.size(); at += decode_code_point(text.view(), at).bytes) offsets.push_back(at);
  offsets.push_back(text.size());
  JinjaText out;
  for (std::int64_t at = range.begin; range.step > 0 ? at < range.end : at > range.end; at += range.step) {
    out.append(text, offsets[static_cast<std::size_t>(at)], offsets[static_cast<std::size_t>(at) + 1]);
  }
  return make_text(meter, std::move(out));
}

}  // namespace

Result<JinjaValue> get_slice(JinjaMeter& meter, const JinjaValue& object, const JinjaValue& begin,
                             const JinjaValue& end, const JinjaValue& step) {
  if (object.is_undefined()) return undefined_error(object);
  if (object.is_text()) return slice_text(meter, object.as_text(), begin, end, step);
  if (!object.is_list() || object.as_list().kind == JinjaList::Kind::generator) {
    return invalid(fmt::format("a value of type {} cannot be sliced", object.type_name()));
  }
  const JinjaList& list = object.as_list();
  CARAT_ASSIGN(const SliceRange range, slice_range(static_cast<std::int64_t>(list.items.size()), begin, end, step));
  CARAT_TRY(meter.room_for(list.items.size() * sizeof(JinjaValue)));
  std::vector<JinjaValue> items;
  for (std::int64_t at = range.begin; range.step > 0 ? at < range.end : at > range.end; at += range.step) {
    items.push_back(list.items[static_cast<std::size_t>(at)]);
  }
  return make_list(meter, std::move(items), list.kind);
}

Result<std::shared_ptr<const JinjaList>> iterate(JinjaMeter& meter, const JinjaValue& value) {
  CARAT_TRY(meter.step());
  std::vector<JinjaValue> items;
  switch (value.kind()) {
    case Kind::undefined: break;
    case Kind::list: {
      const JinjaList& list = value.as_list();
      if (list.kind != JinjaList::Kind::generator) return value.shared_list();
      const std::size_t consumed = std::exchange(list.consumed, list.items.size());
      if (consumed == 0) return value.shared_list();
      items.assign(list.items.begin() + static_cast<std::ptrdiff_t>(consumed), list.items.end());
      break;
    }
    case Kind::dict:
      CARAT_TRY(meter.room_for(value.as_dict().entries.size() * sizeof(JinjaValue)));
      for (const auto& entry : value.as_dict().entries) items.push_back(entry.first);
      break;
    case Kind::text: {
      const JinjaText& text = value.as_text();
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t bytes = decode_code_point(text.view(), at).bytes;
        CARAT_ASSIGN(JinjaValue character, make_text(meter, text.slice(at, at + bytes)));
        items.push_back(std::move(character));
        at += bytes;
      }
      break;
    }
    default: return invalid(fmt::format("cannot loop over a value of type {}", value.type_name()));
  }
  CARAT_ASSIGN(const JinjaValue list, make_list(meter, std::move(items)));
  return list.shared_list();
}

}  // namespace carat
