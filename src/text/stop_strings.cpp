#include "text/stop_strings.h"

#include <algorithm>

namespace carat {

// Knuth-Morris-Pratt, one automaton a stop string: linear in the text whatever the strings, and its state is exactly
// the number of bytes that must be held back.
StopStrings::StopStrings(const std::vector<std::string>& stops) {
  for (const std::string& text : stops) {
    if (text.empty()) continue;
    Stop stop{text, std::vector<std::uint32_t>(text.size() + 1, 0), 0};
    for (std::size_t n = 2; n <= text.size(); ++n) {
      std::uint32_t border = stop.border[n - 1];
      while (border > 0 && text[border] != text[n - 1]) border = stop.border[border];
      stop.border[n] = text[border] == text[n - 1] ? border + 1 : 0;
    }
    stops_.push_back(std::move(stop));
  }
}

void StopStrings::advance(Stop& stop, char byte) {
  while (stop.matched > 0 && stop.text[stop.matched] != byte) stop.matched = stop.border[stop.matched];
  if (stop.text[stop.matched] == byte) ++stop.matched;
}

bool StopStrings::push(std::string_view text, std::string& out) {
  if (stopped()) return true;
  if (stops_.empty()) {
    out.append(text);
    return false;
  }
  std::size_t open = 0;  // bytes at the end of what was pushed that may begin a stop string
  for (const char byte : text) {
    held_.push_back(byte);
    open = 0;
    std::size_t longest = 0;
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      Stop& stop = stops_[i];
      advance(stop, byte);
      open = std::max<std::size_t>(open, stop.matched);
      if (stop.matched == stop.text.size() && stop.text.size() > longest) {
        longest = stop.text.size();
        stopped_ = static_cast<int>(i);
      }
    }
    if (stopped()) {
      out.append(held_, 0, held_.size() - longest);
      held_.clear();
      return true;
    }
  }
  if (!text.empty()) {
    out.append(held_, 0, held_.size() - open);
    held_.erase(0, held_.size() - open);
  }
  return false;
}

void StopStrings::finish(std::string& out) {
  if (!stopped()) out.append(held_);
  held_.clear();
  for (Stop& stop : stops_) stop.matched = 0;
}

std::string_view StopStrings::found() const {
  return stopped() ? std::string_view(stops_[static_cast<std::size_t>(stopped_)].text) : std::string_view();
}

}  // namespace carat
