// A run that is killed repeatedly ends with the bytes of an uninterrupted run.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <random>
#include <regex>
#include <thread>

#include "api/tiny.h"

namespace mantissa {
namespace {

using testing::read_all;
using testing::TemporaryFolder;
using testing::timeless;
using testing::tiny_config;

pid_t start(const TemporaryFolder& folder, const std::string& out, int threads) {
  const std::string command = "cd " + folder.path().string() +
                              " && exec " MANTISSA_BINARY_DIR
                              "/mantissa train run.toml --quiet --resume --threads " +
                              std::to_string(threads) + " --out " + out + " > log 2> err";
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

class Killed : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Policies, Killed,
                         ::testing::Values("32-true", "16-mixed loss_scale=dynamic:2^30", "bf16-true"),
                         [](const auto& p) {
                           return std::regex_replace(std::string(p.param), std::regex("[^a-z0-9]"), "_");
                         });

TEST_P(Killed, EndsWithTheBytesOfARunThatNeverWas) {
  const TemporaryFolder folder;
  std::ofstream(folder / "run.toml") << tiny_config(120, GetParam());
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(wait_for(start(folder, "whole", 2)), 0) << read_all(folder / "err");
  const auto whole = std::chrono::steady_clock::now() - begin;
  std::mt19937 random(7);
  for (int i = 0; i < 6; ++i) {
    const pid_t child = start(folder, "parts", 1 + i % 2);
    std::this_thread::sleep_for(whole * (random() % 1000) / 2000);
    kill(child, i % 3 == 2 ? SIGTERM : SIGKILL);
    wait_for(child);
  }
  ASSERT_EQ(wait_for(start(folder, "parts", 2)), 0) << read_all(folder / "err");
  EXPECT_EQ(read_all(folder / "parts/model/model.safetensors"),
            read_all(folder / "whole/model/model.safetensors"));
  EXPECT_EQ(timeless(read_all(folder / "parts/metrics.jsonl")),
            timeless(read_all(folder / "whole/metrics.jsonl")));
}

}  // namespace
}  // namespace mantissa
