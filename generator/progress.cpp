// Looks at the clock for each image, which costs nothing beside making one.
#include "generator/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

namespace ejk::generator {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds first_after{1000}, bar_every{200}, line_every{10'000};
constexpr std::size_t width = 30;

}  // namespace

Progress::Progress(std::FILE* to) : to_(to), terminal_(::isatty(::fileno(to)) != 0), begun_(Clock::now()), next_(begun_ + first_after) {
  if (!terminal_) next_ = begun_ + line_every;
}

Progress::~Progress() {
  if (terminal_ && shown_) fmt::print(to_, "\r\033[K");
  std::fflush(to_);
}

double Progress::seconds_left(std::size_t done, std::size_t total) const {
  const double passed = std::chrono::duration<double>(Clock::now() - begun_).count();
  return done == 0 ? 0 : passed * static_cast<double>(total - done) / static_cast<double>(done);
}

void Progress::bar(std::size_t done, std::size_t total) const {
  if (total == 0) {
    fmt::print(to_, "\r\033[K{} images found", done);
  } else {
    const std::string full(width * done / total, '#');
    fmt::print(to_, "\r\033[K[{:.<{}}] {} of {} images, {:.0f} s left", full, width, done, total, seconds_left(done, total));
  }
  std::fflush(to_);
}

void Progress::line(std::size_t done, std::size_t total) const {
  if (total == 0)
    fmt::print(to_, "ejk-gen: {} images found\n", done);
  else
    fmt::print(to_, "ejk-gen: {} of {} images, {:.0f} s left\n", done, total, seconds_left(done, total));
}

void Progress::show(std::size_t done, std::size_t total) {
  const auto now = Clock::now();
  if (total != total_) {  // from here on they are rendered
    total_ = total;
    begun_ = now;
  }
  if (now < next_) return;
  next_ = now + (terminal_ ? bar_every : line_every);
  shown_ = true;
  terminal_ ? bar(done, total) : line(done, total);
}

}  // namespace ejk::generator
