// The progress bar of `ejk tune`.
#include "tune/tune_progress.hpp"

#include <sys/ioctl.h>

#include <algorithm>

#include "command_line/progress_line.hpp"
#include "tune/stopwatch.hpp"
#include "tune/tune_report.hpp"

namespace ejk::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto shortest_redraw = std::chrono::milliseconds(50);

std::size_t width_of(std::FILE* out) {
  winsize size{};
  return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string verdict_of(const Trial& trial) {
  if (trial.state != Trial::State::measured) return fmt::format("{}: {}", name_of(trial.state), trial.reason);
  return fmt::format("{:.4g} us, {:.3f} of the default's time", median(trial.samples_us), median(trial.ratios));
}

}  // namespace

// At the pace of the calls done, but no longer than the budget.
double tune_seconds_left(const TuneProgressState& state) {
  const double of_budget = std::max(0.0, state.budget - state.elapsed);
  const double done = static_cast<double>(state.done) + std::clamp(state.of_call, 0.0, 1.0);
  if (state.done == 0 || done <= 0) return of_budget;
  return std::min(of_budget, state.elapsed / done * (static_cast<double>(state.total) - done));
}

std::string tune_progress_line(const TuneProgressState& state, std::size_t width) {
  constexpr std::size_t bar_width = 20;
  const double done = static_cast<double>(state.done) + std::clamp(state.of_call, 0.0, 1.0);
  const double part = state.total == 0 ? 1 : std::min(1.0, done / static_cast<double>(state.total));
  const auto filled = static_cast<std::size_t>(part * bar_width);
  auto line =
      fmt::format("[{}{}] {}/{} calls {:3.0f}%  elapsed {}  left {}  {}", std::string(filled, '#'), std::string(bar_width - filled, '.'),
                  state.done, state.total, 100 * part, duration_text(state.elapsed), duration_text(tune_seconds_left(state)), state.text);
  const auto room = width > 1 ? width - 1 : 1;
  if (line.size() > room) line = room > 3 ? line.substr(0, room - 3) + "..." : line.substr(0, room);
  return line;
}

TuneProgress::TuneProgress(std::FILE* out, bool terminal, std::size_t total, double budget)
    : out_(out), terminal_(terminal), start_(Clock::now()) {
  state_.total = total;
  state_.budget = budget;
}

TuneProgress::~TuneProgress() { clear(); }

void TuneProgress::begin(const std::string& name) {
  name_ = name;
  state_.of_call = 0;
  state_.text = name;
  draw(true);
}

void TuneProgress::step(const SearchProgress& progress) {
  state_.of_call = progress.of > 0 ? progress.seconds / progress.of : 0;
  state_.text = fmt::format("{}: {}", name_, progress.step);
  if (progress.best_ratio < 1) state_.text += fmt::format(" (best so far {:.3f})", progress.best_ratio);
  draw(false);
}

void TuneProgress::config(const Trial& trial) {
  if (!terminal_ || trial.state == Trial::State::rejected)
    line(fmt::format("  {}: {}: {}", name_, config_words(trial.config, {}), verdict_of(trial)));
}

void TuneProgress::end(const std::string& verdict) {
  ++state_.done;
  line(fmt::format("[{}/{}] {}: {}", state_.done, state_.total, name_, verdict));
}

void TuneProgress::line(const std::string& text) {
  clear();
  std::fprintf(out_, "%s\n", text.c_str());
  std::fflush(out_);
}

void TuneProgress::draw(bool now) {
  state_.elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  if (!terminal_ || (!now && drawn_ && Clock::now() - drawn_at_ < shortest_redraw)) return;
  drawn_at_ = Clock::now();
  drawn_ = true;
  std::fprintf(out_, "\r\033[K%s", tune_progress_line(state_, width_of(out_)).c_str());
  std::fflush(out_);
}

void TuneProgress::clear() {
  if (drawn_) std::fputs("\r\033[K", out_);
  drawn_ = false;
}

}  // namespace ejk::tools
