// Three things by the first byte: tiny SentencePiece vocabularies and tiny byte-level ones over random text, where
// encoding and decoding must give the text back; and MetaMaps with anything in them, where an error is as good.
#include <fuzzer/FuzzedDataProvider.h>

#include <string>

#include "base/check.h"
#include "base/log.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/vocabulary_builder.h"

namespace {

using namespace carat;
using testing::TestPiece;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

std::string with_spaces(std::string text) {
  for (std::size_t at = text.find(kSpaceMark); at != std::string::npos; at = text.find(kSpaceMark, at)) {
    text.replace(at, kSpaceMark.size(), " ");
  }
  return text;
}

void check_error(const Status& status) {
  CARAT_CHECK(!status.message().empty());
  for (const char c : status.message()) CARAT_CHECK(static_cast<unsigned char>(c) >= 0x20);
  CARAT_CHECK(status.code() != StatusCode::internal);
}

/// Random cuts of the bytes must stream to the sanitized text, and stop strings must never show.
void check_streams(const std::string& bytes, FuzzedDataProvider& data) {
  Utf8Stream stream;
  std::string streamed;
  const std::vector<std::string> stops{data.ConsumeRandomLengthString(4), data.ConsumeRandomLengthString(4)};
  StopStrings stop_strings(stops);
  std::string shown;
  const std::size_t step = data.ConsumeIntegralInRange<std::size_t>(1, 5);
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    const std::string_view piece = std::string_view(bytes).substr(at, step);
    stream.push(piece, streamed);
    CARAT_CHECK(is_valid_utf8(streamed));
    stop_strings.push(piece, shown);
  }
  stream.finish(streamed);
  stop_strings.finish(shown);
  CARAT_CHECK(streamed == sanitize_utf8(bytes, nullptr));
  CARAT_CHECK(bytes.starts_with(shown) && (stop_strings.stopped() || shown == bytes));
  for (const std::string& stop : stops) CARAT_CHECK(stop.empty() || shown.find(stop) == std::string::npos);
}

void check_round_trip(const MetaMap& meta, const std::string& text, bool spaces, bool exact) {
  Budget budget(std::uint64_t{256} << 20);
  const auto made = Tokenizer::create(meta, budget);
  if (!made.ok()) {
    check_error(made.status());
    CARAT_CHECK(budget.report().reserved == 0);
    return;
  }
  const Tokenizer& tokenizer = **made;
  const std::uint64_t reserved = budget.report().reserved;
  CARAT_CHECK(reserved == Tokenizer::bytes_needed(meta));
  const std::string expected = spaces ? with_spaces(text) : text;
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.encode(text, {.special = special});
    CARAT_CHECK(budget.report().reserved == reserved);
    if (!ids.ok()) {
      check_error(ids.status());
      CARAT_CHECK(!exact);
      continue;
    }
    for (const std::int32_t id : *ids) {
      CARAT_CHECK(tokenizer.contains(id));
      CARAT_CHECK(special || !exact || tokenizer.kind(id) != PieceKind::control);
    }
    const std::string decoded = tokenizer.decode(*ids, true);
    CARAT_CHECK(!exact || decoded == expected);
  }
}

std::vector<TestPiece> some_pieces(FuzzedDataProvider& data, bool any_kind) {
  std::vector<TestPiece> pieces;
  for (int i = data.ConsumeIntegralInRange(0, 24); i > 0; --i) {
    TestPiece piece;
    piece.text = data.ConsumeRandomLengthString(6);
    piece.score = static_cast<float>(data.ConsumeIntegralInRange(-4, 4));
    constexpr std::int32_t kKinds[] = {1, 1, 1, 4, 3, 5};
    piece.kind = any_kind ? data.ConsumeIntegral<std::int8_t>() : data.PickValueInArray(kKinds);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

void fuzz_sentencepiece(FuzzedDataProvider& data) {
  const MetaMap meta = testing::gemma_like(some_pieces(data, false));
  const std::string text = data.ConsumeRandomLengthString(600);
  check_round_trip(meta, text, true, true);
  check_streams(text, data);
}

void fuzz_byte_level(FuzzedDataProvider& data) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  std::vector<std::pair<std::string, std::string>> merges;
  for (int i = data.ConsumeIntegralInRange(0, 24); i > 0; --i) {
    const std::string left = texts[data.ConsumeIntegralInRange<std::size_t>(0, texts.size() - 1)];
    const std::string right = texts[data.ConsumeIntegralInRange<std::size_t>(0, texts.size() - 1)];
    if (left.size() + right.size() > 64) continue;
    merges.emplace_back(left, right);
    texts.push_back(left + right);
  }
  constexpr const char* kFamilies[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
  const MetaMap meta = testing::gpt2_like(merges, data.PickValueInArray(kFamilies));
  const std::string text = data.ConsumeRandomLengthString(600);
  check_round_trip(meta, text, false, true);
}

template <typename T>
std::vector<T> some_numbers(FuzzedDataProvider& data, std::size_t count) {
  std::vector<T> numbers(count);
  for (T& number : numbers) number = data.ConsumeIntegral<T>();
  return numbers;
}

MetaValue some_value(FuzzedDataProvider& data) {
  switch (data.ConsumeIntegralInRange(0, 3)) {
    case 0: return data.ConsumeBool();
    case 1: return std::int64_t{data.ConsumeIntegral<std::int16_t>()};
    case 2: return data.ConsumeFloatingPoint<double>();
    default: return std::string_view("llama");
  }
}

void fuzz_hostile(FuzzedDataProvider& data) {
  MetaMap meta;
  constexpr const char* kModels[] = {"llama", "gpt2", "bert", ""};
  meta.set_string("tokenizer.ggml.model", data.PickValueInArray(kModels));
  if (data.ConsumeBool()) meta.set_string("tokenizer.ggml.pre", data.ConsumeRandomLengthString(10));
  if (data.ConsumeBool()) meta.set_string("general.architecture", data.ConsumeRandomLengthString(6));
  testing::set_pieces(meta, some_pieces(data, data.ConsumeBool()));
  const std::size_t count = data.ConsumeIntegralInRange<std::size_t>(0, 30);
  if (data.ConsumeBool()) {
    testing::set_numbers(meta, "tokenizer.ggml.scores", NumberType::u32, some_numbers<std::uint32_t>(data, count));
  }
  if (data.ConsumeBool()) {
    testing::set_numbers(meta, "tokenizer.ggml.token_type", NumberType::i8, some_numbers<std::int8_t>(data, count));
  }
  std::vector<std::string> merges;
  for (int i = data.ConsumeIntegralInRange(0, 6); i > 0; --i) merges.push_back(data.ConsumeRandomLengthString(8));
  testing::set_strings(meta, "tokenizer.ggml.merges", merges);
  constexpr const char* kKeys[] = {
      "bos_token_id",  "eos_token_id",     "eot_token_id", "eom_token_id", "unknown_token_id",
      "add_bos_token", "add_space_prefix", "merges",       "scores",       "token_type",
      "tokens"};
  for (int i = data.ConsumeIntegralInRange(0, 4); i > 0; --i) {
    meta.set(std::string("tokenizer.ggml.") + data.PickValueInArray(kKeys), some_value(data));
  }
  check_round_trip(meta, data.ConsumeRandomLengthString(200), false, false);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  set_log_level(LogLevel::quiet);
  FuzzedDataProvider data(bytes, size);
  switch (data.ConsumeIntegralInRange(0, 2)) {
    case 0: fuzz_sentencepiece(data); break;
    case 1: fuzz_byte_level(data); break;
    default: fuzz_hostile(data); break;
  }
  return 0;
}
