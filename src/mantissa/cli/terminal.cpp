#include "mantissa/cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>

#include "mantissa/cli/output.h"

namespace mantissa::cli {
namespace {

std::string clock_text(double seconds) {
  const auto s = std::llround(seconds);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

/// Returns the loss scale, right-aligned under "scale".
std::string scale_text(const std::optional<double>& scale) {
  return scale ? fmt::format(" {:>6}", power_text(*scale)) : "";
}

/// A measurement of an objective with a column of its own.
struct Column {
  std::string_view metric;  // in metrics.jsonl
  std::string_view heading;
  bool share;  // in percent
};
constexpr Column kColumns[] = {
    {"masked_share", "mask", true},
    {"padding_share", "pad", true},
    {"accuracy", "acc", true},
    {"margin", "margin", false},
};

/// Calls body(column, value) for each column that the step has.
template <class Body>
void for_columns(const api::Step& s, const Body& body) {
  for (const Column& column : kColumns) {
    for (const auto& [name, value] : s.metrics) {
      if (name == column.metric) body(column, value);
    }
  }
}

std::string headings(const api::Step& s) {
  std::string text;
  for_columns(s,
              [&](const Column& c, double) { text += fmt::format(" {:>{}}", c.heading, c.share ? 4 : 8); });
  return text;
}

/// Returns the values, right-aligned under headings().
std::string columns_text(const api::Step& s) {
  std::string text;
  for_columns(s, [&](const Column& c, double value) {
    text += c.share ? fmt::format(" {:>3.0f}%", 100 * value) : fmt::format(" {:>8.4f}", value);
  });
  return text;
}

std::string row(const api::Step& s) {
  return fmt::format("{:>6} {:>8.4f} {:>7.3f} {:>9.2e}{}{} {:>8.0f} {:>4.0f}% {:>8}", s.step, s.loss,
                     std::abs(s.grad_norm), s.lr, scale_text(s.loss_scale), columns_text(s),
                     s.tokens_per_second, 100 * s.peak_share, clock_text(s.seconds_left));
}

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

std::string power_text(double scale) {
  int power = 0;
  return std::frexp(scale, &power) == 0.5 ? fmt::format("2^{}", power - 1) : fmt::format("{:.4g}", scale);
}

StepTable::StepTable(bool quiet, std::chrono::milliseconds longest)
    : quiet_(quiet), live_(!quiet && isatty(STDOUT_FILENO) != 0), longest_(longest) {
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
  if (begun_) return;
  begun_ = true;
  write(fmt::format("{:>6} {:>8} {:>7} {:>9}{}{} {:>8} {:>5} {:>8}\n", "step", "loss", "gnorm", "lr",
                    s.loss_scale ? "  scale" : "", headings(s), "tok/s", "peak", "left"));
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
  if (has_line(s) || (!live_ && is_overdue())) {
    print(row(s));
  } else if (live_) {
    write(fmt::format("\r\x1b[K\x1b[2m{}\x1b[0m", row(s)));
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
