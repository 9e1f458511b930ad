#include "formats/hf_tokenizer_json.h"

#include <fmt/core.h>

#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

namespace carat {
namespace {

constexpr std::size_t kWindow = 64 << 10;
constexpr std::size_t kLongestToken = 32 << 10;  // the JSON lexer keeps one string or number on the heap
constexpr std::size_t kMostFactBytes = 48 << 10;
constexpr std::size_t kDeepest = 16;

/// Hands out the bytes of a source, and ends early on a read error or on a string or number that is too long.
class Window {
 public:
  Window(const ByteSource& source, Budget& budget) : source_(source), budget_(budget) {}

  Status open() {
    CARAT_ASSIGN(bytes_, Buffer<char>::allocate(budget_, MemoryCategory::io, kWindow, "the window of tokenizer.json"));
    return fill();
  }
  bool at_end() const { return at_ == filled_; }
  char front() const { return bytes_[at_]; }
  void advance() {
    measure(bytes_[at_]);
    if (++at_ == filled_ && status_.ok()) status_ = fill();
    if (!status_.ok()) at_ = filled_ = 0;
  }
  const Status& status() const { return status_; }
  std::uint64_t offset() const { return read_ - (filled_ - at_); }

 private:
  Status fill() {
    at_ = 0;
    filled_ = static_cast<std::size_t>(std::min<std::uint64_t>(kWindow, source_.bytes() - read_));
    const Status status = source_.read(read_, std::as_writable_bytes(bytes_.span().first(filled_)));
    if (!status.ok()) filled_ = 0;
    read_ += filled_;
    return status;
  }

  void measure(char c) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '"') {
      in_string_ = !in_string_;
      length_ = 0;
    } else if (in_string_) {
      escaped_ = c == '\\';
    } else if (c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == ',' || c == ':') {
      length_ = 0;
    }
    if (++length_ > kLongestToken) {
      status_ = unsupported(fmt::format("byte {}: a string or number of more than {} bytes", offset(), kLongestToken));
    }
  }

  const ByteSource& source_;
  Budget& budget_;
  Buffer<char> bytes_;
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  std::uint64_t read_ = 0;
  std::size_t length_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  Status status_;
};

/// What the JSON parser reads from; a null window is the end.
class WindowIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  explicit WindowIterator(Window* window = nullptr) : window_(window) {}
  char operator*() const { return window_->front(); }
  WindowIterator& operator++() {
    window_->advance();
    return *this;
  }
  WindowIterator operator++(int) { return ++*this; }
  friend bool operator==(const WindowIterator& a, const WindowIterator& b) { return a.ended() == b.ended(); }
  friend bool operator!=(const WindowIterator& a, const WindowIterator& b) { return !(a == b); }

 private:
  bool ended() const { return window_ == nullptr || window_->at_end(); }
  Window* window_;
};

/// Receives the parser's events. Methods return false to stop; status() then says why, if it was not the parser itself.
class Events {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  Events(HfTokenizerJson& json, const Window& window) : json_(json), window_(window) {}
  const Status& status() const { return status_; }

  // The parser's interface.
  bool null() { return value({}); }
  bool boolean(bool is) { return value({.text = is ? "true" : "false", .boolean = true}); }
  bool number_integer(number_integer_t number) { return value({.text = std::to_string(number)}); }
  bool number_unsigned(number_unsigned_t number) {
    if (part_ == Part::vocab) return vocab_entry(number);  // most of the file
    return value({.text = std::to_string(number), .number = number, .whole = true});
  }
  bool number_float(number_float_t, const string_t& text) { return value({.text = text}); }
  bool string(string_t& text) {
    if (part_ == Part::merges) return add_merge(text);
    return value({.text = text, .string = true});
  }
  bool binary(binary_t&) { return false; }
  bool start_object(std::size_t) { return open(false); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(true); }
  bool end_array() { return close(); }
  bool key(string_t& text) {
    frames_.back().key.swap(text);
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) {
    return fail("not JSON", at);
  }

