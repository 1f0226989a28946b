// The instruments themselves: the shim reaches the program, and the simulated disk loses what it should.
#include <gtest/gtest.h>

#include "faults/commands.h"
#include "faults/crash_disk.h"
#include "faults/snapshot.h"

namespace mantissa::faults {
namespace {

TEST(Shim, CountsTheCallsOfARunByGroup) {
  const Machine machine;
  put_inputs(machine);
  const Ran ran = machine.run("train run.toml --out r --quiet --threads 1");
  ASSERT_EQ(ran.code, 0) << ran.err;
  for (std::size_t g = 0; g < kGroupCount; ++g) {
    const auto group = static_cast<Group>(g);
    // A run maps no file below its folder, and may need neither of the others.
    if (group == Group::map || group == Group::mode || group == Group::truncate) continue;
    EXPECT_GT(ran.counts.calls[g], 0) << kGroups[g];
  }
  EXPECT_EQ(ran.counts.faults, 0);
}

TEST(Shim, FailsTheChosenCallAndNoOther) {
  const Machine machine;
  put_inputs(machine);
  const std::string arguments = "data kk --count 5 --quiet --out k.jsonl";
  const Ran whole = machine.run(arguments, {.calls = "write"});
  ASSERT_EQ(whole.code, 0) << whole.err;
  ASSERT_GT(whole.counts.numbered, 0);
  fs::remove(machine.work() / "k.jsonl");
  const Ran failed = machine.run(arguments, {.calls = "write", .at = 1, .does = "ENOSPC"});
  EXPECT_EQ(failed.code, 1) << failed.err;
  EXPECT_EQ(failed.counts.faults, 1);
  EXPECT_TRUE(has(failed.fault(), "k.jsonl")) << failed.fault();
  const Ran beyond = machine.run(arguments, {.calls = "write", .at = whole.counts.numbered + 1});
  EXPECT_EQ(beyond.code, 0) << beyond.err;
  EXPECT_EQ(beyond.counts.faults, 0);
}

TEST(Shim, KillsAtTheChosenCall) {
  const Machine machine;
  put_inputs(machine);
  const Ran ran =
      machine.run("data kk --count 5 --quiet --out k.jsonl", {.calls = "rename", .at = 1, .does = "KILL"});
  EXPECT_EQ(ran.signal, SIGKILL);
  EXPECT_FALSE(fs::exists(machine.work() / "k.jsonl"));
}

TEST(Shim, FillsTheDiskAfterTheGivenBytes) {
  const Machine machine;
  put_inputs(machine);
  const Ran ran = machine.run("data kk --count 50 --quiet --out k.jsonl", {.disk = 1000});
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_TRUE(has(ran.err, "No space left on device") || has(ran.err, "disk")) << ran.err;
}

TEST(Shim, WritesAJournalThatGivesTheFolderAgain) {
  const Machine machine;
  put_inputs(machine);
  const fs::path before = machine.root() / "before", journal = machine.root() / "journal";
  fs::copy(machine.work(), before, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const Ran ran = machine.run("train run.toml --out r --quiet --threads 1", {.journal = journal});
  ASSERT_EQ(ran.code, 0) << ran.err;
  CrashDisk disk(before, machine.work().string());
  for (const Record& record : read_journal(journal)) disk.apply(record);
  disk.write_to(machine.root() / "again", Survival::ordered, 1);
  EXPECT_EQ(difference(snapshot(machine.work()), snapshot(machine.root() / "again")), "");
}

/// A disk with the file `old`, at the path /d.
class Disk : public ::testing::Test {
 protected:
  Disk() : disk(made(), "/d") {}
  fs::path made() {
    put(machine.root() / "folder/old", "old");
    return machine.root() / "folder";
  }
  void does(Action action, const std::string& path, const std::string& other = "",
            const std::string& data = "") {
    disk.apply({action, path, other, data, action == Action::create ? 0644 : 0});
  }
  /// The contents of a file after a power loss; "absent" if it is not there.
  std::string after(Survival survival, const std::string& name) {
    const fs::path to = machine.root() / "after";
    fs::remove_all(to);
    disk.write_to(to, survival, 1);
    return fs::exists(to / name) ? read_all(to / name) : "absent";
  }

  Machine machine;
  CrashDisk disk;
};

TEST_F(Disk, LosesDataThatWereNotSynced) {
  does(Action::create, "/d/new");
  does(Action::write, "/d/new", "", "xyz");
  EXPECT_EQ(after(Survival::strict, "new"), "absent");
  EXPECT_EQ(after(Survival::ordered, "new"), "xyz");
  EXPECT_EQ(after(Survival::lost, "new"), std::string(3, '\0'));
  does(Action::sync, "/d");
  EXPECT_EQ(after(Survival::strict, "new"), "");
  does(Action::sync, "/d/new");
  for (const Survival survival : kSurvivals) EXPECT_EQ(after(survival, "new"), "xyz") << name(survival);
}

TEST_F(Disk, KeepsTheOldNamesUntilTheFolderIsSynced) {
  does(Action::rename, "/d/old", "/d/moved");
  EXPECT_EQ(after(Survival::strict, "old"), "old");
  EXPECT_EQ(after(Survival::strict, "moved"), "absent");
  EXPECT_EQ(after(Survival::ordered, "moved"), "old");
  does(Action::sync, "/d");
  EXPECT_EQ(after(Survival::strict, "old"), "absent");
  EXPECT_EQ(after(Survival::strict, "moved"), "old");
}

TEST_F(Disk, BringsBackAFileWhoseRemovalWasNotSynced) {
  does(Action::remove, "/d/old");
  EXPECT_EQ(after(Survival::strict, "old"), "old");
  EXPECT_EQ(after(Survival::lost, "old"), "absent");
}

TEST_F(Disk, LosesSomeBlocksOfDataThatWereNotSynced) {
  does(Action::write, "/d/old", "", std::string(40960, 'x'));
  const std::string found = after(Survival::blocks, "old");
  ASSERT_EQ(found.size(), 40960U);
  const auto kept = std::count(found.begin(), found.end(), 'x');
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 40960);
  EXPECT_EQ(kept % 4096, 0);
}

}  // namespace
}  // namespace mantissa::faults
