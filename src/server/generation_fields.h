// The fields that chat and text completions share.
#pragma once

#include <string>

#include "server/api_request.h"
#include "server/field_reader.h"

namespace carat::server {

/// Which of the two a body is: a few fields differ.
enum class CompletionKind : std::uint8_t { text, chat };

/// Reads the fields one by one, and at the end what only all of them together can say.
class GenerationFieldReader {
 public:
  GenerationFieldReader(FieldReader& reader, const RequestLimits& limits, CompletionKind kind, GenerationFields& fields)
      : reader_(reader), limits_(limits), kind_(kind), fields_(fields) {}

  /// Whether `key` is one of these fields, whose value is then read. Check ok() after each.
  bool take(const std::string& key);
  bool ok() const { return ok_; }
  /// After the last field.
  bool finish();

 private:
  bool sampling(const std::string& key);
  bool output(const std::string& key);
  bool shape(const std::string& key);
  bool read_float(const std::string& key, double least, double most, float& value);
  bool read_max_tokens(const std::string& key);
  bool read_stop();
  bool read_stop_text(const std::string& param);
  bool read_logit_bias();
  bool read_stream_options();
  bool read_logprobs();
  bool read_response_format();
  bool read_json_schema();

  FieldReader& reader_;
  const RequestLimits& limits_;
  CompletionKind kind_;
  GenerationFields& fields_;
  bool ok_ = true;
  bool newer_max_tokens_ = false;  ///< max_completion_tokens was there
  std::optional<std::int64_t> best_of_;
  bool top_logprobs_given_ = false;
};

}  // namespace carat::server