 private:
  enum class Part : std::uint8_t { root, skip, facts, vocab, merges, merge_pair, added, added_token };
  struct Frame {
    bool array = false;
    Part part = Part::root;
    std::uint64_t index = 0;
    std::string key;
  };
  struct Value {
    std::string_view text;
    std::uint64_t number = 0;
    bool whole = false;
    bool boolean = false;
    bool string = false;
  };

  bool fail(std::string_view why, std::uint64_t at) { return keep(invalid(fmt::format("byte {}: {}", at, why))); }
  bool fail(std::string_view why) { return fail(why, window_.offset()); }
  bool keep(Status status) {
    if (status_.ok()) status_ = std::move(status);
    return status_.ok();
  }

  Part part_of_child(bool array) const {
    if (frames_.empty()) return array ? Part::skip : Part::root;
    const std::string& key = frames_.back().key;
    switch (part_) {
      case Part::root:
        if (key == "added_tokens") return array ? Part::added : Part::skip;
        if (key == "model" || key == "normalizer" || key == "pre_tokenizer" || key == "post_processor") {
          return Part::facts;
        }
        return Part::skip;
      case Part::facts:
        if (frames_.size() == 2 && frames_[0].key == "model") {
          if (key == "vocab") return array ? Part::skip : Part::vocab;
          if (key == "merges") return array ? Part::merges : Part::skip;
        }
        return Part::facts;
      case Part::added: return array ? Part::skip : Part::added_token;
      case Part::merges: return array ? Part::merge_pair : Part::skip;
      default: return Part::skip;
    }
  }

  bool open(bool array) {
    if (frames_.size() == kDeepest) return fail(fmt::format("nested more than {} deep", kDeepest));
    if (part_ == Part::vocab || (part_ == Part::merges && !array) || part_ == Part::merge_pair) {
      return fail("model.vocab holds whole numbers by piece, and model.merges pairs of pieces");
    }
    if (frames_.empty() && array) return fail("expected an object, as a tokenizer.json is");
    const Part part = part_of_child(array);
    frames_.push_back({.array = array, .part = part});
    part_ = part;
    if (part == Part::added_token) {
      token_ = {.added = true};
      token_text_.clear();
      token_has_ = 0;
    }
    if (part == Part::merge_pair) pair_.clear();
    return true;
  }

  bool close() {
    const Part closed = part_;
    frames_.pop_back();
    part_ = frames_.empty() ? Part::root : frames_.back().part;
    if (closed == Part::added_token && !end_added_token()) return false;
    if (closed == Part::merge_pair && pair_.size() != 2) return fail("a merge is not a pair of pieces");
    if (closed == Part::merge_pair && !put_merge(pair_[0], pair_[1])) return false;
    return next();
  }

  bool next() {
    if (!frames_.empty()) ++frames_.back().index;
    return true;
  }

  bool value(const Value& value) {
    switch (part_) {
      case Part::vocab: return fail("model.vocab: an id is not a whole number of 0 or more");
      case Part::merges: return fail("model.merges: an entry is not a pair of pieces");
      case Part::merge_pair:
        if (!value.string || pair_.size() == 2) return fail("model.merges: an entry is not a pair of pieces");
        pair_.emplace_back(value.text);
        return next();
      case Part::added_token: return added_member(value) && next();
      case Part::facts: return add_fact(value) && next();
      default: return frames_.empty() ? fail("expected an object, as a tokenizer.json is") : next();
    }
  }

  bool add_fact(const Value& value) {
    if (value.text.data() == nullptr) return true;
    std::string path;
    for (const Frame& frame : frames_) {
      if (!path.empty()) path += '.';
      path += frame.array ? std::to_string(frame.index) : frame.key;
    }
    fact_bytes_ += path.size() + value.text.size() + 64;
    if (fact_bytes_ > kMostFactBytes) {
      return keep(unsupported(fmt::format("byte {}: the sections beside the vocabulary hold more than {} bytes",
                                          window_.offset(), kMostFactBytes)));
    }
    if (!json_.facts.emplace(std::move(path), value.text).second) return fail("a key appears twice");
    return true;
  }

