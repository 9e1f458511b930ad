#include "text/answer_text.h"

#include <algorithm>

namespace carat {

std::uint64_t count_characters(std::string_view text) {
  return static_cast<std::uint64_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

void AnswerText::count_made() {
  made_ += characters_.size();
  made_characters_ += count_characters(characters_);
}

bool AnswerText::push(std::string_view bytes, std::string& visible) {
  const std::size_t before = visible.size();
  characters_.clear();
  utf8_.push(bytes, characters_);
  count_made();
  const bool found = stops_.push(characters_, visible);
  shown_ += visible.size() - before;
  return !found;
}

void AnswerText::finish(std::string& visible) {
  if (stopped()) return;
  const std::size_t before = visible.size();
  characters_.clear();
  utf8_.finish(characters_);
  count_made();
  if (!stops_.push(characters_, visible)) stops_.finish(visible);
  shown_ += visible.size() - before;
}

}  // namespace carat
