#include "cli/line_editor.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/log.h"
#include "os/file.h"
#include "os/signals.h"
#include "text/utf8.h"

namespace carat::cli {
namespace {

constexpr int kHistoryLines = 1000;
/// Of the history file, the last of which are kept; a larger one is written anew.
constexpr std::size_t kHistoryBytes = 28 << 10;
/// Longer lines lose what comes behind: the editor's memory is in no plan. Longer texts come by -f.
constexpr std::size_t kMostCharacters = 16384;

/// The functions of libedit.so.2 that are used here.
struct EditLibrary {
  decltype(&::el_init) init = nullptr;
  decltype(&::el_end) end = nullptr;
  decltype(&::el_set) set = nullptr;
  decltype(&::el_gets) gets = nullptr;
  decltype(&::el_resize) resize = nullptr;
  decltype(&::el_source) source = nullptr;
  decltype(&::history_init) history_init = nullptr;
  decltype(&::history_end) history_end = nullptr;
  decltype(&::history) history = nullptr;

  bool load() {
    void* library = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) library = dlopen("libedit.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    const auto find = [library](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return find("el_init", init) && find("el_end", end) && find("el_set", set) && find("el_gets", gets) &&
           find("el_resize", resize) && find("el_source", source) && find("history_init", history_init) &&
           find("history_end", history_end) && find("history", history);
  }
};

volatile std::sig_atomic_t window_changed = 0;
volatile std::sig_atomic_t continued = 0;

/// While it exists, a new size of the terminal and a return from Ctrl-Z end a waiting read.
class TerminalSignals {
 public:
  TerminalSignals() {
    struct sigaction action {};
    sigemptyset(&action.sa_mask);
    action.sa_handler = [](int) { window_changed = 1; };
    sigaction(SIGWINCH, &action, &window_before_);
    action.sa_handler = [](int) { continued = 1; };
    sigaction(SIGCONT, &action, &continue_before_);
  }
  ~TerminalSignals() {
    sigaction(SIGWINCH, &window_before_, nullptr);
    sigaction(SIGCONT, &continue_before_, nullptr);
  }
  TerminalSignals(const TerminalSignals&) = delete;
  TerminalSignals& operator=(const TerminalSignals&) = delete;

 private:
  struct sigaction window_before_ {};
  struct sigaction continue_before_ {};
};

/// Waits for standard input with these signals let through, and blocked before and after: one that comes between the
/// look at its flag and the wait would otherwise be noticed with the next key.
class InputWait {
 public:
  InputWait() {
    sigset_t ours;
    sigemptyset(&ours);
    for (const int signal : {SIGINT, SIGTERM, SIGWINCH, SIGCONT}) sigaddset(&ours, signal);
    pthread_sigmask(SIG_BLOCK, &ours, &before_);
  }
  ~InputWait() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  InputWait(const InputWait&) = delete;
  InputWait& operator=(const InputWait&) = delete;

  /// False: a signal came first.
  bool ready() const {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return ppoll(&input, 1, nullptr, &before_) >= 0;
  }

 private:
  sigset_t before_;
};

LineEditor::State* current = nullptr;  ///< of libedit's callbacks, which are given nothing of ours

/// Characters are UTF-8 here, whatever the environment says.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineEditor::State {
  EditLibrary edit;
  EditLine* line = nullptr;
  History* history = nullptr;
  std::string prompt;
  std::string history_file;
  std::string bytes;           ///< of a character that has begun
  std::size_t characters = 0;  ///< of this line

  ~State() {
    current = nullptr;
    if (line != nullptr) edit.end(line);
    if (history != nullptr) edit.history_end(history);
  }

  void add(const std::string& text) {
    HistEvent event{};
    edit.history(history, &event, H_ENTER, text.c_str());
  }

