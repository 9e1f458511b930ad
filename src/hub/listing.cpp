#include "hub/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "hub/names.h"

namespace carat {
namespace {

using nlohmann::json;

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::uint64_t number_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

Result<HubFile> parse_file(const json& entry) {
  HubFile file;
  if (entry.is_object()) file.path = text_of(entry, "rfilename");
  if (!is_safe_path(file.path)) {
    return invalid(fmt::format("the hub lists a file '{}', whose name is no path within a repository", file.path));
  }
  file.bytes = number_of(entry, "size");
  if (const std::string id = text_of(entry, "blobId"); is_git_id(id)) file.git_id = id;
  const auto large = entry.find("lfs");
  if (large == entry.end() || !large->is_object()) return file;
  file.git_id.clear();  // of the pointer, not of the contents
  file.sha256 = text_of(*large, "sha256");
  if (file.sha256.empty()) file.sha256 = text_of(*large, "oid");
  if (const std::uint64_t bytes = number_of(*large, "size"); bytes > 0) file.bytes = bytes;
  if (!is_sha256(file.sha256)) return invalid(fmt::format("the hub lists '{}' with a digest that is none", file.path));
  return file;
}

/// Other files than weights that carat reads, or that tell the terms.
bool is_small_part(std::string_view name) {
  constexpr std::array<std::string_view, 10> kRead{"config.json",           "generation_config.json",
                                                   "tokenizer.json",        "tokenizer.model",
                                                   "tokenizer_config.json", "special_tokens_map.json",
                                                   "added_tokens.json",     "chat_template.jinja",
                                                   "chat_template.json",    "NOTICE"};
  const bool licence = name.starts_with("LICENSE") && name.find('/') == std::string_view::npos;
  return licence || std::find(kRead.begin(), kRead.end(), name) != kRead.end();
}

bool is_weights(std::string_view name, std::string_view stem, std::string_view ending) {
  return name.starts_with(stem) && (name.ends_with(ending) || name.ends_with(fmt::format("{}.index.json", ending)));
}

std::vector<HubFile> weights_of(const HubListing& listing) {
  using Form = std::pair<std::string_view, std::string_view>;
  for (const Form& form : {Form{"model", ".safetensors"}, Form{"pytorch_model", ".bin"}}) {
    std::vector<HubFile> found;
    for (const HubFile& file : listing.files) {
      if (file.path.find('/') == std::string::npos && is_weights(file.path, form.first, form.second)) {
        found.push_back(file);
      }
    }
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace

bool is_sha256(std::string_view text) { return is_hex(text, 64); }
bool is_git_id(std::string_view text) { return is_hex(text, 40); }

Result<HubListing> parse_listing(const std::string& text) {
  const json root = json::parse(text, nullptr, false);
  const auto siblings = root.is_object() ? root.find("siblings") : root.end();
  if (!root.is_object() || siblings == root.end() || !siblings->is_array()) {
    return invalid("the hub's list of files is not the JSON that was expected");
  }
  HubListing listing;
  listing.commit = text_of(root, "sha");
  if (!is_git_id(listing.commit)) listing.commit = "main";
  for (const json& entry : *siblings) {
    CARAT_ASSIGN(HubFile file, parse_file(entry));
    listing.files.push_back(std::move(file));
  }
  return listing;
}

bool has_model_folder(const HubListing& listing) {
  const auto is_config = [](const HubFile& file) { return file.path == "config.json"; };
  return std::any_of(listing.files.begin(), listing.files.end(), is_config) && !weights_of(listing).empty();
}

std::vector<HubFile> folder_files(const HubListing& listing) {
  std::vector<HubFile> files;
  // The small ones first: what is wrong with a model shows before its weights are fetched.
  std::copy_if(listing.files.begin(), listing.files.end(), std::back_inserter(files),
               [](const HubFile& file) { return is_small_part(file.path); });
  const std::vector<HubFile> weights = weights_of(listing);
  files.insert(files.end(), weights.begin(), weights.end());
  return files;
}

Result<std::vector<HubFile>> only_gguf(const HubListing& listing, const std::string& repository) {
  std::set<std::string> models;  // the first parts
  for (const HubFile& file : listing.files) {
    if (!file.path.ends_with(".gguf") || base_name(file.path).starts_with("mmproj")) continue;
    models.insert(split_parts(file.path).front());
  }
  if (models.empty()) {
    return invalid(fmt::format("hf:{}: holds neither a .gguf file nor config.json with safetensors", repository));
  }
  if (models.size() > 1) {
    std::vector<std::string> told;
    for (const std::string& path : models) {
      const auto found = std::find_if(listing.files.begin(), listing.files.end(),
                                      [&](const HubFile& file) { return file.path == path; });
      const double megabytes = found == listing.files.end() ? 0 : static_cast<double>(found->bytes) / 1e6;
      told.push_back(megabytes > 0 ? fmt::format("{} ({:.0f} MB)", path, megabytes) : path);
    }
    return invalid(fmt::format("hf:{0}: has {1} models, choose one as hf:{0}:FILE: {2}", repository, models.size(),
                               fmt::join(told, ", ")));
  }
  std::vector<HubFile> parts;
  for (const std::string& path : split_parts(*models.begin())) {
    const auto found = std::find_if(listing.files.begin(), listing.files.end(),
                                    [&](const HubFile& file) { return file.path == path; });
    if (found == listing.files.end()) return invalid(fmt::format("hf:{}: lacks the part {}", repository, path));
    parts.push_back(*found);
  }
  return parts;
}

}  // namespace carat
