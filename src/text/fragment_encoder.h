// What the two kinds of BPE have in common: ordinary text in, tokens out.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "text/merge_symbols.h"

namespace carat {

/// Receives tokens in order, some hundreds at a time. A failure ends the encoding and is returned from it.
using TokenSink = std::function<Status(std::span<const std::int32_t>)>;

/// Gathers tokens for a sink. After a failure it swallows what follows; status() tells.
class TokenWriter {
 public:
  explicit TokenWriter(const TokenSink& sink) : sink_(&sink) {}
  void put(std::int32_t id) {
    batch_[filled_++] = id;
    if (filled_ == kBatch) flush();
  }
  void flush() {
    if (filled_ > 0 && status_.ok()) status_ = (*sink_)({batch_, filled_});
    filled_ = 0;
  }
  const Status& status() const { return status_; }

 private:
  static constexpr std::size_t kBatch = 512;
  const TokenSink* sink_;
  std::int32_t batch_[kBatch];
  std::size_t filled_ = 0;
  Status status_;
};

class FragmentEncoder {
 public:
  virtual ~FragmentEncoder() = default;
  /// Encodes text that holds no special piece. Any bytes are accepted. Thread-safe.
  virtual Status encode(std::string_view text, MergeScratch& scratch, TokenWriter& writer) const = 0;
};

}  // namespace carat
