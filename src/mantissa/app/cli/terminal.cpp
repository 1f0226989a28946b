#include "mantissa/app/cli/terminal.h"

#include "mantissa/app/cli/together.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "mantissa/app/cli/output.h"
#include "mantissa/app/cli/safe_terminal.h"

namespace mantissa::cli {
namespace {

/// Returns true for about twenty round steps of a run.
bool has_line(const api::Step& s) {
  if (s.step == 1 || s.step == s.steps) return true;
  std::int64_t every = 1;
  for (const std::int64_t factor : {5, 2, 5, 2, 5, 2, 5, 2, 5, 2, 5, 2}) {
    if (s.steps / every <= 25) break;
    every *= factor;
  }
  return s.step % every == 0;
}

}  // namespace

StepTable::StepTable(bool quiet, std::chrono::milliseconds longest)
    : quiet_(quiet), live_(!quiet && isatty(STDOUT_FILENO) != 0 && ranks().size() == 1), longest_(longest) {
  if (live_) let_lines_be_erased();
  // Without a time between lines every step has its own, and the heart would print without a pause.
  const bool beats = !quiet_ && !live_ && longest_ > longest_.zero();
  if (beats) heart_ = std::jthread([this](const std::stop_token& over) { beat(over); });
}

StepTable::~StepTable() {
  heart_.request_stop();
  if (heart_.joinable()) heart_.join();
}

void StepTable::beat(const std::stop_token& over) {
  std::unique_lock lock(mutex_);
  while (!over.stop_requested()) {
    wake_.wait_until(lock, over, last_line_ + longest_, [&] { return is_overdue(); });
    if (over.stop_requested() || !is_overdue()) continue;
    const std::chrono::duration<double> since = Clock::now() - start_;
    const bool ending = steps_ > 0 && step_ == steps_;  // held-out rows, the state and the model follow
    print(fmt::format("{:>6} {}, {} since the start of the command", ending ? step_ : step_ + 1,
                      ending ? "complete" : "running", clock_text(since.count())));
  }
}

void StepTable::header(const api::Step& s) {
  if (columns_) return;
  columns_.emplace(s);
  write(bold(columns_->headings()) + "\n");
}

void StepTable::write(const std::string& text) {
  if (lost_ != 0) return;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) lost_ = errno;
}

void StepTable::print(const std::string& line) {
  end_live_line();
  write(line + "\n");
  last_line_ = Clock::now();
}

void StepTable::show(const api::Step& s) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  step_ = s.step;
  steps_ = s.steps;
  header(s);
  if (s.skipped) print(fmt::format("skip    {}: {}", s.step, s.overflow));
  const std::string row = columns_->row(s);
  if (has_line(s) || (!live_ && is_overdue())) {
    print(row);
  } else if (live_) {
    write("\r\x1b[K" + (has_color() ? fmt::format("\x1b[2m{}\x1b[0m", row) : row));
    line_open_ = true;
  }
}

void StepTable::say(const std::string& line) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  print(line);
}

void StepTable::end_live_line() {
  if (line_open_) write("\r\x1b[K");
  line_open_ = false;
}

void StepTable::finish() {
  const std::lock_guard lock(mutex_);
  end_live_line();
  if (lost_ != 0) throw_output_error(lost_);
}

}  // namespace mantissa::cli
