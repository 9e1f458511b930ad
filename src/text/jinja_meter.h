// What a template may use up while it renders. Any of these limits ends the rendering with one error that names it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "memory/budget.h"

namespace carat {

struct JinjaLimits {
  std::uint64_t steps = 10'000'000;           ///< expressions and statements evaluated; 256 bytes of text are one
  std::uint64_t output_bytes = 64ULL << 20U;  ///< of the rendered text
  std::uint64_t value_bytes = 256ULL << 20U;  ///< of all strings, lists and dicts alive at one time
  int depth = 600;                            ///< nested expressions, statements and macro calls
  Budget* budget = nullptr;                   ///< when given, value bytes are reserved there (tokenizer) as they grow
};

/// Lists and dicts inside each other; fixed, because comparing, printing and freeing them recurses.
inline constexpr int kJinjaValueDepth = 100;

/// Counts what one rendering uses. Not thread-safe; outlives every value made under it.
class JinjaMeter {
 public:
  explicit JinjaMeter(const JinjaLimits& limits) : limits_(limits) {}
  JinjaMeter(const JinjaMeter&) = delete;
  JinjaMeter& operator=(const JinjaMeter&) = delete;

  Status step(std::uint64_t count = 1);
  Status step_bytes(std::uint64_t bytes) { return step(1 + bytes / 256); }
  /// Would `bytes` more of values fit? Asked before they are built.
  Status room_for(std::uint64_t bytes);
  Status output_room_for(std::uint64_t bytes) const;
  Status enter();
  void leave() { --depth_; }

 private:
  friend class JinjaCharge;
  void add(std::uint64_t bytes) { used_ += bytes; }
  void give_back(std::uint64_t bytes) { used_ -= bytes; }

  const JinjaLimits limits_;
  std::uint64_t steps_ = 0;
  std::uint64_t used_ = 0;
  int depth_ = 0;
  std::uint64_t reserved_ = 0;
  std::vector<Reservation> reservations_;
};

/// Bytes counted against a meter for as long as the value that holds this lives.
class JinjaCharge {
 public:
  JinjaCharge() = default;
  JinjaCharge(JinjaMeter& meter, std::uint64_t bytes) : meter_(&meter), bytes_(bytes) { meter.add(bytes); }
  /// Counts `bytes` more; the meter was asked before.
  void grow(std::uint64_t bytes) {
    meter_->add(bytes);
    bytes_ += bytes;
  }
  JinjaCharge(JinjaCharge&& other) noexcept
      : meter_(std::exchange(other.meter_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  JinjaCharge& operator=(JinjaCharge&& other) noexcept {
    std::swap(meter_, other.meter_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~JinjaCharge() {
    if (meter_ != nullptr) meter_->give_back(bytes_);
  }

 private:
  JinjaMeter* meter_ = nullptr;
  std::uint64_t bytes_ = 0;
};

/// One level of depth while it lives, if status() is ok.
class JinjaDepth {
 public:
  explicit JinjaDepth(JinjaMeter& meter) : meter_(meter), status_(meter.enter()) {}
  JinjaDepth(const JinjaDepth&) = delete;
  JinjaDepth& operator=(const JinjaDepth&) = delete;
  ~JinjaDepth() {
    if (status_.ok()) meter_.leave();
  }
  const Status& status() const { return status_; }

 private:
  JinjaMeter& meter_;
  Status status_;
};

}  // namespace carat
