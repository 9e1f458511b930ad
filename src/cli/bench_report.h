// What carat bench found, as machine output, as a table and as a picture.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "metrics/product_ceiling.h"

namespace carat::cli {

struct BenchFigure {
  std::string kind;
  std::uint32_t tokens = 0;
  std::uint32_t depth = 0;
  std::uint32_t batch = 1;
  std::vector<double> values;   ///< seconds of load and first_token, tokens a second of the others
  std::uint64_t bytes = 0;      ///< decode: read for one step, counted from shapes
  double operations = 0;        ///< prefill: of the linear products, for one token; a multiply-add is two
  double ceiling_fraction = 0;  ///< decode: of the read ceiling, prefill: of the int8 peak; 0: not known

  bool seconds() const { return kind == "load" || kind == "first_token"; }
  double median() const;
  double least() const;
  double most() const;
  /// Tokens a second at the ceiling; 0: not known.
  double ceiling() const { return ceiling_fraction > 0 ? median() / ceiling_fraction : 0; }
};

struct BenchReport {
  std::string cpu;
  std::string isa;
  int threads = 1;
  nlohmann::ordered_json model;
  std::vector<BenchFigure> figures;
  double read_gb_per_s = 0;       ///< measured beside the figures, by the same threads
  ProductRate int8;               ///< the same
  nlohmann::ordered_json memory;  ///< null: nothing was loaded for longer
};

/// What a step's bytes and a token's operations take at the ceilings, as a share of what they took.
void set_fractions(BenchReport& report);

nlohmann::ordered_json to_json(const BenchReport& report);
std::string to_text(const BenchReport& report);

}  // namespace carat::cli
