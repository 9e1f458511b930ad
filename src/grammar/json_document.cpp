#include "grammar/json_document.h"

#include <fmt/core.h>

#include <charconv>

namespace carat {

Result<JsonDocument> JsonDocument::parse(std::string_view text) {
  JsonDocument document;
  JsonReader reader(text);
  std::uint32_t root = 0;
  CARAT_TRY(document.read(reader, text, root));
  CARAT_TRY(reader.end());
  return document;
}

/// Recursion is as deep as the reader allows.
Status JsonDocument::read(JsonReader& reader, std::string_view text, std::uint32_t& value) {
  if (values_.size() >= kMostValues) return invalid(fmt::format("it has more than {} values", kMostValues));
  value = static_cast<std::uint32_t>(values_.size());
  CARAT_ASSIGN(const JsonKind kind, reader.kind());
  values_.push_back({kind});
  values_[value].at = reader.at();
  std::uint32_t last = JsonValue::kNone;
  const auto child = [&](std::string_view key) -> Status {
    std::uint32_t made = 0;
    CARAT_TRY(read(reader, text, made));
    values_[made].key = key;
    values_[made].escaped_key = key.find('\\') != std::string_view::npos;
    (last == JsonValue::kNone ? values_[value].first : values_[last].next) = made;
    last = made;
    ++values_[value].count;
    return ok_status();
  };
  switch (kind) {
    case JsonKind::object: {
      CARAT_TRY(reader.begin_object());
      while (true) {
        JsonString key;
        CARAT_ASSIGN(const bool more, reader.next_key(key));
        if (!more) break;
        CARAT_TRY(child(key.raw));
      }
      break;
    }
    case JsonKind::array: {
      CARAT_TRY(reader.begin_array());
      while (true) {
        CARAT_ASSIGN(const bool more, reader.next_element());
        if (!more) break;
        CARAT_TRY(child({}));
      }
      break;
    }
    case JsonKind::string: {
      CARAT_ASSIGN(const JsonString string, reader.string());
      values_[value].text = string.raw;
      return ok_status();
    }
    case JsonKind::boolean: {
      CARAT_ASSIGN(values_[value].boolean, reader.boolean());
      break;
    }
    case JsonKind::number:
    case JsonKind::null: CARAT_TRY(reader.skip()); break;
  }
  values_[value].text = text.substr(values_[value].at, reader.at() - values_[value].at);
  return ok_status();
}

std::optional<std::uint32_t> JsonDocument::member(std::uint32_t object, std::string_view key) const {
  for (std::uint32_t at = values_[object].first; at != JsonValue::kNone; at = values_[at].next) {
    if (values_[at].escaped_key ? this->key(at) == key : values_[at].key == key) return at;
  }
  return std::nullopt;
}

std::vector<std::uint32_t> JsonDocument::children(std::uint32_t value) const {
  std::vector<std::uint32_t> found;
  for (std::uint32_t at = values_[value].first; at != JsonValue::kNone; at = values_[at].next) found.push_back(at);
  return found;
}

bool JsonDocument::equal(std::uint32_t a, std::uint32_t b) const {
  if (a == b) return true;
  const JsonValue& left = values_[a];
  const JsonValue& right = values_[b];
  if (left.kind != right.kind || left.count != right.count) return false;
  switch (left.kind) {
    case JsonKind::string: return string(a) == string(b);
    case JsonKind::number: {
      double x = 0;
      double y = 0;
      std::from_chars(left.text.data(), left.text.data() + left.text.size(), x);
      std::from_chars(right.text.data(), right.text.data() + right.text.size(), y);
      return x == y;
    }
    case JsonKind::object:
      for (const std::uint32_t at : children(a)) {
        const auto other = member(b, key(at));
        if (!other || !equal(at, *other)) return false;
      }
      return true;
    case JsonKind::array: {
      std::uint32_t other = right.first;
      for (const std::uint32_t at : children(a)) {
        if (!equal(at, other)) return false;
        other = values_[other].next;
      }
      return true;
    }
    default: return left.text == right.text;
  }
}

std::optional<std::uint32_t> JsonDocument::find(std::string_view pointer) const {
  std::uint32_t at = kRoot;
  while (!pointer.empty()) {
    if (pointer.front() != '/') return std::nullopt;
    pointer.remove_prefix(1);
    const std::size_t end = std::min(pointer.find('/'), pointer.size());
    std::string part;
    for (std::size_t i = 0; i < end; ++i) {
      const bool escaped = pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1');
      part += escaped ? (pointer[i + 1] == '0' ? '~' : '/') : pointer[i];
      if (escaped) ++i;
    }
    pointer.remove_prefix(end);
    if (values_[at].kind == JsonKind::array) {
      std::uint32_t index = 0;
      const auto [rest, failed] = std::from_chars(part.data(), part.data() + part.size(), index);
      if (failed != std::errc() || rest != part.data() + part.size() || index >= values_[at].count) return std::nullopt;
      at = values_[at].first;
      for (; index > 0; --index) at = values_[at].next;
      continue;
    }
    if (values_[at].kind != JsonKind::object) return std::nullopt;
    const auto found = member(at, part);
    if (!found) return std::nullopt;
    at = *found;
  }
  return at;
}

}  // namespace carat
