// The profile as a page: header, bars by phase and module, memory, table. Inline SVG and CSS, no script, well-formed
// as XML too, so that a test can read it.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "cli/profile_report.h"

namespace carat::cli {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width" />
<meta name="color-scheme" content="light dark" />
<style>
:root { --ground: #fbfaf8; --ink: #22242a; --faint: #6d717b; --line: #dcdad5; --time: #3b6fb6; --rate: #2c8f7b;
        --other: #a9a7a2; --memory: #9a6bb0; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #17191d; --ink: #e4e4e1; --faint: #9a9ea8; --line: #34373e; --time: #6f9fe0; --rate: #56bda7;
          --other: #6e6d6a; --memory: #b98fcd; }
}
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 0 auto;
       max-width: 1040px; padding: 24px 20px 48px; }
h1 { font-size: 24px; margin: 0 0 12px; }
h2 { font-size: 18px; margin: 32px 0 8px; }
h2 small, p, dt { color: var(--faint); font-weight: normal; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0; }
dd { margin: 0; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; font-size: 13px; }
svg text { fill: var(--ink); } svg .faint { fill: var(--faint); }
.track { fill: var(--line); opacity: 0.5; }
.time { fill: var(--time); } .rate { fill: var(--rate); }
.other { fill: var(--other); } .memory { fill: var(--memory); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: 3px 8px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.first { border-left: 1px solid var(--line); }
</style>
)";

