#include "cli/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "base/log.h"
#include "cli/text_input.h"
#include "os/file.h"
#include "os/signals.h"
#include "os/terminal.h"

namespace carat::cli {
namespace {

constexpr std::string_view kHelp =
    "  /help        this list\n"
    "  /reset       begin a new conversation\n"
    "  /save FILE   write the conversation: as JSON when FILE ends in .json, else as text\n"
    "  /memory      what is planned and in use\n"
    "  /stats       speed of the last answer, and memory\n"
    "  /exit        leave, as Ctrl-D does\n"
    "  A message that begins with a slash is written with two. A line that ends in \\ goes on in the next one.\n"
    "  Ctrl-C ends an answer; at the prompt it leaves. Up and down recall lines, Ctrl-R searches them; a line that\n"
    "  begins with a space is not kept.\n";

/// "/save notes.txt" → "save", "notes.txt"
struct Command {
  std::string name;
  std::string argument;
};

Command parse_command(const std::string& line) {
  const std::size_t space = line.find(' ');
  Command command{line.substr(1, space == std::string::npos ? space : space - 1), ""};
  if (space == std::string::npos) return command;
  const std::size_t begin = line.find_first_not_of(' ', space);
  const std::size_t end = line.find_last_not_of(' ');
  if (begin != std::string::npos) command.argument = line.substr(begin, end - begin + 1);
  return command;
}

class Chat {
 public:
  Chat(Session& session, Engine& engine, const ChatSetup& setup, ChatTemplate chat, LineEditor* editor)
      : session_(session), engine_(engine), setup_(setup), template_(std::move(chat)), editor_(editor) {
    reset();
  }

  Status run() {
    if (prompting_ && !setup_.quiet) {
      fmt::print(stderr, "context of {} tokens; /help lists what can be typed\n", session_.kv().context());
    }
    while (!leaving_) {
      CARAT_ASSIGN(const std::optional<std::string> line, next_message());
      if (!line) break;
      if (line->find_first_not_of(' ') == std::string::npos) continue;
      if (editor_ != nullptr && line->find('\n') == std::string::npos) editor_->remember(*line);
      CARAT_TRY(line->starts_with("/") && !line->starts_with("//") ? obey(parse_command(*line)) : answer(*line));
    }
    return prompting_ && !leaving_ ? write_stdout("\n") : ok_status();
  }

 private:
  void reset() {
    messages_ = chat_opening(setup_.system);
    rooms_.clear();
    opening_ = messages_.size();
  }

  Result<std::optional<std::string>> next_line(const std::string& prompt) {
    if (editor_ != nullptr) return editor_->next(prompt);
    if (prompting_) CARAT_TRY(write_stdout(prompt));
    return reader_.next();
  }

  /// A line, and those that it is continued with.
  Result<std::optional<std::string>> next_message() {
    CARAT_ASSIGN(std::optional<std::string> message, next_line("> "));
    while (prompting_ && message && message->ends_with('\\')) {
      message->back() = '\n';
      CARAT_ASSIGN(const std::optional<std::string> more, next_line(". "));
      if (!more) break;
      *message += *more;
    }
    return message;
  }

  Status obey(const Command& command) {
    if (command.name == "help") {
      fmt::print(stderr, "{}", kHelp);
    } else if (command.name == "reset") {
      reset();
    } else if (command.name == "memory") {
      fmt::print(stderr, "{}", memory_table(session_));
    } else if (command.name == "stats") {
      fmt::print(stderr, "{}", stats_.empty() ? "no answer yet\n" : stats_);
    } else if (command.name == "save") {
      if (const Status saved = save(command.argument); !saved.ok()) log_error(saved.message());
    } else if (command.name == "exit" || command.name == "quit") {
      leaving_ = true;
    } else {
      log_error(fmt::format("there is no /{}; /help lists what there is, a message begins with // for one slash",
                            command.name));
    }
    return ok_status();
  }

  Status save(const std::string& path) {
    if (path.empty()) return invalid("/save: give a file, as in /save chat.txt");
    std::error_code error;
    if (std::filesystem::exists(std::filesystem::symlink_status(path, error)) && !saved_.contains(path)) {
      return invalid(fmt::format("/save: {} is there already; give another name", path));
    }
    CARAT_ASSIGN(AtomicFile file, AtomicFile::create(path));
    if (path.ends_with(".json")) {
      auto messages = nlohmann::ordered_json::array();
      for (const ChatMessage& message : messages_) {
        messages.push_back({{"role", message.role}, {"content", message.content}});
      }
      CARAT_TRY(file.write(json_text({{"model", session_.file().path}, {"messages", std::move(messages)}}) + "\n"));
    } else {
      for (const ChatMessage& message : messages_) {
        CARAT_TRY(file.write(fmt::format("{}:\n{}\n\n", message.role, message.content)));
      }
    }
    CARAT_TRY(file.commit());
    saved_.insert(path);
    fmt::print(stderr, "{} messages in {}\n", messages_.size(), path);
    return ok_status();
  }

