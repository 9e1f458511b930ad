#include "text/jinja_text.h"

#include <algorithm>

namespace carat {

JinjaOrigin JinjaText::origin_at(std::size_t offset) const {
  const auto run = std::upper_bound(runs_.begin(), runs_.end(), offset,
                                    [](std::size_t at, const Run& candidate) { return at < candidate.end; });
  return run == runs_.end() ? JinjaOrigin::data : run->origin;
}

JinjaOrigin JinjaText::origin() const {
  if (runs_.size() > 1) return JinjaOrigin::data;
  return runs_.empty() ? JinjaOrigin::program : runs_.front().origin;
}

void JinjaText::append(std::string_view bytes, JinjaOrigin origin) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), origin});
  }
}

void JinjaText::append(const JinjaText& other, std::size_t begin, std::size_t end) {
  end = std::min(end, other.size());
  if (begin >= end) return;
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                              [](std::size_t at, const Run& candidate) { return at < candidate.end; });
  while (begin < end) {
    const std::size_t stop = std::min(end, run->end);
    append(other.view().substr(begin, stop - begin), run->origin);
    begin = stop;
    ++run;
  }
}

JinjaText JinjaText::slice(std::size_t begin, std::size_t end) const {
  JinjaText part;
  part.append(*this, begin, end);
  return part;
}

namespace {

std::size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

}  // namespace

JinjaCodePoint decode_code_point(std::string_view text, std::size_t offset) {
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(text[offset + index]); };
  const unsigned char lead = byte(0);
  const JinjaCodePoint invalid_byte{0xDC00U + lead, 1};
  const std::size_t length = sequence_length(lead);
  if (length == 1) return {lead, 1};
  if (length == 0 || offset + length > text.size()) return invalid_byte;
  char32_t value = lead & (0xFFU >> (length + 1));
  for (std::size_t index = 1; index < length; ++index) {
    if ((byte(index) & 0xC0U) != 0x80U) return invalid_byte;
    value = (value << 6U) | (byte(index) & 0x3FU);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  if (overlong || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return invalid_byte;
  return {value, length};
}

void append_code_point(std::string& out, char32_t value) {
  const auto push = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (value < 0x80) {
    push(value);
  } else if (value < 0x800) {
    push(0xC0U | (value >> 6U));
    push(0x80U | (value & 0x3FU));
  } else if (value >= 0xDC80 && value <= 0xDCFF) {
    push(value & 0xFFU);  // a byte that was invalid where it came from
  } else if (value < 0x10000) {
    push(0xE0U | (value >> 12U));
    push(0x80U | ((value >> 6U) & 0x3FU));
    push(0x80U | (value & 0x3FU));
  } else {
    push(0xF0U | (value >> 18U));
    push(0x80U | ((value >> 12U) & 0x3FU));
    push(0x80U | ((value >> 6U) & 0x3FU));
    push(0x80U | (value & 0x3FU));
  }
}

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) at += decode_code_point(text, at).bytes;
  return count;
}

std::size_t code_point_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (at < text.size() && index > 0) {
    at += decode_code_point(text, at).bytes;
    --index;
  }
  return at;
}

bool is_python_space(char32_t value) {
  return (value >= 0x09 && value <= 0x0D) || (value >= 0x1C && value <= 0x20) || value == 0x85 || value == 0xA0 ||
         value == 0x1680 || (value >= 0x2000 && value <= 0x200A) || value == 0x2028 || value == 0x2029 ||
         value == 0x202F || value == 0x205F || value == 0x3000;
}

namespace {

/// Latin Extended-A: letters come in pairs, the capital even or odd depending on the stretch.
bool capital_is_odd(char32_t value) { return (value >= 0x139 && value <= 0x148) || (value >= 0x179 && value <= 0x17E); }

bool in_latin_pairs(char32_t value) {
  return value >= 0x100 && value <= 0x17E && value != 0x130 && value != 0x131 && value != 0x138 && value != 0x149 &&
         value != 0x178;
}

}  // namespace