/// Names come out of model files: no markup, no control characters.
std::string escape(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

double share_of(double part, double whole) { return whole > 0 ? part / whole : 0; }

bool ran(const ProfileReport& report, std::size_t module) {
  return std::any_of(report.phases.begin(), report.phases.end(),
                     [&](const PhaseReport& phase) { return phase.modules[module].calls > 0; });
}

/// One bar with its track at x, `share` of `width` wide, and a text behind the track.
std::string bar(int x, int y, int width, double share, std::string_view style, const std::string& text) {
  return fmt::format(
      "<rect class=\"track\" x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"14\" rx=\"2\" />"
      "<rect class=\"{3}\" x=\"{0}\" y=\"{1}\" width=\"{4:.1f}\" height=\"14\" rx=\"2\" />"
      "<text x=\"{5}\" y=\"{6}\">{7}</text>",
      x, y, width, style, std::clamp(share, 0.0, 1.0) * width, x + width + 8, y + 12, escape(text));
}

std::string picture(int rows, const std::string& label, const std::string& body) {
  return fmt::format("<svg viewBox=\"0 0 1000 {}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n", 24 * rows + 26,
                     escape(label), body);
}

std::string row_label(int y, const std::string& text) {
  return fmt::format("<text x=\"0\" y=\"{}\">{}</text>", y + 12, escape(text));
}

/// Time on the left, as a share of the phase; GB/s on the right, where a module reads anything.
std::string phase_picture(const ProfileReport& report, const PhaseReport& phase) {
  double longest = phase.other_seconds;
  // Stretches too short to time well would set the scale of all rates.
  double fastest = report.expected_gb_per_s;
  for (const ModuleReport& module : phase.modules) {
    longest = std::max(longest, module.seconds);
    if (share_of(module.seconds, phase.seconds) > 0.01) fastest = std::max(fastest, module.gb_per_s());
  }
  std::string body =
      "<text class=\"faint\" x=\"140\" y=\"14\">time</text>"
      "<text class=\"faint\" x=\"680\" y=\"14\">GB/s</text>\n";
  int rows = 0;
  const auto add_row = [&](const std::string& label, double seconds, std::string_view style) {
    const int y = 24 + 24 * rows++;
    body += row_label(y, label);
    body += bar(140, y, 360, share_of(seconds, longest), style,
                fmt::format("{} · {:.1f}%", human_seconds(seconds), 100 * share_of(seconds, phase.seconds)));
    return y;
  };
  for (std::size_t i = 0; i < phase.modules.size(); ++i) {
    const ModuleReport& module = phase.modules[i];
    if (!ran(report, i)) continue;
    const int y = add_row(module_label(static_cast<ProfileModule>(i)), module.seconds, "time");
    if (module.bytes > 0) {
      body += bar(680, y, 180, share_of(module.gb_per_s(), fastest), "rate", fmt::format("{:.2f}", module.gb_per_s()));
    }
    body += '\n';
  }
  add_row("other", phase.other_seconds, "other");
  return fmt::format("<h2>{} <small>{} tokens in {}, {:.1f} tokens/s</small></h2>\n", escape(phase.name), phase.tokens,
                     human_seconds(phase.seconds), phase.tokens_per_second) +
         picture(rows, "time and GB/s by module: " + phase.name, body);
}

std::string memory_picture(const ProfileReport& report) {
  std::uint64_t most = 1;
  for (const auto& category : report.categories) most = std::max({most, category.planned, category.peak});
  std::string body;
  int rows = 0;
  for (const auto& category : report.categories) {
    if (category.planned == 0 && category.peak == 0) continue;
    const int y = 4 + 24 * rows++;
    body += row_label(y, category.name);
    body += bar(140, y, 480, share_of(static_cast<double>(category.peak), static_cast<double>(most)), "memory",
                fmt::format("{} of {} planned", human_bytes(category.peak), human_bytes(category.planned)));
    body += '\n';
  }
  return "<h2>memory <small>highest reserved, by category of the budget</small></h2>\n" +
         picture(rows, "memory by category", body);
}

std::string cells(const PhaseReport& phase, const ModuleReport& module) {
  const bool reads = module.bytes > 0;
  return fmt::format("<td class=\"first\">{}</td><td>{:.1f}%</td><td>{}</td><td>{}</td><td>{}</td>",
                     human_seconds(module.seconds), 100 * share_of(module.seconds, phase.seconds), module.calls,
                     reads ? human_bytes(module.bytes) : "", reads ? fmt::format("{:.2f}", module.gb_per_s()) : "");
}

std::string table(const ProfileReport& report) {
  std::string text = "<h2>table</h2>\n<div class=\"scroll\"><table>\n<tr><th></th>";
  for (const PhaseReport& phase : report.phases) {
    text += fmt::format("<th class=\"first\" colspan=\"5\">{}</th>", escape(phase.name));
  }
  text += "<th class=\"first\"></th></tr>\n<tr><th>module</th>";
  for (std::size_t i = 0; i < report.phases.size(); ++i) {
    text += "<th class=\"first\">time</th><th>share</th><th>calls</th><th>bytes</th><th>GB/s</th>";
  }
  text += "<th class=\"first\">memory</th></tr>\n";
  for (std::size_t i = 0; i < report.memory.size(); ++i) {
    if (!ran(report, i)) continue;
    text += fmt::format("<tr><td>{}</td>", escape(module_label(static_cast<ProfileModule>(i))));
    for (const PhaseReport& phase : report.phases) text += cells(phase, phase.modules[i]);
    text +=
        fmt::format("<td class=\"first\">{}</td></tr>\n", report.memory[i] == 0 ? "" : human_bytes(report.memory[i]));
  }
  text += "<tr><td>other</td>";
  for (const PhaseReport& phase : report.phases) {
    text += fmt::format("<td class=\"first\">{}</td><td>{:.1f}%</td><td></td><td></td><td></td>",
                        human_seconds(phase.other_seconds), 100 * share_of(phase.other_seconds, phase.seconds));
  }
  return text + "<td class=\"first\"></td></tr>\n</table></div>\n";
}

}  // namespace

std::string profile_html(const ProfileReport& report) {
  const std::string model = report.settings.empty() ? "" : report.settings.front().second;
  std::string html(kHead);
  html += fmt::format("<title>carat profile: {0}</title>\n</head>\n<body>\n<h1>{0}</h1>\n<dl>\n", escape(model));
  for (const auto& [key, value] : report.settings) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape(key), escape(value));
  }
  html += fmt::format("<dt>measured</dt><dd>{:.1f}% of {} lies in the modules</dd>\n</dl>\n", 100 * report.coverage(),
                      human_seconds(report.seconds()));
  for (const PhaseReport& phase : report.phases) html += phase_picture(report, phase);
  html += memory_picture(report);
  html += table(report);
  html += fmt::format(
      "<p>Bytes are counted from shapes: packed weights once a pass, the KV tiles that each block of rows walks, KV "
      "stored, the logits row that is sampled, the prompt's text. Rates above what memory gives come from caches; the "
      "plan assumes {:.0f} GB/s. A head without memory of its own shares the embedding's.</p>\n</body>\n</html>\n",
      report.expected_gb_per_s);
  return html;
}

}  // namespace carat::cli
