// Signals at random times, and two processes with one output.
#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <fstream>
#include <string>

#include "faults/campaign.h"

namespace mantissa::faults {
namespace {

/// How often a campaign runs by default, and on request.
constexpr double kShort = 2, kLong = 120;

/// Returns the CPU time of a process, which does not grow while a busy machine lets it wait.
std::chrono::nanoseconds cpu_time(pid_t process) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0)
    return std::chrono::hours(1);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// Returns true if the process handles the signal, as it does from the beginning of main() on.
bool handles(pid_t process, int signal) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigCgt:"))
      return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1U) != 0;
  }
  return false;
}

class Signals : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(prepared.prepare()); }

  /// Starts and continues a run with a signal after a random pause, until it is complete.
  std::string interrupted(Campaign& campaign, std::string& story) const {
    constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGKILL};
    prepared.restore();
    const std::string arguments = with_options(prepared.command().again);
    for (int i = 0; i < 6; ++i) {
      const pid_t child = prepared.machine.start(arguments);
      const auto pause = std::chrono::microseconds(campaign.below(300'000));
      std::this_thread::sleep_for(pause);
      const int signal = kSignals[campaign.below(4)];
      const bool early = !handles(child, signal) && cpu_time(child) < std::chrono::milliseconds(60);
      kill(child, signal);
      const Ran ran = prepared.machine.wait(child, arguments);
      story += fmt::format("{} after {} ms: exit {}; ", strsignal(signal), pause.count() / 1000, ran.code);
      // Before main() a signal ends the process by itself.
      const bool at_once = early && ran.signal == signal && ran.err.empty();
      if (at_once || (signal == SIGKILL && ran.signal == SIGKILL)) continue;
      const std::string wrong = complaint(ran);
      if (!wrong.empty()) return wrong + ": " + ran.err;
      if (ran.code == 0) return difference(prepared.expected(), found());
      if (ran.code != 130) return fmt::format("exit {}: {}", ran.code, ran.err);
    }
    return prepared.continued();
  }

  void check(double seconds) const {
    Campaign campaign(seconds, 1);
    while (campaign.goes_on()) {
      std::string story;
      const std::string wrong = interrupted(campaign, story);
      if (!wrong.empty()) ADD_FAILURE() << "try " << campaign.tries() << ": " << story << wrong;
    }
  }

  Snapshot found() const { return results(snapshot(prepared.machine.work()), prepared.command().outputs); }

  Prepared prepared{command_named(GetParam())};
};

std::string run_name(const ::testing::TestParamInfo<const char*>& p) {
  return p.param;
}

TEST_P(Signals, AtAnyTimeLeaveARunThatContinues) {
  check(kShort);
}
INSTANTIATE_TEST_SUITE_P(Runs, Signals, ::testing::Values("train", "rl_program"), run_name);
using SlowSignals = Signals;
TEST_P(SlowSignals, AtAnyTimeLeaveARunThatContinuesForLong) {
  check(kLong);
}
INSTANTIATE_TEST_SUITE_P(Slow, SlowSignals,
                         ::testing::Values("train", "rl_program", "resume", "train_adapter"), run_name);

/// The rewards depend on the number of responses that were scored before.
TEST(TerminatedRollout, IsScoredAgainFromItsPosition) {
  Prepared prepared(command_named("rl_program"));
  ASSERT_NO_FATAL_FAILURE(prepared.prepare());
  Fault fault{.calls = "write", .at = 1, .does = "TERM", .under = "l/samples.jsonl"};
  for (;; ++fault.at) {
    prepared.restore();
    const Ran ran = prepared.machine.run(with_options(prepared.command().run), fault);
    ASSERT_EQ(complaint(ran), "") << ran.err;
    if (ran.counts.faults == 0) break;
    EXPECT_EQ(prepared.continued(), "") << "terminated at write " << fault.at << " of samples.jsonl";
  }
  EXPECT_GT(fault.at, 2);
}

/// Two processes that are started with one output.
struct Pair {
  const char* name;
  const char* command;  // prepares the folder
  const char *first, *second;
};
constexpr Pair kPairs[] = {
    {"two_runs", "train", "train run.toml --out r", "train run.toml --out r --set optimizer.lr=1e-3"},
    {"two_runs_that_overwrite", "train", "train run.toml --out r --overwrite",
     "train run.toml --out r --set optimizer.lr=1e-3 --overwrite"},
    {"a_run_and_one_that_resumes", "resume", "train run.toml --out r --resume",
     "train run.toml --out r --set optimizer.lr=1e-3"},
    {"two_runs_that_resume", "resume", "train run.toml --out r --resume", "train run.toml --out r --resume"},
    {"two_conversions", "convert", "convert m c --dtype bf16", "convert m c --dtype f16"},
    {"two_conversions_that_overwrite", "convert_overwrite", "convert m c --dtype bf16 --overwrite",
     "convert m c --dtype f16 --overwrite"},
    {"two_files", "convert_file", "convert m/model.safetensors c.safetensors --dtype bf16",
     "convert m/model.safetensors c.safetensors --dtype f16"},
    {"two_merges", "merge", "merge m a x", "merge m a x --dtype bf16"},
    {"two_shards", "data_shard", "data shard text.txt --tokenizer byte --out d --shard-tokens 1000",
     "data shard text.txt --tokenizer byte --out d --shard-tokens 900"},
    {"two_tokenizers", "tokenizer_train", "tokenizer train text.txt --out tok --vocab-size 300",
     "tokenizer train text.txt --out tok --vocab-size 280"}};

