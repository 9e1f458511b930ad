#include "hub/hub_client.h"

#include <fmt/core.h>

#include <charconv>
#include <chrono>
#include <thread>
#include <utility>

#include "hub/partial_file.h"
#include "os/sha256.h"

namespace carat {
namespace {

constexpr std::size_t kLargestListing = 4 << 20;
/// Tries without a byte of progress before a transfer is given up.
constexpr int kTries = 4;

bool is_busy(long status) { return status == 429 || status / 100 == 5; }

/// `"abc"` and `W/"abc"` → abc
std::string bare_tag(std::string tag) {
  if (tag.starts_with("W/")) tag.erase(0, 2);
  if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"') tag = tag.substr(1, tag.size() - 2);
  return tag;
}

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

std::string find_header(const HttpAnswer& answer, const std::string& name) {
  const auto first = answer.first_headers.find(name);
  return first != answer.first_headers.end() ? first->second : answer.header(name);
}

/// Takes what the hub's own answer says of the file; an error when it contradicts what is known.
Status take_digest(const HttpAnswer& answer, HubFile& file) {
  const std::string linked = bare_tag(find_header(answer, "x-linked-etag"));
  const std::string own = bare_tag(find_header(answer, "etag"));
  if (is_sha256(linked)) {
    if (!file.sha256.empty() && file.sha256 != linked) {
      return io_error("the hub's file has another SHA-256 than it listed");
    }
    file.sha256 = linked;
  }
  if (!file.sha256.empty() || !file.git_id.empty()) return ok_status();
  if (is_sha256(own)) file.sha256 = own;
  if (is_git_id(linked.empty() ? own : linked)) file.git_id = linked.empty() ? own : linked;
  if (!file.sha256.empty() || !file.git_id.empty()) return ok_status();
  return io_error("the hub tells no SHA-256 of it, so that it could not be verified");
}

/// An interruption stays one: it is no error to be told.
Status in_context(Status status, const std::string& what) {
  return status.code() == StatusCode::interrupted ? status : std::move(status).with_context(what);
}

/// Bytes of the whole file by a final answer; 0: not told.
std::uint64_t whole_bytes(const HttpAnswer& answer) {
  if (answer.status == 206 || answer.status == 416) {
    const std::string range = answer.header("content-range");  // bytes 5-9/10
    const std::size_t slash = range.find('/');
    return slash == std::string::npos ? 0 : number(std::string_view(range).substr(slash + 1));
  }
  return number(answer.header("content-length"));
}

/// Whether a partial answer begins where it was asked to.
bool begins_at(const HttpAnswer& answer, std::uint64_t from) {
  return answer.header("content-range").starts_with(fmt::format("bytes {}-", from));
}

}  // namespace

/// One file's way onto the disk.
struct HubClient::Fetching {
  PartialFile partial;
  bool start_over = false;  ///< what is there does not go with what the hub has now
  Status refusal;           ///< the last one
};

Result<HubClient> HubClient::create(const PullOptions& options) {
  CARAT_ASSIGN(HttpClient http, HttpClient::create());
  http.set_interrupted(options.interrupted);
  return HubClient(std::move(http), options);
}

std::string HubClient::file_url(const std::string& repository, const std::string& commit,
                                const std::string& path) const {
  return fmt::format("{}/{}/resolve/{}/{}", options_->hub, repository, commit, url_path(path));
}

/// One line for an answer that is no success.
Status HubClient::refused(const HttpAnswer& answer) const {
  std::string said = find_header(answer, "x-error-message");
  if (said.size() > 200) said.resize(200);
  if (!said.empty()) said = fmt::format(" ({})", said);
  if (answer.status == 401 || answer.status == 403) {
    return io_error(fmt::format("the hub answers {}{}: {}", answer.status, said,
                                options_->token.empty()
                                    ? "there is no such repository, or it wants a token: set HF_TOKEN"
                                    : "the token does not open it; are its terms accepted on the hub?"));
  }
  if (answer.status == 404) return io_error(fmt::format("{}{}", kNotFound, said));
  return io_error(fmt::format("the hub answers {}{}", answer.status, said));
}

Status HubClient::wait_to_retry(int attempt) const {
  using namespace std::chrono_literals;
  for (auto left = 500ms * (1 << attempt); left > 0ms; left -= 50ms) {
    if (options_->interrupted != nullptr && options_->interrupted()) return interrupted("");
    std::this_thread::sleep_for(50ms);
  }
  return ok_status();
}

Result<HubListing> HubClient::list(const std::string& repository) {
  const HttpGet request{.url = fmt::format("{}/api/models/{}?blobs=true", options_->hub, repository),
                        .token = options_->token};
  const std::string what = "hf:" + repository;
  for (int attempt = 0;; ++attempt) {
    std::string text;
    const auto append = [&](std::string_view part) {
      if (text.size() + part.size() > kLargestListing) return io_error(what + ": the hub's list of files is too long");
      text += part;
      return ok_status();
    };
    const auto answer = http_.get(request, nullptr, append);
    const bool again = answer.ok() ? is_busy(answer->status) : http_.transient() && attempt > 0;
    if (again && attempt + 1 < kTries) {
      CARAT_TRY(wait_to_retry(attempt));
      continue;
    }
    if (!answer.ok()) return in_context(answer.status(), what);
    if (answer->status != 200) return refused(*answer).with_context(what);
    auto listing = parse_listing(text);
    if (!listing.ok()) return std::move(listing).status().with_context(what);
    return listing;
  }
}

Status HubClient::describe(const std::string& repository, const std::string& commit, HubFile& file) {
  const HttpGet request{.url = file_url(repository, commit, file.path), .token = options_->token};
  const std::string what = fmt::format("hf:{}:{}", repository, file.path);
  bool told = false;
  const auto head = [&](const HttpAnswer& answer) {
    CARAT_TRY(take_digest(answer, file));
    file.bytes = whole_bytes(answer);
    told = true;
    return interrupted("");  // that was all
  };
  const auto answer = http_.get(request, head, [](std::string_view) { return ok_status(); });
  if (told) return ok_status();
  if (!answer.ok()) return in_context(answer.status(), what);
  return refused(*answer).with_context(what);
}

/// Makes the partial file ready for the body that comes.
Status HubClient::head(const HttpAnswer& answer, HubFile& file, Fetching& state) {
  PartialFile& partial = state.partial;
  CARAT_TRY(take_digest(answer, file));
  const std::string& digest = file.sha256.empty() ? file.git_id : file.sha256;
  const std::uint64_t bytes = whole_bytes(answer);
  if (file.bytes > 0 && bytes > 0 && bytes != file.bytes) {
    return io_error(fmt::format("the hub sends {} bytes, it listed {}", bytes, file.bytes));
  }
  if (answer.status == 206) {
    if (!begins_at(answer, partial.bytes()) || digest != partial.digest()) {
      state.start_over = true;
      return io_error("what came before does not go with what comes now");
    }
  } else {
    CARAT_TRY(partial.start(digest, answer.header("etag")));
  }
  if (file.bytes == 0 && bytes > 0) {
    file.bytes = bytes;
    total_ += bytes;
  }
  return partial.check_room(file.bytes);
}

Result<HubClient::Outcome> HubClient::fetch_once(const HttpGet& request, HubFile& file, Fetching& state) {
  PartialFile& partial = state.partial;
  const auto on_head = [&](const HttpAnswer& answer) { return head(answer, file, state); };
  const auto on_body = [&](std::string_view part) {
    if (file.bytes > 0 && partial.bytes() + part.size() > file.bytes) {
      return io_error(fmt::format("the hub sends more than the {} bytes it told", file.bytes));
    }
    CARAT_TRY(partial.append(part));
    const bool go_on = !options_->progress || options_->progress(done_ + partial.bytes(), total_);
    return go_on ? ok_status() : interrupted("");
  };
  const auto answer = http_.get(request, on_head, on_body);
  if (answer.ok() && answer->status == 416) {
    // Nothing is left of it, or it is another file now.
    if (whole_bytes(*answer) == partial.bytes() && take_digest(*answer, file).ok()) return Outcome::whole;
    state.start_over = true;
  }
  if (std::exchange(state.start_over, false)) {
    CARAT_TRY(partial.clear());
    return Outcome::again;
  }
  if (!answer.ok()) return answer.status();
  if (answer->status / 100 == 2) return Outcome::whole;
  state.refusal = refused(*answer);
  if (is_busy(answer->status)) return Outcome::busy;
  return state.refusal;
}

/// Asks until the whole has come. What is lost on the way is asked for again from where it broke off; after some tries
/// that brought nothing it is given up. A hub that never answered is told at once.
Status HubClient::fetch_bytes(const std::string& url, HubFile& file, Fetching& state) {
  const PartialFile& partial = state.partial;
  bool has_sent = false;
  for (int attempt = 0; attempt < kTries;) {
    const std::uint64_t before = partial.bytes();
    const auto outcome =
        fetch_once({.url = url, .token = options_->token, .from = before, .if_range = partial.etag()}, file, state);
    if (outcome.ok() && *outcome == Outcome::whole) return ok_status();
    const bool moved = partial.bytes() > before;
    has_sent = has_sent || moved;
    if (!outcome.ok()) {
      state.refusal = outcome.status();
      if (!http_.transient() || !has_sent) return state.refusal;
    }
    attempt = moved ? 0 : attempt + 1;
    const bool at_once = moved || (outcome.ok() && *outcome == Outcome::again);
    if (!at_once && attempt < kTries) CARAT_TRY(wait_to_retry(attempt - 1));
  }
  return state.refusal.ok() ? io_error("the hub sends other parts of the file than it is asked for") : state.refusal;
}

Status HubClient::fetch(const std::string& repository, const std::string& commit, HubFile& file,
                        const std::string& path) {
  const std::string what = fmt::format("hf:{}:{}", repository, file.path);
  Fetching state;
  CARAT_ASSIGN(state.partial, PartialFile::open(path));
  PartialFile& partial = state.partial;
  CARAT_TRY(in_context(fetch_bytes(file_url(repository, commit, file.path), file, state), what));
  if (file.bytes > 0 && partial.bytes() != file.bytes) {
    return io_error(fmt::format("{}: {} of {} bytes came; pull again to go on", what, partial.bytes(), file.bytes));
  }
  CARAT_TRY(partial.sync());
  Status verified = verify(path, file);
  if (!verified.ok()) {
    CARAT_TRY(partial.clear());
    return std::move(verified).with_context(what);
  }
  return partial.finish();
}

Status verify(const std::string& path, const HubFile& file) {
  CARAT_ASSIGN(const File whole, File::open(path));
  CARAT_ASSIGN(const std::string found, file.sha256.empty() ? git_blob_id(whole) : sha256(whole));
  const std::string& wanted = file.sha256.empty() ? file.git_id : file.sha256;
  if (found == wanted) return ok_status();
  return io_error(fmt::format("what came has the {} {}, it should be {}; it was deleted",
                              file.sha256.empty() ? "git id" : "SHA-256", found, wanted));
}

}  // namespace carat
