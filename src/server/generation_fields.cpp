#include "server/generation_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace carat::server {
namespace {

constexpr double kLargest = 1e6;  ///< of numbers without a range of their own

}  // namespace

bool GenerationFieldReader::take(const std::string& key) {
  // A field that is null is a field that is not there.
  return sampling(key) || output(key) || shape(key);
}

bool GenerationFieldReader::read_float(const std::string& key, double least, double most, float& value) {
  if (reader_.is_null()) return true;
  double number = 0;
  if (!reader_.number(key, least, most, number)) return false;
  value = static_cast<float>(number);
  return true;
}

bool GenerationFieldReader::sampling(const std::string& key) {
  SamplingParams& params = fields_.sampling;
  if (key == "temperature") {
    ok_ = read_float(key, 0, 2, params.temperature);
  } else if (key == "top_p") {
    ok_ = read_float(key, 0, 1, params.top_p);
    // OpenAI's clients send 0 for "the likeliest": the fewest tokens that reach any share are one.
    if (ok_ && params.top_p <= 0) params.top_p = std::numeric_limits<float>::min();
  } else if (key == "min_p") {
    ok_ = read_float(key, 0, 1, params.min_p);
  } else if (key == "top_k") {
    std::int64_t value = 0;
    ok_ = reader_.is_null() || reader_.integer(key, -1, std::numeric_limits<std::int32_t>::max(), value);
    params.top_k = static_cast<std::uint32_t>(std::max<std::int64_t>(value, 0));
  } else if (key == "repetition_penalty") {
    ok_ = read_float(key, 1e-3, kLargest, params.repetition_penalty);
  } else if (key == "presence_penalty") {
    ok_ = read_float(key, -2, 2, params.presence_penalty);
  } else if (key == "frequency_penalty") {
    ok_ = read_float(key, -2, 2, params.frequency_penalty);
  } else if (key == "logit_bias") {
    ok_ = reader_.is_null() || read_logit_bias();
  } else if (key == "seed") {
    std::int64_t value = 0;
    if (reader_.is_null()) return true;
    ok_ =
        reader_.integer(key, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), value);
    fields_.seed = static_cast<std::uint64_t>(value);
  } else {
    return false;
  }
  return true;
}

bool GenerationFieldReader::output(const std::string& key) {
  const bool chat = kind_ == CompletionKind::chat;
  if (key == "max_tokens" || (key == "max_completion_tokens" && chat)) {
    ok_ = reader_.is_null() || read_max_tokens(key);
  } else if (key == "stop") {
    ok_ = reader_.is_null() || read_stop();
  } else if (key == "logprobs") {
    ok_ = reader_.is_null() || read_logprobs();
  } else if (key == "top_logprobs" && chat) {
    std::int64_t value = 0;
    if (reader_.is_null()) return true;
    ok_ = reader_.integer(key, 0, kMostTopLogprobs, value);
    fields_.top_logprobs = static_cast<std::uint32_t>(value);
    top_logprobs_given_ = value > 0;
  } else if (key == "response_format") {
    ok_ = reader_.is_null() || read_response_format();
  } else if (key == "grammar") {
    if (reader_.is_null()) return true;
    ok_ = reader_.text(key, limits_.most_grammar_bytes, fields_.constraint.source);
    fields_.constraint.kind = Constraint::Kind::gbnf;
    fields_.constraint.param = key;
  } else {
    return false;
  }
  return true;
}

bool GenerationFieldReader::shape(const std::string& key) {
  if (key == "n") {
    std::int64_t value = 1;
    ok_ = reader_.is_null() || reader_.integer(key, 1, limits_.most_choices, value);
    fields_.n = static_cast<std::uint32_t>(value);
  } else if (key == "best_of") {
    std::int64_t value = 1;
    if (reader_.is_null()) return true;
    ok_ = reader_.integer(key, 1, limits_.most_choices, value);
    best_of_ = value;
  } else if (key == "stream") {
    ok_ = reader_.is_null() || reader_.boolean(key, fields_.stream);
  } else if (key == "stream_options") {
    ok_ = reader_.is_null() || read_stream_options();
  } else if (key == "model" || key == "user") {
    std::string ignored;
    ok_ = reader_.is_null() || reader_.text(key, 4096, ignored);
  } else {
    return false;
  }
  return true;
}

bool GenerationFieldReader::read_max_tokens(const std::string& key) {
  // A text completion of no tokens scores its prompt.
  const std::int64_t least = kind_ == CompletionKind::chat ? 1 : 0;
  std::int64_t value = 0;
  if (!reader_.integer(key, least, std::numeric_limits<std::int32_t>::max(), value)) return false;
  const bool newer = key == "max_completion_tokens";
  if (newer || !newer_max_tokens_) fields_.max_tokens = static_cast<std::uint32_t>(value);
  newer_max_tokens_ = newer_max_tokens_ || newer;
  return true;
}

bool GenerationFieldReader::read_stop_text(const std::string& param) {
  std::string stop;
  if (!reader_.text(param, kMostStopBytes, stop)) return false;
  if (!stop.empty()) fields_.stop.push_back(std::move(stop));
  return true;
}