class TwoProcesses : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(prepared.prepare());
    for (const std::string& arguments : {first, second}) {
      prepared.restore();
      const Ran ran = prepared.machine.run(arguments, {.calls = "files"});
      calls = std::max(calls, ran.counts.numbered);
      if (ran.code != 0) continue;  // it is refused even alone
      allowed.push_back(found());
      succeeds = arguments;
    }
    ASSERT_FALSE(allowed.empty());
  }

  void check(double seconds) const {
    Campaign campaign(seconds, 2);
    while (campaign.goes_on()) {
      prepared.restore();
      // One of them waits at one of its calls, so that the other overtakes it there.
      const auto pause = std::chrono::microseconds(campaign.below(3) * campaign.below(20'000));
      Fault waits;
      const bool at_its_lock = campaign.below(3) == 0;  // what it saw before may have changed then
      waits.calls = at_its_lock ? "lock" : "files";
      waits.at = at_its_lock
                     ? 1
                     : 1 + campaign.below(campaign.below(2) == 0 ? std::min<std::int64_t>(calls, 60) : calls);
      waits.does = "pause";
      waits.pause = first.starts_with("train") ? 900 : 100;  // longer than the whole other process
      const bool swapped = campaign.below(2) == 1;
      const std::string& a = swapped ? second : first;
      const std::string& b = swapped ? first : second;
      const pid_t one = prepared.machine.start(a, waits, "1");
      std::this_thread::sleep_for(pause);
      const pid_t two = prepared.machine.start(b, {}, "2");
      const Ran x = prepared.machine.wait(one, a, waits, "1"), y = prepared.machine.wait(two, b, {}, "2");
      const std::string wrong = judge(x, y);
      if (!wrong.empty())
        ADD_FAILURE() << a << ", which waits at " << x.fault() << ", and, after " << pause.count() << " us, "
                      << b << ": exits " << x.code << " and " << y.code << ": " << wrong << "\n  " << x.err
                      << "\n  " << y.err;
    }
  }

  std::string judge(const Ran& x, const Ran& y) const {
    for (const Ran& ran : {x, y}) {
      if (const std::string wrong = complaint(ran); !wrong.empty()) return wrong;
    }
    if (x.code != 0 && y.code != 0) return judge_failures();
    const bool may_replace = first == second || has(first, "--overwrite") || has(second, "--resume");
    if (x.code == 0 && y.code == 0 && !may_replace) return "one replaced the result of the other";
    const Snapshot now = found();
    std::string nearest;
    for (const Snapshot& one : allowed) {
      nearest = difference(one, now);
      if (nearest.empty()) break;
    }
    if (!nearest.empty()) return "the result is that of neither: " + nearest;
    return foreign_difference(prepared.before(), snapshot(prepared.machine.work()),
                              prepared.command().outputs);
  }

  /// One that is refused even alone may hold the lock when the other asks for it. Then nothing has changed,
  /// and the other succeeds when it is repeated.
  std::string judge_failures() const {
    if (allowed.size() == 2) return "both failed";
    Snapshot before = results(prepared.before(), prepared.command().outputs), now = found();
    for (Snapshot* folder : {&before, &now})  // whoever gets the lock of a killed run removes it
      std::erase_if(*folder, [](const auto& file) { return file.first.ends_with(".lock"); });
    if (const std::string changed = difference(before, now); !changed.empty())
      return "both failed, and changed something: " + changed;
    if (const Ran again = prepared.machine.run(succeeds); again.code != 0)
      return "both failed, and again: " + again.err;
    const std::string wrong = difference(allowed.front(), found());
    return wrong.empty() ? wrong : "both failed, and the repeated one: " + wrong;
  }

  Snapshot found() const { return results(snapshot(prepared.machine.work()), prepared.command().outputs); }

  const Pair& pair = kPairs[GetParam()];
  const std::string first = with_options(pair.first), second = with_options(pair.second);
  Prepared prepared{command_named(pair.command)};
  std::vector<Snapshot> allowed;  // the results of those that succeed alone
  std::string succeeds;           // one of them
  std::int64_t calls = 0;         // on files, of one process
};

std::string pair_name(const ::testing::TestParamInfo<std::size_t>& p) {
  return kPairs[p.param].name;
}

TEST_P(TwoProcesses, WithOneOutputGiveTheResultOfOne) {
  check(0.7);
}
INSTANTIATE_TEST_SUITE_P(Pairs, TwoProcesses, ::testing::Range<std::size_t>(0, std::size(kPairs)), pair_name);
using SlowTwoProcesses = TwoProcesses;
TEST_P(SlowTwoProcesses, WithOneOutputGiveTheResultOfOneForLong) {
  check(kLong);
}
INSTANTIATE_TEST_SUITE_P(Slow, SlowTwoProcesses, ::testing::Range<std::size_t>(0, std::size(kPairs)),
                         pair_name);

}  // namespace
}  // namespace mantissa::faults
