// Turns of threads, meetings, and what is wrong when nobody can go on.
#include "emulator/block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <stdexcept>

namespace ejk::simt {
namespace {

std::size_t index_of(Wait wait) { return static_cast<std::size_t>(wait); }

// "0-3, 7, 9-10"
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + (last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]));
    i = last + 1;
  }
  return text;
}

}  // namespace

const char* word_of(Wait wait) {
  static constexpr const char* words[] = {
      "nothing",        "sync_block",         "any_in_block",      "grid_barrier",          "sync_warp",     "any_in_warp",
      "shuffle_xor",    "shuffle_down",       "shuffle",           "permute_wave",          "ballot_wave",   "exchange_wave",
      "multiply<half>", "multiply<bfloat16>", "mma_16x8x16<half>", "mma_16x8x16<bfloat16>", "load_matrices", "load_matrices_transposed"};
  static_assert(std::size(words) == static_cast<std::size_t>(Wait::count));
  return words[index_of(wait)];
}

void Block::start(int threads, int wave, const SimtThread& place, const Work& work) {
  work_ = &work;
  wave_ = wave;
  while (static_cast<int>(threads_.size()) < threads) threads_.push_back(std::make_unique<Thread>());
  warps_.assign(static_cast<std::size_t>((threads + warp_size - 1) / warp_size), {});
  waiting_ = {};
  std::string().swap(error_);  // so that fail() has no buffer to give back
  failed_ = nullptr;
  size_ = live_ = threads;
  for (int x = 0; x < threads; ++x) {
    auto& thread = *threads_[static_cast<std::size_t>(x)];
    thread.who = place;
    thread.who.thread_x = x;
    thread.who.lane = x % warp_size;
    thread.who.warp = x / warp_size;
    thread.live = true;
    thread.wait = Wait::nothing;
    thread.copies.clear();
    thread.groups = 0;
    auto& warp = warps_[static_cast<std::size_t>(x / warp_size)];
    warp.lanes[x % warp_size] = &thread;
    ++warp.live;
    thread.fiber.start(thread_body, this);
  }
}

void Block::go_on(SimtOrder order) {
  const auto warps = warps_.size();
  while (live_ > 0 && error_.empty()) {
    bool progress = false;
    for (std::size_t i = 0; i < warps && error_.empty(); ++i)
      run_warp(warps_[order == SimtOrder::forwards ? i : warps - 1 - i], order, progress);
    if (progress || !error_.empty()) continue;
    if (waiting_[index_of(Wait::grid_barrier)] == live_) return;
    error_ = stuck();
  }
  if (failed_) throw std::runtime_error(fmt::format("thread {}: {}", failed_->who.thread_x, error_));
  if (!error_.empty()) throw std::runtime_error(error_);
}

// Until no lane can go on.
void Block::run_warp(Warp& warp, SimtOrder order, bool& progress) {
  for (bool again = true; again;) {
    again = false;
    for (int i = 0; i < warp_size; ++i) {
      auto* thread = warp.lanes[order == SimtOrder::forwards ? i : warp_size - 1 - i];
      if (!thread || !thread->live || thread->wait != Wait::nothing) continue;
      resume(*thread);
      if (!error_.empty()) return;
      again = progress = true;
    }
  }
}

void Block::resume(Thread& thread) {
  running_ = &thread;
  who_ = &thread.who;
  thread.fiber.resume();
}

void Block::thread_body(void* argument) {
  auto& block = *static_cast<Block*>(argument);
  (*block.work_)();
  block.exit_thread(*block.running_);
}

void Block::exit_thread(Thread& thread) {
  thread.live = false;
  --live_;
  auto& warp = warps_[static_cast<std::size_t>(thread.who.warp)];
  --warp.live;
  for (auto word = Wait::sync_block; word != Wait::count; word = static_cast<Wait>(index_of(word) + 1))
    if (!of_grid(word)) of_block(word) ? release_if_complete(word) : release_if_complete(warp, word);
}

void Block::meet(Wait word) {
  auto& thread = *running_;
  auto& warp = warps_[static_cast<std::size_t>(thread.who.warp)];
  thread.wait = word;
  if (of_grid(word)) {
    ++waiting_[index_of(word)];
  } else if (of_block(word)) {
    ++waiting_[index_of(word)];
    release_if_complete(word);
  } else {
    ++warp.waiting[index_of(word)];
    release_if_complete(warp, word);
  }
  if (thread.wait != Wait::nothing) thread.fiber.suspend();
}

