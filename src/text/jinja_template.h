// The Jinja subset of chat templates: no I/O, nothing reachable but the data given, every resource limited.
// What is supported and how it differs from Jinja2: docs/templates.md.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja_ast.h"
#include "text/jinja_meter.h"
#include "text/jinja_value.h"

namespace carat {

/// A parsed template. Immutable, cheap to copy; several threads may render one at a time each.
class JinjaTemplate {
 public:
  /// Errors name the line: "line 3: unknown tag 'include': …". White space as with trim_blocks and lstrip_blocks.
  static Result<JinjaTemplate> parse(std::string_view source);

  /// `context` is a dict of the variables. A template that calls raise_exception(message) fails with `invalid`,
  /// "line N: message"; so does one that uses up a limit, with the limit's name.
  Result<std::string> render(const JinjaValue& context, const JinjaLimits& limits = {}) const;
  /// The same, with the origin of each byte.
  Result<JinjaText> render_text(const JinjaValue& context, const JinjaLimits& limits = {}) const;

 private:
  explicit JinjaTemplate(std::shared_ptr<const JinjaBody> body) : body_(std::move(body)) {}
  std::shared_ptr<const JinjaBody> body_;
};

}  // namespace carat
