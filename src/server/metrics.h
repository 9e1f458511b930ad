// What /metrics shows. The one place that knows prometheus-cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/runner.h"
#include "memory/budget.h"
#include "server/generation.h"

namespace carat::server {

/// Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// A request has been answered: "ok", "client_error", "server_error", "refused", "cancelled", "timeout".
  void request(std::string_view outcome);
  /// "auth", "rate", "queue", "concurrency", "body", "memory", "token_budget", "loading", "stopping", "connections".
  void refused(std::string_view reason);
  /// Answers have ended; what never happened is not observed.
  void generated(const GenerationCounts& counts);
  /// How far the server has stepped down under load: a DegradeStep.
  void degraded(int step);
  /// An answer was cut by its length.
  void truncated();

  /// The text format, with counters and gauges as they are now; a null budget or runner has none to show.
  std::string text(const Budget* budget, const Runner* runner);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace carat::server
