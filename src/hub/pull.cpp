#include "hub/pull.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "hub/hub_client.h"
#include "os/file.h"

namespace carat {
namespace {

namespace fs = std::filesystem;

Status failed(const fs::path& path, const char* what, const std::error_code& error) {
  return io_error(fmt::format("{}: cannot {}: {}", path.string(), what, error.message()));
}

/// The folder of one model's unfinished files, locked for this process.
class Staging {
 public:
  Staging(Staging&& other) noexcept : folder_(std::move(other.folder_)), lock_(std::exchange(other.lock_, -1)) {}
  Staging& operator=(Staging&&) = delete;
  /// What is unfinished stays; without anything the folder goes.
  ~Staging() {
    if (lock_ < 0) return;
    std::error_code kept;
    if (fs::remove(folder_, kept) || !fs::exists(folder_, kept)) fs::remove(folder_.string() + ".lock", kept);
    fs::remove(folder_.parent_path(), kept);  // fails while other models are unfinished
    close(lock_);
  }

  static Result<Staging> open(const fs::path& models, const std::string& key) {
    const fs::path root = models / kPullFolder;
    Staging staging(root / key);
    std::error_code error;
    fs::create_directories(staging.folder_, error);
    if (error) return failed(staging.folder_, "make the folder", error);
    const std::string lock = (root / (key + ".lock")).string();
    staging.lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (staging.lock_ < 0) return io_error(fmt::format("{}: cannot create: {}", lock, std::strerror(errno)));
    if (flock(staging.lock_, LOCK_EX | LOCK_NB) != 0) {
      return io_error(fmt::format("{}: another pull of this model is running", lock));
    }
    return staging;
  }

  const fs::path& folder() const { return folder_; }
  fs::path partial(const std::string& name) const { return folder_ / (name + ".partial"); }

 private:
  explicit Staging(fs::path folder) : folder_(std::move(folder)) {}
  fs::path folder_;
  int lock_ = -1;
};

/// Moves a finished file or folder to a name that nothing has.
Status put_in_place(const fs::path& from, const fs::path& to) {
  int moved = renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
  std::error_code error;
  // Some file systems know no such flag.
  if (moved != 0 && errno == EINVAL && !fs::exists(fs::symlink_status(to, error))) {
    moved = rename(from.c_str(), to.c_str());
  }
  if (moved != 0) {
    return io_error(fmt::format("{}: cannot put it in place: {}", to.string(), std::strerror(errno)));
  }
  const int folder = ::open(to.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return ok_status();
  fsync(folder);  // some file systems cannot; the file itself is on the disk
  close(folder);
  return ok_status();
}

/// A pull while it runs.
class Pull {
 public:
  Pull(const PullTarget& target, const PullOptions& options, HubClient hub)
      : target_(target), options_(options), hub_(std::move(hub)) {}

  Result<Pulled> run() {
    std::error_code error;
    fs::create_directories(options_.models_folder, error);
    if (error) return failed(options_.models_folder, "make the folder", error);
    if (!target_.file.empty()) {
      std::vector<HubFile> files;
      for (const std::string& part : split_parts(target_.file)) files.push_back({.path = part});
      auto pulled = pull_files(std::move(files));
      return pulled.ok() ? std::move(pulled) : Result<Pulled>(with_file_names(std::move(pulled).status()));
    }
    CARAT_ASSIGN(const HubListing listing, hub_.list(target_.repository));
    commit_ = listing.commit;
    if (has_model_folder(listing)) return pull_folder(folder_files(listing));
    CARAT_ASSIGN(std::vector<HubFile> files, only_gguf(listing, target_.repository));
    return pull_files(std::move(files));
  }

 private:
  fs::path models() const { return options_.models_folder; }

  /// Under which a file of the repository is kept.
  std::string kept_name(const std::string& path) const {
    const std::string name = base_name(path);
    if (target_.name.empty()) return name;
    const std::vector<std::string> parts = split_parts(path);
    constexpr std::size_t kTail = 20;  // -00001-of-00003.gguf
    return target_.name + (parts.size() > 1 ? name.substr(name.size() - kTail) : fs::path(name).extension().string());
  }

  /// Where a file was not found, the files that are there.
  Status with_file_names(Status status) {
    if (status.code() != StatusCode::io || status.message().find(kNotFound) == std::string::npos) {
      return status;
    }
    const auto listing = hub_.list(target_.repository);
    if (!listing.ok()) return status;
    std::string names;
    std::size_t told = 0;
    for (const HubFile& file : listing->files) {
      if (!file.path.ends_with(".gguf")) continue;
      if (++told <= 20) names += (names.empty() ? "" : ", ") + file.path;
    }
    if (told > 20) names += ", …";
    return io_error(fmt::format("hf:{}: has no file {}; its .gguf files: {}", target_.repository, target_.file,
                                names.empty() ? "none" : names));
  }

  /// Whether the model lies there already; a different file of its name is an error.
  Result<bool> is_there(HubFile& file, const fs::path& path) {
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path, error))) return false;
    if (file.sha256.empty() && file.git_id.empty()) {
      CARAT_TRY(hub_.describe(target_.repository, commit_, file));
    }
    if (verify(path.string(), file).ok()) return true;
    return invalid(
        fmt::format("{}: is there already and is another file than the hub's; move it away, or keep the "
                    "hub's under another name with --as NAME",
                    path.string()));
  }

