// The progress bar of `ejk build`.
#include "store/build_progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace ejk::tools {
namespace {

using Kind = store::BuildEvent::Kind;
using Clock = std::chrono::steady_clock;
constexpr auto shortest_redraw = std::chrono::milliseconds(50);

std::size_t width_of(std::FILE* out) {
  winsize size{};
  return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

const char* word_of(Kind kind) {
  switch (kind) {
    case Kind::started:
      return "compiling";
    case Kind::built:
      return "built";
    case Kind::copied:
      return "copied";
    case Kind::present:
      return "present";
    case Kind::failed:
      return "FAILED";
    case Kind::skipped:
      return "skipped";
  }
  return "";
}

}  // namespace

BuildProgress::BuildProgress(std::FILE* out) : BuildProgress(out, isatty(fileno(out)) == 1) {}
BuildProgress::BuildProgress(std::FILE* out, bool terminal) : out_(out), terminal_(terminal), start_(Clock::now()) {}
BuildProgress::~BuildProgress() { finish(); }

void BuildProgress::operator()(const store::BuildEvent& event) {
  count(event);
  const bool stays = event.kind == Kind::failed;
  if (!terminal_ || stays) print_step(event);
  if (terminal_) draw(stays || event.done == event.total);
}

void BuildProgress::count(const store::BuildEvent& event) {
  state_.done = event.done;
  state_.total = event.total;
  state_.elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  if (event.kind == Kind::started) return state_.compiling.push_back(event.id);
  std::erase(state_.compiling, event.id);
  if (event.kind == Kind::built || event.kind == Kind::failed) ++state_.compiled;
}

// "[12/24] built mean_pooling.a, 0.4 s"; what was there already, or is copied, is not worth a line.
void BuildProgress::print_step(const store::BuildEvent& event) {
  if (event.kind == Kind::started || event.kind == Kind::present || event.kind == Kind::copied) return;
  clear();
  auto line = fmt::format("[{}/{}] {} {}", event.done, event.total, word_of(event.kind), event.id);
  if (event.seconds > 0) line += fmt::format(", {:.1f} s", event.seconds);
  if (!event.text.empty()) line += (event.kind == Kind::failed ? ":\n" : ": ") + event.text;
  if (line.back() != '\n') line += '\n';
  std::fputs(line.c_str(), out_);
  std::fflush(out_);
}

void BuildProgress::draw(bool now) {
  const auto time = Clock::now();
  if (!now && drawn_ && time - drawn_at_ < shortest_redraw) return;
  drawn_at_ = time;
  drawn_ = true;
  std::fprintf(out_, "\r\033[K%s", progress_line(state_, width_of(out_)).c_str());
  std::fflush(out_);
}

void BuildProgress::clear() {
  if (drawn_) std::fputs("\r\033[K", out_);
  drawn_ = false;
}

void BuildProgress::finish() {
  clear();
  std::fflush(out_);
}

}  // namespace ejk::tools
