// The power goes at a call: what the disk may hold then is continued to the result of a run without it.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "faults/crash_disk.h"
#include "faults/prepared.h"

namespace mantissa::faults {
namespace {

/// A command under which the power goes, and the call at which a signal ends it before, in tenths of its
/// calls of fsync; 0: none.
struct Scenario {
  const char* command;
  int terminated = 0;
};
constexpr Scenario kScenarios[] = {{"train"},
                                   {"train", 4},
                                   {"train_into_new_folders"},
                                   {"resume"},
                                   {"train_overwrite"},
                                   {"train_adapter"},
                                   {"rl_program"},
                                   {"rl_program", 5},
                                   {"convert"},
                                   {"convert_overwrite"},
                                   {"convert_file"},
                                   {"convert_gguf"},
                                   {"merge"},
                                   {"data_shard"},
                                   {"data_kk"},
                                   {"trace"},
                                   {"tokenizer_train"},
                                   {"compare"},
                                   {"init"}};

const Command& command_of(const Scenario& scenario) {
  for (const Command& command : commands()) {
    if (std::string_view(command.name) == scenario.command) return command;
  }
  throw std::runtime_error(scenario.command);
}

/// The newest state that a line of the program promises; 0: none.
int promised(const std::string& printed) {
  int newest = 0;
  const std::regex line("state of step (\\d+) saved");
  for (std::sregex_iterator m(printed.begin(), printed.end(), line), end; m != end; ++m)
    newest = std::max(newest, std::stoi((*m)[1]));
  return newest;
}

/// The step with which a continued run began, by what it printed; the last one of a run that was complete.
int began_at(const std::string& printed) {
  std::smatch m;
  if (std::regex_search(printed, m, std::regex("work +(\\d+) of (\\d+) steps")))
    return std::stoi(m[2]) - std::stoi(m[1]);
  return std::regex_search(printed, std::regex("work +\\d+ steps")) ? 0 : 1000;
}

class PowerLoss : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(prepared.prepare()); }
  const Scenario& scenario() const { return kScenarios[GetParam()]; }
  bool is_run() const {
    const std::string_view run = prepared.command().run;
    return run.starts_with("train") || run.starts_with("rl");
  }

  /// Runs the command with a journal.
  void record() {
    prepared.restore();
    Fault fault;
    fault.journal = prepared.machine.root() / "journal";
    const std::int64_t syncs = prepared.counts().calls[static_cast<std::size_t>(Group::sync)];
    // Not quiet: the lines are promises.
    std::string arguments = with_options(prepared.command().run);
    arguments.erase(arguments.find(" --quiet"), 8);
    Ran ran;
    // The signal may come too late for the last step.
    for (std::int64_t tenth = scenario().terminated; tenth >= 0; --tenth) {
      prepared.restore();
      fs::remove(fault.journal);
      if (tenth > 0) {
        fault.calls = "sync";
        fault.at = syncs * tenth / 10;
        fault.does = "TERM";
      }
      ran = prepared.machine.run(arguments, fault);
      if (ran.code != 0 || scenario().terminated == 0) break;
    }
    ASSERT_EQ(ran.code, scenario().terminated > 0 ? 130 : 0) << ran.err;
    complete = ran.code == 0;
    journal = read_journal(fault.journal);
    ASSERT_FALSE(journal.empty());
  }