  void drop_oldest_turn() {
    const auto begin = messages_.begin() + static_cast<long>(opening_);
    messages_.erase(begin, begin + 2);
  }

  /// The tokens of the conversation; without its oldest turns where that was asked for and needed.
  Result<InputIds> prompt() {
    const std::uint32_t context = session_.kv().context();
    // An answer wants room, too.
    const std::uint32_t most = context - std::min(context / 4, 512U);
    std::size_t dropped = 0;
    while (true) {
      CARAT_ASSIGN(InputIds ids, encode_chat(session_, template_, messages_));
      if (setup_.truncate_left && ids.ids.size() > most && messages_.size() > opening_ + 2) {
        drop_oldest_turn();
        ++dropped;
        continue;
      }
      if (dropped > 0) log_note(fmt::format("the context is full: the {} oldest turns were forgotten", dropped));
      if (setup_.truncate_left) truncate_left(ids.ids, context, session_.tokenizer());
      if (ids.ids.size() <= context) return ids;
      return invalid(
          fmt::format("the conversation has {} tokens, the context {}: /save it and /reset, or start with a "
                      "larger --ctx, or with --overflow truncate-left to forget the oldest turns",
                      ids.ids.size(), context));
    }
  }

  Result<Answer> ask(std::size_t typed_bytes) {
    CARAT_ASSIGN(AnswerOptions asked, setup_.ask());
    Profile* const profile = session_.decoder().profile();
    if (profile != nullptr) profile->begin();
    {
      const ProfileClock clock(profile, ProfileModule::tokenizer);
      if (profile != nullptr) profile->add_bytes(ProfileModule::tokenizer, typed_bytes);
      CARAT_ASSIGN(InputIds ids, prompt());
      asked.prompt_room = std::move(ids.room);
      asked.request.prompt = std::move(ids.ids);
    }
    return make_answer(session_, engine_, std::move(asked));
  }

  Status answer(const std::string& line) {
    messages_.push_back({"user", clean_text(line.starts_with("//") ? line.substr(1) : line)});
    auto made = ask(line.size());
    clear_interrupts();
    if (!made.ok()) {
      if (made.status().code() == StatusCode::io) return std::move(made).status();
      log_error(made.status().message());
      messages_.pop_back();
      return ok_status();
    }
    CARAT_TRY(write_stdout("\n"));
    stats_ = stats_text(session_, *made);
    if (setup_.stats || made->interrupted) fmt::print(stderr, "{}", stats_);
    if (made->reason == FinishReason::length && made->prompt_tokens + made->tokens.size() > session_.kv().context()) {
      log_note("the answer ends because the context is full: /reset begins a new conversation, --ctx makes room");
    }
    CARAT_TRY(setup_.answered(*made));
    messages_.push_back({"assistant", std::move(made->text)});
    rooms_.push_back(std::move(made->text_room));
    return ok_status();
  }

  Session& session_;
  Engine& engine_;
  const ChatSetup& setup_;
  const ChatTemplate template_;
  LineEditor* editor_;
  LineReader reader_{STDIN_FILENO};
  const bool prompting_ = is_terminal(STDOUT_FILENO);
  std::vector<Reservation> rooms_;  ///< of long answers among the messages
  std::vector<ChatMessage> messages_;
  std::size_t opening_ = 0;  ///< messages that the conversation began with
  std::string stats_;        ///< of the last answer
  std::set<std::string> saved_;
  bool leaving_ = false;
};

}  // namespace

std::unique_ptr<LineEditor> open_line_editor() {
  if (!is_terminal(STDIN_FILENO) || !is_terminal(STDOUT_FILENO)) return nullptr;
  return LineEditor::open(chat_history_file());
}

std::vector<ChatMessage> chat_opening(const std::string& system) {
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", clean_text(system)});
  return messages;
}

Status run_chat(Session& session, Engine& engine, const ChatSetup& setup, LineEditor* editor) {
  CARAT_ASSIGN(ChatTemplate chat, session_template(session));
  return Chat(session, engine, setup, std::move(chat), editor).run();
}

}  // namespace carat::cli