  void load_history();
  void append_to_file(const std::string& text) const;
  int read_character(wchar_t* out);
};

/// One character of standard input for libedit: 1, or 0 at the end of input, or -1 with errno after a signal.
int LineEditor::State::read_character(wchar_t* out) {
  const InputWait wait;
  while (true) {
    if (interrupted_by_user()) {
      errno = EINTR;
      return -1;
    }
    if (continued != 0) {
      continued = 0;
      edit.set(line, EL_PREP_TERM, 1);
      edit.set(line, EL_REFRESH);
    }
    if (window_changed != 0) {
      window_changed = 0;
      edit.resize(line);
      edit.set(line, EL_REFRESH);
    }
    if (!wait.ready()) continue;
    char byte = 0;
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return static_cast<int>(got);
    // Ctrl-D that was typed before the editor had the terminal: the driver's mark of the end is read as a zero byte.
    if (byte == 0 && characters == 0) return 0;
    bytes += byte;
    const DecodedCharacter character = decode_character(bytes);
    if (character.cut) continue;
    bytes.clear();
    *out = static_cast<wchar_t>(character.code);
    const bool ends = *out == L'\n' || *out == L'\r';
    if (++characters <= kMostCharacters || ends || *out < L' ' || *out == 0x7F) return 1;
  }
}

void LineEditor::State::load_history() {
  if (history_file.empty()) return;
  std::string text;
  const Status read = read_text(history_file, std::uint64_t{64} << 20, [&](std::string_view part) {
    text += part;
    if (text.size() > 2 * kHistoryBytes) text.erase(0, text.size() - kHistoryBytes);
    return ok_status();
  });
  if (!read.ok()) return;
  const bool cut = text.size() > kHistoryBytes;
  if (cut) text.erase(0, text.find('\n', text.size() - kHistoryBytes) + 1);
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    add(text.substr(begin, end - begin));
  }
  if (!cut) return;
  // What failed here fails again at the next start: nothing is lost.
  if (auto file = AtomicFile::create(history_file); file.ok() && file->write(text).ok()) (void)file->commit();
}

void LineEditor::State::append_to_file(const std::string& text) const {
  if (history_file.empty()) return;
  const int file = ::open(history_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return;
  const std::string whole = text + "\n";
  [[maybe_unused]] const ssize_t put = ::write(file, whole.data(), whole.size());
  close(file);
}

LineEditor::LineEditor(std::unique_ptr<State> state) : state_(std::move(state)) {}
LineEditor::~LineEditor() = default;

std::unique_ptr<LineEditor> LineEditor::open(const std::string& history_file) {
  auto state = std::make_unique<State>();
  EditLibrary& edit = state->edit;
  if (!edit.load()) return nullptr;
  use_utf8();
  state->line = edit.init("carat", stdin, stdout, stderr);
  state->history = edit.history_init();
  if (state->line == nullptr || state->history == nullptr) return nullptr;
  EditLine* line = state->line;
  HistEvent event{};
  edit.history(state->history, &event, H_SETSIZE, kHistoryLines);
  edit.history(state->history, &event, H_SETUNIQUE, 1);
  current = state.get();
  edit.set(
      line, EL_PROMPT, +[](EditLine*) { return current->prompt.data(); });
  edit.set(
      line, EL_GETCFN, +[](EditLine*, wchar_t* out) { return current->read_character(out); });
  edit.set(line, EL_SIGNAL, 0);  // os/signals.h has them
  edit.set(line, EL_EDITOR, "emacs");
  edit.set(line, EL_HIST, edit.history, state->history);
  edit.set(line, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  edit.source(line, nullptr);  // ~/.editrc
  state->history_file = history_file;
  state->load_history();
  return std::unique_ptr<LineEditor>(new LineEditor(std::move(state)));
}

Result<std::optional<std::string>> LineEditor::next(const std::string& prompt) {
  State& state = *state_;
  state.prompt = prompt;
  state.characters = 0;
  state.bytes.clear();
  const TerminalSignals signals;
  state.edit.resize(state.line);
  // Before the prompt can be seen: what is typed at it is the editor's, not the terminal driver's.
  state.edit.set(state.line, EL_PREP_TERM, 1);
  int count = 0;
  errno = 0;
  const char* text = state.edit.gets(state.line, &count);
  if (interrupted_by_user()) return interrupted("");
  if (text == nullptr && count < 0) {
    return io_error(fmt::format("standard input: cannot read: {}", std::strerror(errno)));
  }
  if (text == nullptr || count == 0) return std::optional<std::string>();
  std::string typed(text, static_cast<std::size_t>(count));
  while (typed.ends_with('\n') || typed.ends_with('\r')) typed.pop_back();
  if (state.characters > kMostCharacters) {
    log_note(fmt::format("the line was cut at {} characters; longer texts: --chat -f FILE", kMostCharacters));
  }
  return std::optional(std::move(typed));
}

void LineEditor::remember(const std::string& text) {
  if (text.empty() || text.front() == ' ') return;
  state_->add(text);
  state_->append_to_file(text);
}

std::string chat_history_file() {
  namespace fs = std::filesystem;
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  fs::path folder;
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home == '/') {
    folder = fs::path(home) / ".local/state";
  } else {
    return "";
  }
  folder /= "carat";
  std::error_code error;
  if (fs::create_directories(folder, error)) fs::permissions(folder, fs::perms::owner_all, error);  // others read none
  return error ? "" : (folder / "history").string();
}

}  // namespace carat::cli
