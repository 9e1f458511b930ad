#include "cli/bench_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace carat::cli {
namespace {

// Pixels.
constexpr int kWidth = 760;
constexpr int kMargin = 20;
constexpr int kBarLeft = 190;
constexpr int kBarRight = 610;  ///< of the longest bar; what stands behind it is text
constexpr int kRow = 24;
constexpr int kBar = 14;
constexpr int kPanelTitle = 34;
constexpr int kHead = 62;

struct Kind {
  std::string_view name;
  std::string_view title;
  std::string_view color;
};
constexpr std::array kKinds{
    Kind{"load", "load, seconds", "#7a7a7a"}, Kind{"first_token", "process start to first token, seconds", "#7a7a7a"},
    Kind{"prefill", "prefill, tokens/s", "#2f6f9f"}, Kind{"decode", "decode, tokens/s", "#b5562c"},
    Kind{"batch_decode", "decode of several sequences, tokens/s of all", "#4d7f3a"}};

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return safe;
}

std::string label(const BenchFigure& figure) {
  if (figure.seconds()) return "";
  if (figure.kind == "batch_decode") return fmt::format("{} at once", figure.batch);
  if (figure.kind == "decode") return fmt::format("depth {}", figure.depth);
  return figure.depth == 0 ? fmt::format("{} tokens", figure.tokens)
                           : fmt::format("{} tokens at {}", figure.tokens, figure.depth);
}

std::string value_text(const BenchFigure& figure) {
  const double median = figure.median();
  std::string text = fmt::format("{:.{}f}", median, figure.seconds() ? 3 : median < 100 ? 1 : 0);
  if (figure.ceiling_fraction > 0) text += fmt::format(" ({:.0f}%)", 100 * figure.ceiling_fraction);
  return text;
}

/// One panel; `y` moves below it.
std::string panel(const BenchReport& report, const Kind& kind, int& y) {
  double longest = 0;
  for (const BenchFigure& figure : report.figures) {
    if (figure.kind == kind.name) longest = std::max({longest, figure.most(), figure.ceiling()});
  }
  if (longest <= 0) return "";
  const auto length = [&](double value) { return (kBarRight - kBarLeft) * value / longest; };
  std::string svg = fmt::format(R"(<text x="{}" y="{}" class="t">{}</text>)"
                                "\n",
                                kMargin, y + 22, kind.title);
  y += kPanelTitle;
  for (const BenchFigure& figure : report.figures) {
    if (figure.kind != kind.name) continue;
    const int middle = y + kBar / 2;
    svg += fmt::format(R"(<text x="{}" y="{}" class="l">{}</text>)", kBarLeft - 10, middle + 4, label(figure));
    if (figure.ceiling() > 0) {
      svg += fmt::format(R"(<rect x="{}" y="{}" width="{:.1f}" height="{}" fill="{}" opacity="0.2"/>)", kBarLeft, y,
                         length(figure.ceiling()), kBar, kind.color);
    }
    svg += fmt::format(R"(<rect x="{}" y="{}" width="{:.1f}" height="{}" fill="{}"/>)", kBarLeft, y,
                       length(figure.median()), kBar, kind.color);
    svg += fmt::format(R"(<path d="M{:.1f} {}H{:.1f}" class="s"/>)", kBarLeft + length(figure.least()), middle,
                       kBarLeft + length(figure.most()));
    svg += fmt::format(R"(<text x="{}" y="{}">{}</text>)"
                       "\n",
                       kBarRight + 10, middle + 4, value_text(figure));
    y += kRow;
  }
  return svg;
}

}  // namespace

std::string bench_svg(const BenchReport& report) {
  int y = kHead;
  std::string panels;
  for (const Kind& kind : kKinds) panels += panel(report, kind, y);
  std::string ceilings;
  if (report.read_gb_per_s > 0) ceilings = fmt::format("; pale: {:.1f} GB/s read", report.read_gb_per_s);
  if (report.int8.tops > 0)
    ceilings += fmt::format(", {:.2f} TOPS of int8 ({})", report.int8.tops, report.int8.instruction);
  const std::string head =
      fmt::format(R"(<text x="{0}" y="28" class="h">{1}</text><text x="{0}" y="48">{2}, {3}, {4} {5}{6}</text>)"
                  "\n",
                  kMargin, escaped(report.model.value("name", "")), escaped(report.cpu), report.isa, report.threads,
                  report.threads == 1 ? "thread" : "threads", ceilings);
  return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}">)"
                     "\n<style>text{{font:12px sans-serif;fill:#333}}.h{{font-size:17px;font-weight:bold}}"
                     ".t{{font-size:13px;font-weight:bold}}.l{{text-anchor:end}}"
                     ".s{{stroke:#111;stroke-width:1.5}}</style>\n"
                     R"(<rect width="{0}" height="{1}" fill="#fff"/>)"
                     "\n{2}{3}</svg>\n",
                     kWidth, y + kMargin, head, panels);
}

}  // namespace carat::cli
