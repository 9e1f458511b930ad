// From a body to work for the engine: parsed, rendered, tokenized, and held against the limits.
#pragma once

#include <string_view>

#include "server/service.h"

namespace carat::server {

Prepared prepare_chat(const ServedModel& model, const ServiceLimits& limits, const RequestLimits& fields,
                      std::string_view body);
Prepared prepare_completion(const ServedModel& model, const ServiceLimits& limits, const RequestLimits& fields,
                            std::string_view body);
HttpResponse tokenize(const ServedModel& model, std::string_view body);
HttpResponse detokenize(const ServedModel& model, const RequestLimits& fields, std::string_view body);

}  // namespace carat::server
