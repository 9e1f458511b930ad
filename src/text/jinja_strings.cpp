#include "text/jinja_strings.h"

#include <algorithm>

#include "text/jinja_format.h"
#include "text/jinja_operators.h"

namespace carat {

Result<JinjaText> replace_text(JinjaMeter& meter, const JinjaText& text, std::string_view from, const JinjaText& to,
                               std::int64_t count) {
  CARAT_TRY(meter.step_bytes(text.size() * (1 + from.size() / 8)));
  const std::string_view view = text.view();
  JinjaText out;
  std::size_t at = 0;
  while (count != 0) {
    const std::size_t found = find_text(view, from, at);
    if (found == std::string_view::npos) break;
    out.append(text, at, found);
    out.append(to);
    CARAT_TRY(meter.step_bytes(to.size()));
    CARAT_TRY(meter.room_for(out.size()));
    --count;
    at = found + from.size();
    if (!from.empty()) continue;
    if (at >= view.size()) return out;
    const std::size_t next = at + decode_code_point(view, at).bytes;
    out.append(text, at, next);
    at = next;
  }
  out.append(text, at, text.size());
  return out;
}

Result<JinjaValue> split_text(JinjaMeter& meter, const JinjaText& text, std::string_view separator, std::int64_t limit,
                              bool from_right) {
  if (separator.empty()) return invalid("split() needs a separator that is not empty");
  CARAT_TRY(meter.step_bytes(text.size() * (1 + separator.size() / 8)));
  const std::string_view view = text.view();
  std::vector<JinjaValue> parts;
  std::size_t begin = 0;
  std::size_t end = view.size();
  while (limit != 0) {
    const std::size_t found = from_right ? view.substr(0, end).rfind(separator) : find_text(view, separator, begin);
    if (found == std::string_view::npos) break;
    JinjaText part = from_right ? text.slice(found + separator.size(), end) : text.slice(begin, found);
    CARAT_ASSIGN(JinjaValue value, make_text(meter, std::move(part)));
    parts.push_back(std::move(value));
    --limit;
    if (from_right) {
      end = found;
    } else {
      begin = found + separator.size();
    }
  }
  CARAT_ASSIGN(JinjaValue rest, make_text(meter, text.slice(begin, end)));
  parts.push_back(std::move(rest));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return make_list(meter, std::move(parts));
}

namespace {

/// [begin, end) of each run of characters that are not white space.
std::vector<std::pair<std::size_t, std::size_t>> word_ranges(std::string_view view) {
  std::vector<std::pair<std::size_t, std::size_t>> words;
  bool inside = false;
  for (std::size_t at = 0; at < view.size();) {
    const JinjaCodePoint point = decode_code_point(view, at);
    const bool space = is_python_space(point.value);
    if (!space && !inside) words.emplace_back(at, view.size());
    if (space && inside) words.back().second = at;
    inside = !space;
    at += point.bytes;
  }
  return words;
}

}  // namespace

Result<JinjaValue> split_words(JinjaMeter& meter, const JinjaText& text, std::int64_t limit, bool from_right) {
  CARAT_TRY(meter.step_bytes(text.size()));
  CARAT_TRY(meter.room_for(text.size() * 8));  // at most a word every other byte, 16 bytes each
  auto words = word_ranges(text.view());
  if (limit >= 0 && words.size() > static_cast<std::size_t>(limit) + 1) {
    // What lies beyond the limit stays whole: at the right with its trailing space, at the left with its leading space.
    const auto keep = static_cast<std::size_t>(limit);
    if (from_right) {
      const std::size_t merged = words.size() - keep;
      words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(merged - 1));
      words.front().first = 0;
    } else {
      words.resize(keep + 1);
      words.back().second = text.size();
    }
  }
  std::vector<JinjaValue> parts;
  for (const auto& [begin, end] : words) {
    CARAT_ASSIGN(JinjaValue value, make_text(meter, text.slice(begin, end)));
    parts.push_back(std::move(value));
  }
  return make_list(meter, std::move(parts));
}

std::vector<JinjaText> split_lines(const JinjaText& text) {
  std::vector<JinjaText> lines;
  const std::string_view view = text.view();
  std::size_t begin = 0;
  for (std::size_t at = 0; at < view.size();) {
    const JinjaCodePoint point = decode_code_point(view, at);
    std::size_t next = at + point.bytes;
    const bool line_end = (point.value >= 0x0A && point.value <= 0x0D) ||
                          (point.value >= 0x1C && point.value <= 0x1E) || point.value == 0x85 ||
                          point.value == 0x2028 || point.value == 0x2029;
    if (line_end) {
      if (point.value == '\r' && next < view.size() && view[next] == '\n') ++next;
      lines.push_back(text.slice(begin, at));
      begin = next;
    }
    at = next;
  }
  if (begin < view.size()) lines.push_back(text.slice(begin, view.size()));
  return lines;
}

Result<JinjaValue> join_texts(JinjaMeter& meter, const JinjaText& separator, const std::vector<JinjaValue>& items) {
  JinjaText out;
  bool first = true;
  for (const JinjaValue& item : items) {
    if (!first) {
      CARAT_TRY(meter.step_bytes(separator.size()));
      out.append(separator);
    }
    first = false;
    CARAT_TRY(append_value(meter, out, item));
    CARAT_TRY(meter.room_for(out.size()));
  }
  return make_text(meter, std::move(out));
}

}  // namespace carat
