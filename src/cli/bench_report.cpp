#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace carat::cli {

double BenchFigure::median() const {
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double BenchFigure::least() const { return *std::min_element(values.begin(), values.end()); }
double BenchFigure::most() const { return *std::max_element(values.begin(), values.end()); }

void set_fractions(BenchReport& report) {
  for (BenchFigure& figure : report.figures) {
    if (figure.bytes > 0 && report.read_gb_per_s > 0) {
      const double steps_per_s = figure.median() / figure.batch;
      figure.ceiling_fraction = static_cast<double>(figure.bytes) * steps_per_s / (report.read_gb_per_s * 1e9);
    }
    if (figure.operations > 0 && report.int8.tops > 0) {
      figure.ceiling_fraction = figure.operations * figure.median() / (report.int8.tops * 1e12);
    }
  }
}

nlohmann::ordered_json to_json(const BenchReport& report) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const BenchFigure& figure : report.figures) {
    nlohmann::ordered_json one = {
        {"kind", figure.kind}, {"tokens", figure.tokens}, {"depth", figure.depth}, {"batch", figure.batch}};
    one[figure.seconds() ? "seconds" : "tokens_per_s"] = {
        {"median", figure.median()}, {"min", figure.least()}, {"max", figure.most()}};
    if (figure.bytes > 0) one["bytes_a_step"] = figure.bytes;
    if (figure.operations > 0) one["operations_a_token"] = figure.operations;
    one["ceiling_fraction"] =
        figure.ceiling_fraction > 0 ? nlohmann::ordered_json(figure.ceiling_fraction) : nlohmann::ordered_json();
    results.push_back(std::move(one));
  }
  nlohmann::ordered_json json = {{"machine",
                                  {{"cpu", report.cpu},
                                   {"isa", report.isa},
                                   {"read_gb_per_s", report.read_gb_per_s},
                                   {"int8_tops", nullptr},
                                   {"int8_instruction", nullptr},
                                   {"threads", report.threads}}},
                                 {"model", report.model},
                                 {"results", std::move(results)}};
  if (report.int8.tops > 0) {
    json["machine"]["int8_tops"] = report.int8.tops;
    json["machine"]["int8_instruction"] = report.int8.instruction;
  }
  if (!report.memory.is_null()) json["memory"] = report.memory;
  return json;
}

std::string to_text(const BenchReport& report) {
  std::string text = fmt::format("{:<13} {:>7} {:>7} {:>6} {:>24} {:>9}\n", "", "tokens", "depth", "batch",
                                 "median [least, most]", "ceiling");
  for (const BenchFigure& figure : report.figures) {
    const int digits = figure.seconds() ? 3 : 1;
    text +=
        fmt::format("{:<13} {:>7} {:>7} {:>6} {:>24} {:>9}\n", figure.kind, figure.tokens, figure.depth, figure.batch,
                    fmt::format("{:.{}f} [{:.{}f}, {:.{}f}]{}", figure.median(), digits, figure.least(), digits,
                                figure.most(), digits, figure.seconds() ? " s" : ""),
                    figure.ceiling_fraction > 0 ? fmt::format("{:.0f}%", 100 * figure.ceiling_fraction) : "");
  }
  if (report.read_gb_per_s > 0) {
    text += fmt::format("tokens/s; ceiling: of the {:.1f} GB/s that the threads read here", report.read_gb_per_s);
    if (report.int8.tops > 0) {
      text += fmt::format(", in prefill of their {:.2f} TOPS of int8 products ({})", report.int8.tops,
                          report.int8.instruction);
    }
    text += "\n";
  }
  return text;
}

}  // namespace carat::cli
