#include "mantissa/cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace mantissa::cli {
namespace {

std::string clock_text(double seconds) {
  const auto s = std::llround(seconds);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

/// "2^16", or the number where it is no power of two; right-aligned under "scale".
std::string scale_text(const std::optional<double>& scale) {
  if (!scale) return "";
  int power = 0;
  const bool exact = std::frexp(*scale, &power) == 0.5;
  return fmt::format(" {:>6}", exact ? fmt::format("2^{}", power - 1) : fmt::format("{:.4g}", *scale));
}

std::string row(const api::Step& s) {
  return fmt::format("{:>6} {:>8.4f} {:>7.3f} {:>9.2e}{} {:>8.0f} {:>4.0f}% {:>8}", s.step, s.loss,
                     std::abs(s.grad_norm), s.lr, scale_text(s.loss_scale), s.tokens_per_second,
                     100 * s.peak_share, clock_text(s.seconds_left));
}

/// About twenty lines a run, at round steps.
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

StepTable::StepTable(bool quiet) : quiet_(quiet), live_(!quiet && isatty(STDOUT_FILENO) != 0) {}

void StepTable::header(bool scaled) {
  if (begun_) return;
  begun_ = true;
  fmt::print("{:>6} {:>8} {:>7} {:>9}{} {:>8} {:>5} {:>8}\n", "step", "loss", "gnorm", "lr",
             scaled ? "  scale" : "", "tok/s", "peak", "left");
}

void StepTable::show(const api::Step& s) {
  if (quiet_) return;
  header(s.loss_scale.has_value());
  if (s.skipped) say(fmt::format("skip    {}: {}", s.step, s.overflow));
  if (live_) fmt::print("\r\x1b[K");
  line_open_ = false;
  if (has_line(s)) {
    fmt::print("{}\n", row(s));
  } else if (live_) {
    fmt::print("\x1b[2m{}\x1b[0m", row(s));
    line_open_ = true;
  }
  std::fflush(stdout);
}

void StepTable::say(const std::string& line) {
  if (quiet_) return;
  finish();
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void StepTable::finish() {
  if (line_open_) fmt::print("\r\x1b[K");
  line_open_ = false;
}

}  // namespace mantissa::cli
