// Random campaigns: for a time, with a seed.
#pragma once

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

#include "faults/sweep.h"

namespace mantissa::faults {

inline const Command& command_named(std::string_view name) {
  for (const Command& command : commands()) {
    if (command.name == name) return command;
  }
  throw std::runtime_error("no command is called " + std::string(name));
}

/// Runs for `seconds`, or for those that MANTISSA_FAULTS_SECONDS gives, and prints its seed and the number of
/// its tries at its end.
class Campaign {
 public:
  explicit Campaign(double seconds, unsigned salt = 0) : random(seed() * 7919 + salt) {
    const char* text = std::getenv("MANTISSA_FAULTS_SECONDS");
    if (text != nullptr) seconds = std::strtod(text, nullptr);
    end_ = std::chrono::steady_clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  ~Campaign() { std::cout << tries_ << " tries, seed " << seed() << "\n"; }
  Campaign(const Campaign&) = delete;
  Campaign& operator=(const Campaign&) = delete;

  /// True for at least three tries.
  bool goes_on() { return tries_++ < 3 || (Clock::now() < end_ ? true : (--tries_, false)); }
  std::int64_t below(std::int64_t count) { return static_cast<std::int64_t>(random() % count); }
  int tries() const { return tries_; }

  std::mt19937_64 random;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
  int tries_ = 0;
};

}  // namespace mantissa::faults