bool GenerationFieldReader::read_stop() {
  fields_.stop.clear();
  const auto kind = reader_.kind();
  if (!kind) return false;
  if (*kind == JsonKind::string) return read_stop_text("stop");
  if (*kind != JsonKind::array) return reader_.fail("stop", "stop: expected a string or a list of strings");
  if (!reader_.begin_array("stop")) return false;
  for (std::size_t i = 0;; ++i) {
    bool more = false;
    if (!reader_.next_element(more)) return false;
    if (!more) return true;
    if (i == kMostStops) return reader_.fail("stop", fmt::format("stop: more than {} strings", kMostStops));
    if (!read_stop_text(fmt::format("stop[{}]", i))) return false;
  }
}

bool GenerationFieldReader::read_logit_bias() {
  fields_.sampling.logit_bias.clear();
  if (!reader_.begin_object("logit_bias")) return false;
  std::string key;
  for (bool more = false; reader_.next_key(key, more);) {
    if (!more) return true;
    std::int32_t token = -1;
    const char* const end = key.data() + key.size();
    const auto [rest, error] = std::from_chars(key.data(), end, token);
    if (error != std::errc() || rest != end || token < 0 || static_cast<std::uint32_t>(token) >= limits_.vocab) {
      return reader_.fail("logit_bias", fmt::format("logit_bias: '{}' is no token id below {}", key, limits_.vocab));
    }
    double bias = 0;
    if (!reader_.number("logit_bias." + key, -100, 100, bias)) return false;
    if (fields_.sampling.logit_bias.size() == kMostBiases) {
      return reader_.fail("logit_bias", fmt::format("logit_bias: more than {} tokens", kMostBiases));
    }
    fields_.sampling.logit_bias.push_back({token, static_cast<float>(bias)});
  }
  return false;
}

bool GenerationFieldReader::read_stream_options() {
  if (!reader_.begin_object("stream_options")) return false;
  std::string key;
  for (bool more = false; reader_.next_key(key, more);) {
    if (!more) return true;
    const bool known = key == "include_usage" && !reader_.is_null();
    const bool read = known ? reader_.boolean("stream_options.include_usage", fields_.include_usage)
                            : key == "include_usage" || reader_.skip();
    if (!read) return false;
  }
  return false;
}

bool GenerationFieldReader::read_logprobs() {
  if (kind_ == CompletionKind::chat) return reader_.boolean("logprobs", fields_.wants_logprobs);
  std::int64_t value = 0;
  if (!reader_.integer("logprobs", 0, kMostTopLogprobs, value)) return false;
  fields_.wants_logprobs = true;
  fields_.top_logprobs = static_cast<std::uint32_t>(value);
  return true;
}

bool GenerationFieldReader::read_response_format() {
  if (!reader_.begin_object("response_format")) return false;
  std::string key;
  std::string type;
  bool schema_given = false;
  for (bool more = false; reader_.next_key(key, more);) {
    if (!more) break;
    bool read = true;
    if (key == "type") {
      read = reader_.text("response_format.type", 64, type);
    } else if (key == "json_schema") {
      schema_given = true;
      read = read_json_schema();
    } else {
      read = reader_.skip();
    }
    if (!read) return false;
  }
  if (!reader_.error().message.empty()) return false;
  Constraint& constraint = fields_.constraint;
  if (type == "text") {
    if (constraint.kind != Constraint::Kind::gbnf) constraint = {};
    return true;
  }
  if (type == "json_object") {
    constraint = {Constraint::Kind::json_object, "", "response_format"};
    return true;
  }
  if (type != "json_schema") {
    return reader_.fail("response_format.type", "response_format.type: expected text, json_object or json_schema");
  }
  if (!schema_given || constraint.kind != Constraint::Kind::json_schema) {
    return reader_.fail("response_format.json_schema", "response_format.json_schema: a schema is missing");
  }
  return true;
}

bool GenerationFieldReader::read_json_schema() {
  const std::string param = "response_format.json_schema";
  if (!reader_.begin_object(param)) return false;
  std::string key;
  for (bool more = false; reader_.next_key(key, more);) {
    if (!more) return true;
    if (key != "schema") {
      if (!reader_.skip()) return false;
      continue;
    }
    std::string_view schema;
    if (!reader_.raw(param + ".schema", limits_.most_grammar_bytes, schema)) return false;
    fields_.constraint = {Constraint::Kind::json_schema, std::string(schema), param + ".schema"};
  }
  return false;
}

bool GenerationFieldReader::finish() {
  if (best_of_ && *best_of_ != fields_.n) {
    return reader_.fail("best_of",
                        fmt::format("best_of: {} is not n, {}: all answers made are given", *best_of_, fields_.n));
  }
  if (top_logprobs_given_ && !fields_.wants_logprobs) {
    return reader_.fail("top_logprobs", "top_logprobs: needs logprobs to be true");
  }
  return true;
}

}  // namespace carat::server