void Block::release_if_complete(Wait word) {
  auto& waiting = waiting_[index_of(word)];
  if (waiting == 0 || waiting != live_) return;
  bool any = false;
  for (int i = 0; i < size_; ++i)
    if (const auto& thread = *threads_[static_cast<std::size_t>(i)]; thread.live) any = any || thread.operands.words[0] != 0;
  for (int i = 0; i < size_; ++i) {
    threads_[static_cast<std::size_t>(i)]->wait = Wait::nothing;
    threads_[static_cast<std::size_t>(i)]->results.words[0] = any;
  }
  waiting = 0;
}

int Block::place_in_wave(const Warp& warp) const { return static_cast<int>(&warp - warps_.data()) * warp_size % wave_; }

void Block::release_wave_if_complete(const Warp& warp, Wait word) {
  const auto warps_a_wave = static_cast<std::size_t>(wave_ / warp_size);
  const auto first = static_cast<std::size_t>(&warp - warps_.data()) / warps_a_wave * warps_a_wave;
  const std::span<Warp> wave(warps_.data() + first, std::min(warps_a_wave, warps_.size() - first));
  int waiting = 0, live = 0;
  for (const auto& half : wave) waiting += half.waiting[index_of(word)], live += half.live;
  if (waiting == 0 || waiting != live) return;
  if (needs_whole_warp(word) && live < wave_)
    fail(fmt::format("{} by a wave of which only {} of {} lanes live: it needs all of them", word_of(word), live, wave_));
  std::vector<Thread*> lanes(static_cast<std::size_t>(wave_));
  for (std::size_t i = 0; i < wave.size() * warp_size; ++i) lanes[i] = wave[i / warp_size].lanes[i % warp_size];
  auto wrong = compute_wave(word, lanes);
  for (auto& half : wave) {
    half.waiting[index_of(word)] = 0;
    for (auto* lane : half.lanes)
      if (lane && lane->live) lane->wait = Wait::nothing;
  }
  std::vector<Thread*>().swap(lanes);
  if (!wrong.empty()) fail(std::move(wrong));
}

void Block::release_if_complete(Warp& warp, Wait word) {
  if (of_wave(word)) return release_wave_if_complete(warp, word);
  auto& waiting = warp.waiting[index_of(word)];
  if (waiting == 0 || waiting != warp.live) return;
  if (needs_whole_warp(word) && warp.live < warp_size)
    fail(fmt::format("{} by a warp of which only {} of {} lanes live: it needs all of them", word_of(word), warp.live, warp_size));
  const int first = place_in_wave(warp);
  word == Wait::permute_wave  ? permute_wave(warp, first)
  : word == Wait::ballot_wave ? ballot_wave(warp, first, wave_)
                              : compute_results(word, warp);
  for (auto* lane : warp.lanes)
    if (lane && lane->live) lane->wait = Wait::nothing;
  waiting = 0;
}

// Nothing here may own memory: the stack is never unwound.
void Block::fail(std::string sentence) {
  error_ = std::move(sentence);
  failed_ = running_;
  running_->fiber.abandon();
}

std::string Block::waiting_at_grid_barrier() const {
  std::vector<int> numbers;
  for (int x = 0; x < size_; ++x)
    if (const auto& thread = *threads_[static_cast<std::size_t>(x)]; thread.live && of_grid(thread.wait)) numbers.push_back(x);
  return ranges(numbers);
}

std::string Block::exited() const {
  std::vector<int> numbers;
  for (int x = 0; x < size_; ++x)
    if (!threads_[static_cast<std::size_t>(x)]->live) numbers.push_back(x);
  return ranges(numbers);
}

void Block::leave_grid_barrier() {
  for (int x = 0; x < size_; ++x) threads_[static_cast<std::size_t>(x)]->wait = Wait::nothing;
  waiting_[index_of(Wait::grid_barrier)] = 0;
}

std::string Block::stuck() const {
  std::map<Wait, std::vector<int>> groups;
  std::vector<int> exited;
  for (int x = 0; x < size_; ++x) {
    const auto& thread = *threads_[static_cast<std::size_t>(x)];
    thread.live ? groups[thread.wait].push_back(x) : exited.push_back(x);
  }
  std::string text;
  for (const auto& [wait, numbers] : groups)
    text += fmt::format("{}threads {} wait at {}", text.empty() ? "" : "; ", ranges(numbers), word_of(wait));
  if (!exited.empty()) text += fmt::format("; threads {} have exited", ranges(exited));
  return text + ": every live thread of a block, or lane of a warp, must come to the same word";
}

}  // namespace ejk::simt
