// A chat that remembers; Ctrl-C ends an answer:  chat MODEL [MEMORY]
#include <carat/carat.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

namespace {
carat::Cancellation stop;
void on_interrupt(int) { stop.cancel(); }  // may be called from a signal handler
}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: chat MODEL [MEMORY]\n");
    return 2;
  }
  auto model = carat::Model::open(argv[1], carat::Options().memory(argc > 2 ? argv[2] : "50%"));
  if (!model) {
    std::fprintf(stderr, "chat: %s\n", model.error().text.c_str());
    return 1;
  }
  std::signal(SIGINT, on_interrupt);

  std::vector<carat::Message> messages;
  std::string line;
  while (std::printf("> "), std::fflush(stdout), std::getline(std::cin, line)) {
    if (line.empty()) continue;
    messages.push_back({"user", line});
    stop.reset();
    auto request = carat::Request::chat(messages).max_tokens(256).cancellation(stop);
    request.on_chunk([](const carat_chunk& chunk) {
      std::fwrite(chunk.text, 1, chunk.text_bytes, stdout);
      return std::fflush(stdout) == 0;
    });
    const auto answer = model->generate(request);
    std::printf("\n");
    if (!answer) {
      std::fprintf(stderr, "chat: %s\n", answer.error().text.c_str());
      messages.pop_back();
      continue;
    }
    messages.push_back({"assistant", answer->text});
  }
}