  /// Checks about `few` of the states of each kind, or all.
  void check(std::size_t few) {
    ASSERT_NO_FATAL_FAILURE(record());
    std::set<std::string> seen;  // states whose continuation was checked
    for (const Survival survival : kSurvivals) {
      CrashDisk disk(prepared.machine.root() / "before", prepared.machine.work().string());
      const std::size_t of = few == 0 ? 1 : std::max<std::size_t>(1, journal.size() / few);
      std::size_t checked = 0;
      for (std::size_t i = 0; i <= journal.size(); ++i) {
        const bool last = i == journal.size();
        const unsigned blocks = seed() + static_cast<unsigned>(i);
        const std::string key = disk.key(survival, blocks) + std::to_string(promised(disk.printed()));
        const bool chosen = (i + seed() * 13 + GetParam() * 5 + checked) % of == 0;
        const bool is_new = (last || chosen) && seen.insert(key).second;
        if (last || is_new) {
          ++checked;
          const std::string wrong = resumed(disk, survival, blocks, last && complete, is_new);
          if (!wrong.empty()) {
            ADD_FAILURE() << scenario().command << ": power lost after call " << i << " of " << journal.size()
                          << " (" << last_call(i) << "), what survives: " << name(survival) << ": " << wrong;
          }
        }
        if (!last) disk.apply(journal[i]);
      }
      std::cout << checked << " states, " << name(survival) << "\n";
    }
  }

  std::string last_call(std::size_t i) const {
    constexpr const char* kActions[] = {"create",   "truncate", "write",   "sync",   "rename",
                                        "exchange", "link",     "symlink", "remove", "mkdir",
                                        "rmdir",    "print",    "mode",    "unknown"};
    if (i == 0) return "none";
    const Record& r = journal[i - 1];
    return fmt::format("{} {} {}", kActions[static_cast<int>(r.action)], r.path, r.other);
  }

  /// Continues in what survived. Returns what is wrong, if anything is.
  std::string resumed(const CrashDisk& disk, Survival survival, unsigned blocks, bool ended,
                      bool is_new) const {
    const fs::path work = prepared.machine.work();
    fs::remove_all(work);
    disk.write_to(work, survival, blocks);
    const Snapshot found = snapshot(work);
    const std::vector<std::string>& outputs = prepared.command().outputs;
    if (ended) {
      const std::string wrong = difference(finished(prepared.expected()), finished(results(found, outputs)));
      if (!wrong.empty()) return "exit 0 promised the result, but " + wrong;
    }
    std::string wrong = foreign_difference(prepared.before(), found, outputs, true);
    if (!wrong.empty()) return wrong;
    if (!is_run()) {
      wrong = torn(found);
      if (!wrong.empty()) return wrong;
    }
    if (!is_new) return "";
    Ran again;
    wrong = prepared.continued(&again);
    const int promise = promised(disk.printed());
    if (is_run() && again.code == 0 && began_at(again.out) < promise)
      wrong += fmt::format("; a line promised the state of step {}, but the run began at step {}", promise,
                           began_at(again.out));
    return wrong;
  }

  /// A file at its place is the one before or the whole new one.
  std::string torn(const Snapshot& found) const {
    const std::vector<std::string>& outputs = prepared.command().outputs;
    const Snapshot before = results(prepared.before(), outputs);
    for (const auto& [path, contents] : results(found, outputs)) {
      const auto is = [&](const Snapshot& all) {
        const auto other = all.find(path);
        return other != all.end() && other->second == contents;
      };
      if (!path.ends_with(".partial") && !is(before) && !is(prepared.expected()))
        return path + " is incomplete";
    }
    return "";
  }

  Prepared prepared{command_of(scenario())};
  std::vector<Record> journal;
  bool complete = false;
};

std::string scenario_name(const ::testing::TestParamInfo<std::size_t>& p) {
  const Scenario& s = kScenarios[p.param];
  return std::string(s.command) + (s.terminated > 0 ? "_terminated" : "");
}

TEST_P(PowerLoss, LeavesWhatWasPromised) {
  check(is_run() ? 1 : 2);  // runs take longer
}
INSTANTIATE_TEST_SUITE_P(Commands, PowerLoss, ::testing::Range<std::size_t>(0, std::size(kScenarios)),
                         scenario_name);

using SlowPowerLoss = PowerLoss;
TEST_P(SlowPowerLoss, AtAnyCallLeavesWhatWasPromised) {
  check(0);
}
INSTANTIATE_TEST_SUITE_P(Slow, SlowPowerLoss, ::testing::Range<std::size_t>(0, std::size(kScenarios)),
                         scenario_name);

}  // namespace
}  // namespace mantissa::faults
