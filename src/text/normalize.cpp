#include "text/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "text/utf8.h"

namespace carat {
namespace {

constexpr std::string_view kWhat = "a text's composed form (NFC)";
constexpr std::size_t kMostParts = 4;  // of one character's canonical decomposition

/// True of characters that are composed already and never join what stands before them: text is cut there. All below
/// U+0300 are, and the ideographs, whose texts have few spaces. U+11A7 is one, too, which utf8proc 2.8 takes for a
/// trailing consonant and loses.
bool starts_afresh(char32_t code) { return code < 0x300 || (code >= 0x3400 && code <= 0x9FFF) || code == 0x11A7; }

/// Counts bytes, and writes them where there is room for them.
struct Output {
  char* data = nullptr;
  std::size_t bytes = 0;

  void put(std::string_view text) {
    if (data != nullptr) text.copy(data + bytes, text.size());
    bytes += text.size();
  }
};

class Composer {
 public:
  explicit Composer(Budget& budget) : budget_(budget) {}

  /// Writes the composed form of `text`; `changed` tells whether it differs.
  Status compose(std::string_view text, Output& out, bool& changed) {
    for (std::size_t begin = 0; begin < text.size();) {
      DecodedCharacter character = decode_character(text.substr(begin));
      bool plain = !character.valid || starts_afresh(character.code);
      std::size_t end = begin + character.bytes;
      std::size_t characters = 1;
      for (bool joins = character.valid; joins && end < text.size();) {
        character = decode_character(text.substr(end));
        joins = character.valid && !starts_afresh(character.code);
        if (!joins) break;
        end += character.bytes;
        ++characters;
        plain = false;
      }
      const std::string_view part = text.substr(begin, end - begin);
      if (plain) {
        out.put(part);
      } else {
        CARAT_TRY(compose_part(part, characters, out, changed));
      }
      begin = end;
    }
    return ok_status();
  }

 private:
  Status compose_part(std::string_view part, std::size_t characters, Output& out, bool& changed) {
    CARAT_TRY(reserve(2 * characters * kMostParts));
    utf8proc_int32_t* const scratch = codes_ + characters * kMostParts;
    constexpr auto kForm = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    utf8proc_ssize_t count = 0;
    for (std::string_view left = part; !left.empty();) {
      const DecodedCharacter character = decode_character(left);
      left.remove_prefix(character.bytes);
      int boundary = 0;
      const auto parts = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character.code), codes_ + count,
                                                 kMostParts, kForm, &boundary);
      CARAT_CHECK(parts > 0 && parts <= static_cast<utf8proc_ssize_t>(kMostParts));
      count += parts;
    }
    order_marks(count, scratch);
    count = utf8proc_normalize_utf32(codes_, count, kForm);
    CARAT_CHECK(count > 0);
    std::size_t at = 0;
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      utf8proc_uint8_t bytes[4];
      const auto length = static_cast<std::size_t>(utf8proc_encode_char(codes_[i], bytes));
      const std::string_view encoded(reinterpret_cast<const char*>(bytes), length);
      changed |= part.substr(std::min(at, part.size()), length) != encoded;
      at += length;
      out.put(encoded);
    }
    changed |= at != part.size();
    return ok_status();
  }

  /// Unicode's canonical order: each run of marks by class, equal ones as they stand. A counting sort, since the
  /// library's own is quadratic and std::stable_sort takes memory of its own. `scratch` has room for `count`.
  void order_marks(utf8proc_ssize_t count, utf8proc_int32_t* scratch) const {
    const auto mark_class = [](utf8proc_int32_t code) {
      return static_cast<std::uint8_t>(utf8proc_get_property(code)->combining_class);
    };
    const auto is_mark = [&](utf8proc_int32_t code) { return mark_class(code) != 0; };
    utf8proc_int32_t* const end = codes_ + count;
    for (utf8proc_int32_t* at = std::find_if(codes_, end, is_mark); at != end;) {
      utf8proc_int32_t* const run_end = std::find_if_not(at, end, is_mark);
      if (run_end - at > 1) {
        std::array<std::uint32_t, 257> places{};  // places[c]: where the next mark of class c goes
        for (const utf8proc_int32_t* mark = at; mark != run_end; ++mark) ++places[mark_class(*mark) + 1U];
        std::partial_sum(places.begin(), places.end(), places.begin());
        for (const utf8proc_int32_t* mark = at; mark != run_end; ++mark) scratch[places[mark_class(*mark)]++] = *mark;
        std::copy(scratch, scratch + (run_end - at), at);
      }
      at = std::find_if(run_end, end, is_mark);
    }
  }

  Status reserve(std::size_t codes) {
    if (codes <= capacity_) return ok_status();
    large_ = {};
    CARAT_ASSIGN(large_, Buffer<utf8proc_int32_t>::allocate(budget_, MemoryCategory::tokenizer, codes, kWhat));
    codes_ = large_.data();
    capacity_ = codes;
    return ok_status();
  }

  static constexpr std::size_t kInline = 1024;
  Budget& budget_;
  utf8proc_int32_t inline_[kInline];
  Buffer<utf8proc_int32_t> large_;
  utf8proc_int32_t* codes_ = inline_;
  std::size_t capacity_ = kInline;
};

}  // namespace

Result<std::string_view> to_nfc(std::string_view text, Budget& budget, Buffer<char>& copy) {
  constexpr char kFirstOfU0300 = '\xCC';  // what begins a character from U+0300 on
  const auto may_change = [](char c) {
    return static_cast<std::uint8_t>(c) >= static_cast<std::uint8_t>(kFirstOfU0300);
  };
  if (std::none_of(text.begin(), text.end(), may_change)) return text;
  Composer composer(budget);
  Output measured;
  bool changed = false;
  CARAT_TRY(composer.compose(text, measured, changed));
  if (!changed) return text;
  CARAT_ASSIGN(copy, Buffer<char>::allocate(budget, MemoryCategory::tokenizer, measured.bytes, kWhat));
  Output out{.data = copy.data()};
  CARAT_TRY(composer.compose(text, out, changed));
  return std::string_view(copy.data(), out.bytes);
}

}  // namespace carat