  bool put_piece(HfPiece piece, std::string_view text) {
    piece.text = json_.texts.bytes().size();
    if (++json_.piece_count > 2 * kMostEntries) return fail(fmt::format("more than {} pieces", 2 * kMostEntries));
    const std::uint64_t length = text.size();
    return keep(json_.texts.append_value(length)) && keep(json_.texts.append(std::as_bytes(std::span(text)))) &&
           keep(json_.pieces.append_value(piece));
  }

  bool vocab_entry(std::uint64_t id) {
    if (id >= kMostEntries) return fail(fmt::format("model.vocab: id {} is not below {}", id, kMostEntries));
    return put_piece({.id = static_cast<std::uint32_t>(id)}, frames_.back().key) && next();
  }

  bool added_member(const Value& value) {
    const std::string& key = frames_.back().key;
    if (key == "id") {
      if (!value.whole || value.number >= kMostEntries) {
        return fail(fmt::format("added_tokens: an id is not a whole number below {}", kMostEntries));
      }
      token_.id = static_cast<std::uint32_t>(value.number);
      token_has_ |= 1;
    } else if (key == "content") {
      if (!value.string) return fail("added_tokens: content is not a string");
      token_text_ = value.text;
      token_has_ |= 2;
    } else if (key == "special" || key == "lstrip" || key == "rstrip" || key == "single_word") {
      if (!value.boolean) return fail(fmt::format("added_tokens: {} is not a boolean", key));
      const bool is = value.text == "true";
      if (key == "special") token_.special = is;
      else token_.trims |= is;
    }
    return true;
  }

  bool end_added_token() {
    if (token_has_ != 3) return fail("added_tokens: a token lacks id or content");
    return put_piece(token_, token_text_);
  }

  bool add_merge(std::string_view text) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return fail("model.merges: expected two pieces with one space between");
    return put_merge(text.substr(0, space), text.substr(space + 1)) && next();
  }

  bool put_merge(std::string_view left, std::string_view right) {
    if (left.empty() || right.empty() || left.find(' ') != left.npos || right.find(' ') != right.npos) {
      return fail("model.merges: expected two pieces with one space between and none inside");
    }
    if (++json_.merge_count > kMostEntries) return fail(fmt::format("more than {} merges", kMostEntries));
    const std::uint64_t length = left.size() + 1 + right.size();
    ByteBuffer& merges = json_.merges;
    return keep(merges.append_value(length)) && keep(merges.append(std::as_bytes(std::span(left)))) &&
           keep(merges.append_value(' ')) && keep(merges.append(std::as_bytes(std::span(right))));
  }

  static constexpr std::uint64_t kMostEntries = (std::uint64_t{1} << 22) - 2;  // as many as the tokenizers take

  HfTokenizerJson& json_;
  const Window& window_;
  Status status_;
  std::vector<Frame> frames_;
  Part part_ = Part::root;
  std::size_t fact_bytes_ = 0;
  HfPiece token_;
  std::string token_text_;
  unsigned token_has_ = 0;
  std::vector<std::string> pair_;
};

}  // namespace

HfPiece HfTokenizerJson::piece(std::uint64_t index) const {
  HfPiece piece;
  std::memcpy(&piece, pieces.bytes().data() + index * sizeof piece, sizeof piece);
  return piece;
}

std::string_view HfTokenizerJson::text(const HfPiece& piece) const {
  std::uint64_t length = 0;
  const std::byte* const at = texts.bytes().data() + piece.text;
  std::memcpy(&length, at, sizeof length);
  return {reinterpret_cast<const char*>(at) + sizeof length, static_cast<std::size_t>(length)};
}

std::string_view HfTokenizerJson::fact(std::string_view path) const {
  const auto found = facts.find(path);
  return found == facts.end() ? std::string_view() : std::string_view(found->second);
}

Result<HfTokenizerJson> read_tokenizer_json(const ByteSource& source, Budget& budget) {
  HfTokenizerJson json(budget);
  Window window(source, budget);
  CARAT_TRY(window.open());
  Events events(json, window);
  const bool parsed = nlohmann::json::sax_parse(WindowIterator(&window), WindowIterator(), &events);
  CARAT_TRY(Status(window.status()));
  CARAT_TRY(Status(events.status()));
  if (!parsed) return invalid("not JSON");
  return json;
}

}  // namespace carat