  /// Fetches what is not in the staging folder yet.
  Status fetch(const Staging& staging, HubFile& file, const std::string& name) {
    const fs::path whole = staging.folder() / name;
    std::error_code error;
    if (fs::exists(whole, error)) {
      if (!file.sha256.empty() || !file.git_id.empty()) {
        if (verify(whole.string(), file).ok()) return ok_status();
      }
      fs::remove(whole, error);  // of an earlier state of the repository
    }
    const fs::path partial = staging.partial(name);
    CARAT_TRY(hub_.fetch(target_.repository, commit_, file, partial.string()));
    fs::rename(partial, whole, error);
    return error ? failed(whole, "put in place", error) : ok_status();
  }

  Status fetch_all(const Staging& staging, std::vector<HubFile>& files,
                   const std::function<std::string(const HubFile&)>& name) {
    std::uint64_t total = 0;
    std::uint64_t done = 0;
    for (const HubFile& file : files) total += file.bytes;
    for (HubFile& file : files) {
      const bool unknown = file.bytes == 0;
      hub_.set_progress(done, total);
      CARAT_TRY(fetch(staging, file, name(file)));
      done += file.bytes;
      if (unknown) total += file.bytes;
    }
    if (options_.progress) options_.progress(done, done);
    return ok_status();
  }

  void add(Pulled& pulled, const HubFile& file, const fs::path& path) const {
    std::error_code error;
    pulled.files.push_back(
        {path.string(), fs::file_size(path, error), file.sha256.empty() ? file.git_id : file.sha256});
  }

  Result<Pulled> pull_files(std::vector<HubFile> files) {
    Pulled pulled;
    pulled.path = (models() / kept_name(files.front().path)).string();
    std::vector<HubFile> missing;
    for (HubFile& file : files) {
      const fs::path path = models() / kept_name(file.path);
      CARAT_ASSIGN(const bool there, is_there(file, path));
      if (!there) missing.push_back(file);
      if (there) add(pulled, file, path);
    }
    pulled.was_there = missing.empty();
    if (missing.empty()) return pulled;
    CARAT_ASSIGN(const Staging staging, Staging::open(models(), kept_name(files.front().path)));
    const auto name = [&](const HubFile& file) { return kept_name(file.path); };
    CARAT_TRY(fetch_all(staging, missing, name));
    // The first part is what the model is opened by: it comes last.
    for (auto file = missing.rbegin(); file != missing.rend(); ++file) {
      CARAT_TRY(put_in_place(staging.folder() / name(*file), models() / name(*file)));
      add(pulled, *file, models() / name(*file));
    }
    std::sort(pulled.files.begin(), pulled.files.end(),
              [](const PulledFile& a, const PulledFile& b) { return a.path < b.path; });
    return pulled;
  }

  Result<Pulled> pull_folder(std::vector<HubFile> files) {
    const std::string name = target_.name.empty() ? base_name(target_.repository) : target_.name;
    const fs::path place = models() / name;
    Pulled pulled{.path = place.string()};
    std::error_code error;
    if (fs::exists(fs::symlink_status(place, error))) {
      for (HubFile& file : files) {
        auto there = is_there(file, place / file.path);
        if (there.ok() && *there) {
          add(pulled, file, place / file.path);
          continue;
        }
        return invalid(
            fmt::format("{}: is there already and its {} is not the hub's; move it away, or keep the hub's "
                        "under another name with --as NAME",
                        place.string(), file.path));
      }
      pulled.was_there = true;
      return pulled;
    }
    CARAT_ASSIGN(const Staging staging, Staging::open(models(), name));
    CARAT_TRY(fetch_all(staging, files, [](const HubFile& file) { return file.path; }));
    CARAT_TRY(remove_others(staging, files));
    CARAT_TRY(put_in_place(staging.folder(), place));
    for (const HubFile& file : files) add(pulled, file, place / file.path);
    return pulled;
  }

  /// Files that an earlier state of the repository had.
  static Status remove_others(const Staging& staging, const std::vector<HubFile>& files) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(staging.folder(), error)) {
      const std::string name = entry.path().filename().string();
      const bool wanted =
          std::any_of(files.begin(), files.end(), [&](const HubFile& file) { return file.path == name; });
      if (!wanted && !fs::remove(entry.path(), error)) return failed(entry.path(), "delete", error);
    }
    return error ? failed(staging.folder(), "read", error) : ok_status();
  }

  const PullTarget& target_;
  const PullOptions& options_;
  HubClient hub_;
  std::string commit_ = "main";
};

/// A token is one word: anything else would become headers of its own.
bool is_token(const std::string& token) {
  return std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > 0x20 && c < 0x7F; });
}

bool is_loopback(const std::string& hub) {
  for (const char* host : {"http://127.", "http://localhost", "http://[::1]"}) {
    if (hub.starts_with(host)) return true;
  }
  return false;
}

}  // namespace

Result<Pulled> pull(const PullTarget& target, const PullOptions& given) {
  PullOptions options = given;
  while (options.hub.ends_with('/')) options.hub.pop_back();
  if (!options.hub.starts_with("https://") && !options.hub.starts_with("http://")) {
    return invalid(fmt::format("CARAT_HUB '{}': expected a URL such as https://huggingface.co", options.hub));
  }
  if (!is_token(options.token)) return invalid("HF_TOKEN (CARAT_HUB_TOKEN): a token has neither spaces nor line ends");
  if (!options.token.empty() && options.hub.starts_with("http://") && !is_loopback(options.hub)) {
    options.token.clear();
    if (options.note) options.note(fmt::format("{} is not encrypted: the token is not sent", options.hub));
  }
  CARAT_ASSIGN(HubClient hub, HubClient::create(options));
  return Pull(target, options, std::move(hub)).run();
}

}  // namespace carat
