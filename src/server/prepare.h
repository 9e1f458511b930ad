// From a body to work for the engine: parsed, rendered, tokenized, and held against the limits.
#pragma once

#include <string_view>

#include "server/service.h"

namespace carat::server {

/// What a body is held against, and where refusals are counted.
struct PrepareContext {
  const ServedModel& model;
  const ServiceLimits& limits;
  RequestLimits fields;
  Metrics& metrics;
};

Prepared prepare_chat(const PrepareContext& context, std::string_view body);
Prepared prepare_completion(const PrepareContext& context, std::string_view body);
HttpResponse tokenize(const ServedModel& model, std::string_view body);
HttpResponse detokenize(const ServedModel& model, const RequestLimits& fields, std::string_view body);

}  // namespace carat::server
