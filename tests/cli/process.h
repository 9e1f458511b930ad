// Runs the real binary and sees what its users see: exit code, standard output and error, and what it used.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace carat::test {

struct Outcome {
  int code = -1;   ///< exit code; -1 when a signal or the timeout ended it
  int signal = 0;  ///< that ended it
  bool timed_out = false;
  std::string out;
  std::string err;
};

struct ProcessOptions {
  std::string input;                     ///< standard input
  std::vector<std::string> environment;  ///< "NAME=value", on top of the test's own without CARAT_… and NO_COLOR
  std::string out_path;                  ///< standard output goes there instead
  bool closed_output = false;            ///< standard output is a pipe that nobody reads
  std::uint64_t file_limit = 0;          ///< largest file it may write, bytes: a disk that is full
  std::uint64_t mapping_limit = 0;       ///< RLIMIT_AS, bytes (ulimit -v)
  std::uint64_t data_limit = 0;          ///< RLIMIT_DATA, bytes (ulimit -d)
  int seconds = 120;
  std::string program = CARAT_BINARY;                                                ///< what is run
  std::function<void(pid_t, const std::string& out, const std::string& err)> watch;  ///< after each read
};

/// A folder that goes when the test does.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "carat-cli-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::string path_;
};

namespace process_detail {

/// Measured ceilings are kept there, apart from the user's; one for the whole test program.
inline const TemporaryFolder& cache() {
  static const TemporaryFolder folder;
  return folder;
}

inline void set_environment(const ProcessOptions& options) {
  for (const char* name : {"CARAT_ISA", "CARAT_MEMORY", "CARAT_THREADS", "CARAT_CTX", "CARAT_JSON", "NO_COLOR"}) {
    unsetenv(name);
  }
  setenv("XDG_CACHE_HOME", (cache() / "").c_str(), 1);
  setenv("XDG_STATE_HOME", (cache() / "state").c_str(), 1);
  for (const std::string& one : options.environment) {
    const std::size_t equals = one.find('=');
    setenv(one.substr(0, equals).c_str(), one.substr(equals + 1).c_str(), 1);
  }
}

[[noreturn]] inline void start(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  set_environment(options);
  const auto set_limit = [](auto resource, std::uint64_t bytes) {
    const rlimit limit{bytes, bytes};
    if (bytes > 0) setrlimit(resource, &limit);
  };
  set_limit(RLIMIT_FSIZE, options.file_limit);
  set_limit(RLIMIT_AS, options.mapping_limit);
  set_limit(RLIMIT_DATA, options.data_limit);
  std::vector<char*> argv{const_cast<char*>(options.program.c_str())};
  for (const std::string& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

}  // namespace process_detail

/// Runs carat with these arguments until it ends or its time is over.
inline Outcome run_carat(const std::vector<std::string>& arguments, const ProcessOptions& options = {}) {
  signal(SIGPIPE, SIG_IGN);
  int in[2];
  int out[2];
  int err[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) return {};
  process_detail::cache();  // made by the parent, which removes it
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGPIPE, SIG_DFL);
    dup2(in[0], 0);
    dup2(options.out_path.empty() ? out[1] : open(options.out_path.c_str(), O_WRONLY), 1);
    dup2(err[1], 2);
    process_detail::start(arguments, options);
  }
  close(in[0]);
  close(out[1]);
  close(err[1]);
  if (options.closed_output) close(std::exchange(out[0], -1));
  fcntl(in[1], F_SETFL, O_NONBLOCK);
  Outcome run;
  std::size_t written = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  pollfd waiting[3] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}, {in[1], POLLOUT, 0}};
  while (waiting[0].fd >= 0 || waiting[1].fd >= 0) {
    if (written == options.input.size() && waiting[2].fd >= 0) close(std::exchange(waiting[2].fd, -1));
    poll(waiting, 3, 20);
    for (int i = 0; i < 2; ++i) {
      if (waiting[i].fd < 0 || (waiting[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      char block[65536];
      const ssize_t got = read(waiting[i].fd, block, sizeof block);
      if (got > 0) (i == 0 ? run.out : run.err).append(block, static_cast<std::size_t>(got));
      if (got == 0) close(std::exchange(waiting[i].fd, -1));
    }
    if (waiting[2].fd >= 0 && waiting[2].revents != 0) {
      const ssize_t put = write(waiting[2].fd, options.input.data() + written, options.input.size() - written);
      if (put > 0) written += static_cast<std::size_t>(put);
      if (put < 0 && errno != EAGAIN) close(std::exchange(waiting[2].fd, -1));
    }
    if (options.watch) options.watch(child, run.out, run.err);
    if (std::chrono::steady_clock::now() > deadline) {
      run.timed_out = true;
      kill(child, SIGKILL);
      break;
    }
  }
  for (const pollfd& one : waiting) {
    if (one.fd >= 0) close(one.fd);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) run.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) run.signal = WTERMSIG(status);
  return run;
}

inline std::string tiny(const std::string& name = "gemma3-gqa42") {
  return std::string(CARAT_FIXTURES) + "/tiny/" + name + "/model.gguf";
}

/// The path of a real model; empty when it has not been fetched.
inline std::string real_model(const std::string& name) {
  const char* folder = std::getenv("CARAT_MODELS");
  const char* home = std::getenv("HOME");
  const std::string path =
      (folder != nullptr ? std::string(folder) : std::string(home == nullptr ? "" : home) + "/.cache/carat/models") +
      "/" + name + ".gguf";
  return std::filesystem::exists(path) ? path : "";
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream stream;
  stream << file.rdbuf();
  return stream.str();
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// The tiny model with a chat template put in as its first key. The new bytes are a multiple of the alignment, so that
/// every offset stays right.
inline std::string tiny_with_template(
    std::string value = "{% for message in messages %}{{ message['content'] }}{% endfor %}") {
  const std::string key = "tokenizer.chat_template";
  while ((8 + key.size() + 4 + 8 + value.size()) % 32 != 0) value.insert(value.size() - 2, " ");  // before its last %}
  const auto number = [](std::uint64_t n, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(n >> (8 * i));
    return text;
  };
  std::string file = read_bytes(tiny());
  file[16] = static_cast<char>(file[16] + 1);  // the number of keys
  return file.insert(24, number(key.size(), 8) + key + number(8, 4) + number(value.size(), 8) + value);
}

/// The tiny model without a tokenizer: the key that holds its pieces has another name.
inline std::string tiny_without_tokenizer() {
  std::string file = read_bytes(tiny());
  return file.replace(file.find("tokenizer.ggml.tokens"), 21, "tokenizer.ggml.absent");
}

/// One line, at most, that starts as carat's errors do and has no trace of the logger's own form.
inline void expect_one_error(const Outcome& run, const std::string& part) {
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_TRUE(run.err.starts_with("carat: error: ")) << run.err;
  EXPECT_EQ(run.err.find("[error]"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << run.err;
  EXPECT_EQ(run.err.find('\033'), std::string::npos) << "colour without a terminal";
}

/// Exit code, nothing on stdout, and one error line with this part.
inline void expect_refused(const Outcome& run, int code, const std::string& part) {
  EXPECT_FALSE(run.timed_out);
  EXPECT_EQ(run.code, code) << "signal " << run.signal << "\n" << run.err;
  EXPECT_EQ(run.out, "");
  expect_one_error(run, part);
}

inline nlohmann::json parse(const Outcome& run) {
  EXPECT_EQ(run.code, 0) << "signal " << run.signal << "\n" << run.err;
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1) << "one line of JSON: " << run.out.substr(0, 200);
  auto json = nlohmann::json::parse(run.out, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << run.out.substr(0, 200);
  return json;
}

}  // namespace carat::test
