#include "text/jinja_template.h"

#include <fmt/format.h>

#include "text/jinja_evaluator.h"
#include "text/jinja_parser.h"

namespace carat {

Result<JinjaTemplate> JinjaTemplate::parse(std::string_view source) {
  CARAT_ASSIGN(JinjaBody body, parse_jinja(source));
  return JinjaTemplate(std::make_shared<const JinjaBody>(std::move(body)));
}

Result<JinjaText> JinjaTemplate::render_text(const JinjaValue& context, const JinjaLimits& limits) const {
  if (!context.is_dict()) return invalid("the variables of a template must be a dict");
  if (context.depth() > kJinjaValueDepth) {
    return invalid(fmt::format("the variables of a template are nested deeper than {} levels", kJinjaValueDepth));
  }
  return JinjaEvaluator(context, limits).render(*body_);
}

Result<std::string> JinjaTemplate::render(const JinjaValue& context, const JinjaLimits& limits) const {
  CARAT_ASSIGN(const JinjaText text, render_text(context, limits));
  return std::string(text.view());
}

}  // namespace carat