char32_t to_upper(char32_t value) {
  if (value >= 'a' && value <= 'z') return value - 32;
  if (value < 0x80) return value;
  if (value == 0xB5) return 0x39C;
  if (value == 0xFF) return 0x178;
  if (value == 0x131) return 'I';
  if (value >= 0xE0 && value <= 0xFE && value != 0xF7) return value - 32;
  if (in_latin_pairs(value)) return capital_is_odd(value) ? value - (value % 2 == 0) : value - (value % 2);
  if (value == 0x3AC) return 0x386;
  if (value >= 0x3AD && value <= 0x3AF) return value - 37;
  if (value == 0x3C2) return 0x3A3;
  if (value >= 0x3B1 && value <= 0x3CB) return value - 32;
  if (value == 0x3CC) return 0x38C;
  if (value == 0x3CD || value == 0x3CE) return value - 63;
  if (value >= 0x430 && value <= 0x44F) return value - 32;
  if (value >= 0x450 && value <= 0x45F) return value - 80;
  return value;
}

char32_t to_lower(char32_t value) {
  if (value >= 'A' && value <= 'Z') return value + 32;
  if (value < 0x80) return value;
  if (value == 0x178) return 0xFF;
  if (value >= 0xC0 && value <= 0xDE && value != 0xD7) return value + 32;
  if (in_latin_pairs(value)) return capital_is_odd(value) ? value + (value % 2) : value + (value % 2 == 0);
  if (value == 0x386) return 0x3AC;
  if (value >= 0x388 && value <= 0x38A) return value + 37;
  if (value >= 0x391 && value <= 0x3AB && value != 0x3A2) return value + 32;
  if (value == 0x38C) return 0x3CC;
  if (value == 0x38E || value == 0x38F) return value + 63;
  if (value >= 0x410 && value <= 0x42F) return value + 32;
  if (value >= 0x400 && value <= 0x40F) return value + 80;
  return value;
}

bool is_letter(char32_t value) {
  if (to_upper(value) != value || to_lower(value) != value) return true;
  return value >= 0xC0 && value != 0xD7 && value != 0xF7 && !is_python_space(value) &&
         !(value >= 0x2000 && value <= 0x2BFF) && !(value >= 0x3000 && value <= 0x3004) &&
         !(value >= 0xDC80 && value <= 0xDCFF) && value < 0x1F000;
}

JinjaText change_case(const JinjaText& text, JinjaCase how) {
  JinjaText out;
  std::string part;
  bool start = true;
  std::size_t at = 0;
  for (const JinjaText::Run& run : text.runs()) {
    part.clear();
    while (at < run.end) {
      const JinjaCodePoint point = decode_code_point(text.view(), at);
      const bool upper = how == JinjaCase::upper || (start && how != JinjaCase::lower);
      if (upper && point.value == 0xDF) {
        part += how == JinjaCase::upper ? "SS" : "Ss";  // the one letter in reach whose capital is two
      } else {
        append_code_point(part, upper ? to_upper(point.value) : to_lower(point.value));
      }
      if (how == JinjaCase::title) {
        start = !is_letter(point.value);
      } else if (how == JinjaCase::words) {
        start = is_python_space(point.value) ||
                (point.value < 0x80 && point.value != 0 &&
                 std::string_view("-({[<").find(static_cast<char>(point.value)) != std::string_view::npos);
      } else {
        start = false;
      }
      at += point.bytes;
    }
    out.append(part, run.origin);
  }
  return out;
}

namespace {

bool contains_code_point(std::string_view set, char32_t value) {
  if (set.empty()) return is_python_space(value);
  for (std::size_t at = 0; at < set.size();) {
    const JinjaCodePoint point = decode_code_point(set, at);
    if (point.value == value) return true;
    at += point.bytes;
  }
  return false;
}

}  // namespace

JinjaText strip_text(const JinjaText& text, std::string_view set, bool left, bool right) {
  const std::string_view view = text.view();
  std::size_t begin = 0;
  while (left && begin < view.size()) {
    const JinjaCodePoint point = decode_code_point(view, begin);
    if (!contains_code_point(set, point.value)) break;
    begin += point.bytes;
  }
  std::size_t end = view.size();
  while (right && end > begin) {
    std::size_t start = end - 1;
    while (start > begin && end - start < 4 && (static_cast<unsigned char>(view[start]) & 0xC0U) == 0x80U) --start;
    JinjaCodePoint point = decode_code_point(view, start);
    if (start + point.bytes != end) {  // a stray continuation byte is a character of its own
      start = end - 1;
      point = decode_code_point(view, start);
    }
    if (!contains_code_point(set, point.value)) break;
    end = start;
  }
  return text.slice(begin, end);
}

}  // namespace carat
