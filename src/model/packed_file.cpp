#include "model/packed_file.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/checked.h"
#include "base/log.h"
#include "os/cache_folder.h"

namespace carat {
namespace {

/// Changes with every change of a packed layout.
constexpr std::string_view kVersion = "carat packed 1";
constexpr std::array<char, 8> kMagic = {'C', 'A', 'R', 'A', 'T', 'P', 'K', '1'};

struct PackedHeader {
  std::array<char, 8> magic = kMagic;
  std::uint64_t image_bytes = 0;
  std::array<char, 4080> key{};  ///< the text of key_of(), cut to what there is room for
};
static_assert(sizeof(PackedHeader) == kPackedImageOffset);

/// Which model the file is of: where its files are, how long, and when they were written.
Result<std::string> key_of(const ModelFile& model, const WeightsLayout& layout) {
  std::string text = fmt::format("{}\n{}\n", kVersion, layout.bytes);
  for (const File& file : model.files) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::canonical(file.path(), error);
    const auto written = error ? std::filesystem::file_time_type() : std::filesystem::last_write_time(path, error);
    if (error) return io_error(fmt::format("{}: cannot stat: {}", file.path(), error.message()));
    text += fmt::format("{}\n{}\n{}\n", path.string(), file.bytes(), written.time_since_epoch().count());
  }
  return text;
}

/// FNV-1a, for the file's name: SHA-256 would bring a megabyte of libcrypto into memory.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

PackedHeader header_of(const std::string& key, const WeightsLayout& layout) {
  PackedHeader header;
  header.image_bytes = layout.bytes;
  std::memcpy(header.key.data(), key.data(), std::min(key.size(), header.key.size()));
  return header;
}

bool is_packed(const File& file, const PackedHeader& expected) {
  PackedHeader header;
  if (file.bytes() != kPackedImageOffset + expected.image_bytes) return false;
  if (!file.read(0, std::as_writable_bytes(std::span(&header, 1))).ok()) return false;
  return std::memcmp(&header, &expected, sizeof header) == 0;
}

/// Collects what a lane packs and writes it behind the header.
class FileSink final : public PackedSink {
 public:
  FileSink(AtomicFile& file, std::span<std::byte> memory, std::uint64_t lanes)
      : file_(file), memory_(memory), lane_bytes_(memory.size() / lanes / 64 * 64), lanes_(lanes) {}

  std::byte* room(std::uint64_t lane, std::uint64_t offset, std::uint64_t bytes) override {
    Lane& mine = lanes_[lane];
    CARAT_CHECK(mine.used + bytes <= lane_bytes_ && mine.count < mine.parts.size());
    std::byte* at = memory_.data() + lane * lane_bytes_ + mine.used;
    mine.parts[mine.count++] = {offset, {at, static_cast<std::size_t>(bytes)}};
    mine.used += round_up(bytes, std::uint64_t{64});
    return at;
  }
  Status flush(std::uint64_t lane) override {
    Lane& mine = lanes_[lane];
    for (std::size_t i = 0; i < mine.count; ++i) {
      CARAT_TRY(file_.write_at(kPackedImageOffset + mine.parts[i].offset, mine.parts[i].bytes));
    }
    mine.used = mine.count = 0;
    return ok_status();
  }

 private:
  struct Part {
    std::uint64_t offset = 0;
    std::span<std::byte> bytes;
  };
  struct Lane {
    std::array<Part, 2> parts;
    std::size_t count = 0;
    std::uint64_t used = 0;
  };
  AtomicFile& file_;
  std::span<std::byte> memory_;
  std::uint64_t lane_bytes_;
  std::vector<Lane> lanes_;
};

Status make_packed(const std::string& path, const PackedHeader& header, const ModelFile& model,
                   const WeightsLayout& layout, Budget& budget, ThreadPool& pool, const LoadProgress& progress) {
  CARAT_ASSIGN(AtomicFile file, AtomicFile::create(path));
  // One lane needs less than the two buffers that every streamed plan has: where there is no more room, one it is.
  const std::uint64_t piece = most_packed_piece(layout) + 64;
  const BudgetReport use = budget.report();
  const std::uint64_t room = use.limit - std::min(use.limit, use.reserved);
  const std::uint64_t lanes =
      std::clamp<std::uint64_t>(room / (layout.staging_bytes + piece + 4096), 1, loading_lanes(layout, pool.threads()));
  CARAT_ASSIGN(const Arena memory, Arena::allocate(budget, MemoryCategory::io, lanes * piece, "packed pieces"));
  // As long as the image from the start: its end may be padding that nothing writes.
  constexpr std::array<std::byte, 1> kLast{};
  CARAT_TRY(file.write_at(kPackedImageOffset + layout.bytes - 1, kLast));
  FileSink sink(file, {memory.data(), static_cast<std::size_t>(memory.bytes())}, lanes);
  CARAT_TRY(pack_weights(model.config, layout, *model.tensor_source(), sink, lanes, budget, pool, progress));
  CARAT_TRY(file.write_at(0, std::as_bytes(std::span(&header, 1))));
  return file.commit();
}

}  // namespace

Result<File> open_packed(const ModelFile& model, const WeightsLayout& layout, Budget& budget, ThreadPool& pool,
                         const LoadProgress& progress) {
  CARAT_ASSIGN(const std::string key, key_of(model, layout));
  const PackedHeader header = header_of(key, layout);
  const std::filesystem::path folder = std::filesystem::path(cache_folder()) / "packed";
  const std::string name = std::filesystem::path(model.path).filename().string();
  const std::string path = (folder / fmt::format("{}-{:016x}.packed", name, hash_of(key))).string();
  if (auto file = File::open(path); file.ok() && is_packed(*file, header)) return file;

  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return io_error(
        fmt::format("{}: cannot create the folder for packed weights: {}; set XDG_CACHE_HOME, or give "
                    "more --memory",
                    folder.string(), error.message()));
  }
  log_note(fmt::format("weights that do not fit are read from {}, which is made now ({} bytes)", path,
                       kPackedImageOffset + layout.bytes));
  Status made = make_packed(path, header, model, layout, budget, pool, progress);
  if (made.code() == StatusCode::io) {
    return std::move(made).with_context("packed weights, for which XDG_CACHE_HOME may name another folder");
  }
  CARAT_TRY(std::move(made));
  return File::open(path);
}

}  // namespace carat
