// tokenizer.json and tokenizer.model from any bytes: one clear error, or keys that a tokenizer can be built from or
// refuses clearly. The first byte says which of the two the rest is.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/log.h"
#include "formats/hf_tokenizer.h"
#include "formats/sentencepiece_model.h"
#include "text/tokenizer.h"

namespace {

using namespace carat;

void check_error(const Status& status) {
  CARAT_CHECK(!status.message().empty());
  for (const char c : status.message()) CARAT_CHECK(static_cast<unsigned char>(c) >= 0x20);
  CARAT_CHECK(status.code() != StatusCode::internal);
}

void check_tokenizer(const MetaMap& meta, Budget& budget) {
  const std::uint64_t before = budget.report().reserved;
  const auto made = Tokenizer::create(meta, budget);
  if (!made.ok()) {
    check_error(made.status());
    CARAT_CHECK(budget.report().reserved == before);
    return;
  }
  for (const std::string_view text : {"a b  ab\n\n", "\xE2\x96\x81<h1>\xF0\x9F\x91\x8D", "\xFF\x80"}) {
    const auto ids = (*made)->encode(text, {.special = true});
    if (!ids.ok()) {
      check_error(ids.status());
      continue;
    }
    for (const std::int32_t id : *ids) CARAT_CHECK((*made)->contains(id));
    (void)(*made)->decode(*ids, true);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  set_log_level(LogLevel::quiet);
  Budget budget(std::uint64_t{64} << 20);
  {
    MetaMap meta;
    const MemorySource source("tokenizer", {reinterpret_cast<const std::byte*>(bytes) + 1, size - 1});
    const bool is_json = bytes[0] == '{';
    Status status = is_json ? add_tokenizer_json(source, meta, budget) : add_sentencepiece_model(source, meta, budget);
    if (status.ok()) status = add_hf_special_ids(meta);
    if (status.ok()) {
      check_tokenizer(meta, budget);
    } else {
      check_error(status);
    }
  }
  CARAT_CHECK(budget.report().reserved == 0);
  return 0;
}
