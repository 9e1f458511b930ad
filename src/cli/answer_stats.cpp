// What is told of an answer after it.
#include <fmt/format.h>

#include "cli/answer.h"
#include "cli/command.h"

namespace carat::cli {
namespace {

/// What the answers' tokens read of a head in two planes; nothing where none did.
std::string head_text(const Session& session) {
  const HeadReads& reads = session.decoder().head_reads();
  if (reads.rows == 0) return "";
  const double rows = static_cast<double>(reads.rows);
  const double whole = static_cast<double>(session.weights().head.layout.bytes());
  return fmt::format("head: {} tokens read {:.1f}% of it, {:.0f} panels of {} whole\n", reads.rows,
                     100 * static_cast<double>(reads.bytes) / rows / whole, static_cast<double>(reads.panels) / rows,
                     session.weights().head.layout.panels());
}

/// What was read of weights that do not stay in memory.
std::string streamed_text(const Session& session) {
  const WeightStream* stream = session.weights().stream.get();
  if (stream == nullptr) return "";
  return fmt::format("weights: {} read from a file, {} stay in memory\n", human_bytes(stream->bytes_read()),
                     human_bytes(session.plan().weights.resident_bytes));
}

std::string drafts_text(const Answer& answer) {
  if (answer.drafts.drafted == 0) return "";
  return fmt::format("{} steps, {} of {} drafted tokens held\n", answer.drafts.steps, answer.drafts.accepted,
                     answer.drafts.drafted);
}

}  // namespace

std::string stats_text(Session& session, const Answer& answer) {
  const std::string known =
      answer.cached_tokens > 0 ? fmt::format(" ({} known from before)", answer.cached_tokens) : "";
  return fmt::format(
      "prompt {} tokens{} at {:.0f} tokens/s, answer {} tokens at {:.1f} tokens/s, first token after "
      "{:.3f} s, load {:.3f} s ({}, {} threads)\n{}{}",
      answer.prompt_tokens, known, answer.prefill_rate(), answer.tokens.size(), answer.decode_rate(),
      answer.first_token_seconds, session.load_seconds(), session.kernels().name, session.plan().ask.threads,
      head_text(session) + streamed_text(session) + drafts_text(answer), memory_table(session));
}

}  // namespace carat::cli
