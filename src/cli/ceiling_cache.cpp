#include "cli/ceiling_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "os/cache_folder.h"
#include "os/file.h"

namespace carat::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::uint64_t kMostBytes = 1 << 20;

/// Of the ceilings, what the kernels reach: decode of its read ceiling, prefill of the peak of int8 products. With
/// AVX-512 `bench` shows 0.22 of that for 512 tokens of Gemma 3 270M, 0.35 for the 1B.
constexpr double kDecodeShare = 0.85;
constexpr double kPrefillShare = 0.3;

/// What the figures hold for: another of these needs figures of its own.
Json key_of(const Machine& machine, int threads) {
  Json tables = Json::array();
  for (const KernelTable* table : product_tables()) tables.push_back(table->name);
  return {{"version", kVersion},        {"cpu", machine.cpu.brand},         {"family", machine.cpu.family},
          {"model", machine.cpu.model}, {"stepping", machine.cpu.stepping}, {"isa", std::move(tables)},
          {"threads", threads}};
}

/// 0 for what is no number of threads or streams.
int count_of(const Json& json) {
  return json.is_number_unsigned() && json.get<std::uint64_t>() <= 1U << 16 ? json.get<int>() : 0;
}

/// Throws nlohmann's exceptions where a key is missing or of another type.
Ceilings from_json(const Json& json) {
  Ceilings ceilings;
  for (const Json& one : json.at("read")) {
    ceilings.reads.push_back({count_of(one.at("threads")), {one.at("gb_per_s"), count_of(one.at("streams"))}});
  }
  for (const Json& one : json.at("products")) {
    Ceilings::Product product{one.at("isa"), one.at("instruction"), ProductForm::int8, count_of(one.at("threads")),
                              one.at("tops")};
    for (int i = 0; i < kProductFormCount; ++i) {
      if (one.at("form") == name(static_cast<ProductForm>(i))) product.form = static_cast<ProductForm>(i);
    }
    ceilings.products.push_back(std::move(product));
  }
  return ceilings;
}

bool sensible(const Ceilings& ceilings, int threads) {
  const auto in_range = [](double value) { return std::isfinite(value) && value > 0 && value < 1e6; };
  const std::vector<int> counts = measured_threads(threads);
  if (ceilings.reads.size() != counts.size()) return false;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (ceilings.reads[i].threads != counts[i] || !in_range(ceilings.reads[i].rate.gb_per_s)) return false;
  }
  return std::all_of(ceilings.products.begin(), ceilings.products.end(), [&](const Ceilings::Product& product) {
    return in_range(product.tops) && product.threads >= 1 && product.threads <= threads;
  });
}

}  // namespace

std::string ceilings_path(const Machine& machine, int threads) {
  std::string name;
  for (const char c : machine.cpu.brand) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (plain) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!plain && !name.empty() && name.back() != '-') name += '-';
  }
  name = fmt::format("ceilings-{:.60}-{}-{}-{}-{}t.json", name, machine.cpu.family, machine.cpu.model,
                     machine.cpu.stepping, threads);
  return (std::filesystem::path(cache_folder()) / name).string();
}

std::optional<Ceilings> load_ceilings(const Machine& machine, int threads) {
  std::string text;
  const Status read = read_text(ceilings_path(machine, threads), kMostBytes, [&](std::string_view block) {
    text += block;
    return ok_status();
  });
  if (!read.ok()) return std::nullopt;
  try {
    const Json json = Json::parse(text);
    // The order of keys does not matter.
    if (nlohmann::json(json.at("machine")) != nlohmann::json(key_of(machine, threads))) return std::nullopt;
    Ceilings ceilings = from_json(json);
    if (!sensible(ceilings, threads)) return std::nullopt;
    return ceilings;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

Status save_ceilings(const Machine& machine, int threads, const Ceilings& ceilings) {
  const std::string path = ceilings_path(machine, threads);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  Json json = {{"machine", key_of(machine, threads)}};
  json.update(to_json(ceilings));
  CARAT_ASSIGN(AtomicFile file, AtomicFile::create(path));
  CARAT_TRY(file.write(json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
  return file.commit();
}

Json to_json(const Ceilings& ceilings) {
  Json json = {{"read", Json::array()}, {"products", Json::array()}};
  for (const Ceilings::Read& read : ceilings.reads) {
    json["read"].push_back(
        {{"threads", read.threads}, {"gb_per_s", read.rate.gb_per_s}, {"streams", read.rate.streams}});
  }
  for (const Ceilings::Product& product : ceilings.products) {
    json["products"].push_back({{"isa", product.table},
                                {"form", name(product.form)},
                                {"instruction", product.instruction},
                                {"threads", product.threads},
                                {"tops", product.tops}});
  }
  return json;
}

std::optional<SpeedFacts> measured_speed(const Machine& machine, std::string_view table, int threads) {
  const std::optional<Ceilings> ceilings = load_ceilings(machine, machine.cpus.threads);
  if (!ceilings) return std::nullopt;
  const SpeedFacts speed{kDecodeShare * ceilings->read_gb_per_s(threads),
                         kPrefillShare * ceilings->product_tops(table, ProductForm::int8, threads)};
  if (speed.read_gb_per_s <= 0 || speed.prefill_tops <= 0) return std::nullopt;
  return speed;
}

}  // namespace carat::cli
