// Machines with little: disk, inodes, memory, descriptors, processes.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include "faults/campaign.h"

namespace mantissa::faults {
namespace {

enum class Little { disk, memory, descriptors, threads };
constexpr Little kLittles[] = {Little::disk, Little::memory, Little::descriptors, Little::threads};
constexpr const char* kNames[] = {"disk", "memory", "descriptors", "threads"};

/// A machine on which a random amount of something is there.
Fault limited(Little little, Campaign& campaign) {
  Fault fault;
  switch (little) {
    case Little::disk:
      fault.disk = campaign.below(4) == 0 ? campaign.below(200'000) : campaign.below(40'000);
      break;
    case Little::memory:  // addresses; below about 30 MB the libraries are not loaded
      fault.limits = fmt::format("prlimit --as={}", 34'000'000 + campaign.below(60'000'000));
      break;
    case Little::descriptors:
      fault.limits = fmt::format("prlimit --nofile={}", 4 + campaign.below(12));
      break;
    case Little::threads:
      fault.calls = "thread";
      fault.at = 1 + campaign.below(4);
      fault.does = "EAGAIN";
      fault.lasting = true;
  }
  return fault;
}

class SmallMachine : public ::testing::TestWithParam<std::size_t> {
 protected:
  void check(double seconds) const {
    Campaign campaign(seconds, 4 + static_cast<unsigned>(GetParam()));
    while (campaign.goes_on()) {
      const auto chosen = static_cast<std::size_t>(campaign.below(static_cast<int>(commands().size())));
      Prepared prepared(commands()[chosen]);
      ASSERT_NO_FATAL_FAILURE(prepared.prepare());
      for (int i = 0; i < 4; ++i) {
        Fault fault = limited(kLittles[GetParam()], campaign);
        const std::string wrong = run_with(prepared, fault);
        // The loader of libraries met the limit first.
        if (!wrong.empty() && !has(wrong, "error while loading shared libraries"))
          ADD_FAILURE() << prepared.command().name << ": " << wrong;
      }
    }
  }
};

std::string little_name(const ::testing::TestParamInfo<std::size_t>& p) {
  return kNames[p.param];
}

TEST_P(SmallMachine, GivesOneMessageAndLosesNothing) {
  check(0.7);
}
INSTANTIATE_TEST_SUITE_P(Little, SmallMachine, ::testing::Range<std::size_t>(0, std::size(kLittles)),
                         little_name);
using SlowSmallMachine = SmallMachine;
TEST_P(SlowSmallMachine, GivesOneMessageAndLosesNothingForLong) {
  check(180);
}
INSTANTIATE_TEST_SUITE_P(Slow, SlowSmallMachine, ::testing::Range<std::size_t>(0, std::size(kLittles)),
                         little_name);

/// A file that cannot be read is not taken for one of somebody else.
TEST(Unreadable, AnEarlierResultIsNotAFileInTheWay) {
  Prepared prepared(command_named("trace"));
  ASSERT_NO_FATAL_FAILURE(prepared.prepare());
  const std::string again = with_options(prepared.command().run);
  const Ran whole = prepared.machine.run(again, {.calls = "read"});
  ASSERT_EQ(whole.code, 0) << whole.err;
  std::int64_t refused = 0;
  for (std::int64_t at = 1; at <= whole.counts.numbered; ++at) {
    const Ran ran = prepared.machine.run(again, {.calls = "read", .at = at, .does = "EIO"});
    EXPECT_FALSE(has(ran.err, "exists already")) << at << ": " << ran.err;
    if (has(ran.err, "t.safetensors: cannot be read")) ++refused;
  }
  EXPECT_GT(refused, 0) << "the output was not looked at";
}

/// An earlier model that cannot be looked at or removed for a moment stops no run that has begun.
TEST(Unreadable, AnEarlierModelStopsNoRun) {
  const Command& command = command_named("train_overwrite");
  Prepared prepared(command);
  ASSERT_NO_FATAL_FAILURE(prepared.prepare());
  prepared.restore();
  Fault fault{.calls = "read,stat,list,open", .does = "EIO", .under = "r/model"};
  const std::int64_t calls = prepared.machine.run(command.run, fault).counts.numbered;
  std::int64_t told = 0;
  for (fault.at = 1; fault.at <= calls; fault.at += 7) {
    prepared.restore();
    const Ran ran = prepared.machine.run(command.run, fault);
    const fs::path run = prepared.machine.work() / "r";
    EXPECT_TRUE(fs::exists(run / "model/model.safetensors") || fs::exists(run / "state"))
        << ran.command << "\n"
        << ran.err;
    EXPECT_FALSE(fs::exists(run / "model.partial")) << ran.command << "\n" << ran.err;
    if (!has(ran.out, "the model or adapter of the earlier run stays for now")) continue;
    ++told;
    EXPECT_EQ(ran.code, 0) << ran.command << "\n" << ran.err;
  }
  EXPECT_GT(told, 2);
}

TEST(Unremovable, AnOldStateStopsNoRun) {
  Prepared prepared(command_named("train"));
  ASSERT_NO_FATAL_FAILURE(prepared.prepare());
  const std::string run = "train run.toml --out r --set checkpoint.interval=1 checkpoint.keep=1 run.steps=4";
  for (std::int64_t at = 1; at <= 3; ++at) {  // two files and their folder
    prepared.restore();
    const Ran ran = prepared.machine.run(run, {.calls = "remove",
                                               .at = at,
                                               .does = "EIO",
                                               .lasting = true,
                                               .under = "r/state/step-00000001.partial"});
    EXPECT_EQ(ran.code, 0) << ran.command << "\n" << ran.err;
    EXPECT_GT(ran.counts.faults, 1) << ran.command;
    EXPECT_TRUE(has(ran.out, "an old state stays, beside the checkpoint.keep = 1 newest")) << ran.out;
    EXPECT_TRUE(fs::exists(prepared.machine.work() / "r/state/step-00000004"));
  }
}

// Destructors allocate too.
TEST(ExhaustedMemory, FromAnAllocationOnIsOneMessage) {
  for (const char* name : {"convert_overwrite", "data_shard"}) {
    Prepared prepared(command_named(name));
    ASSERT_NO_FATAL_FAILURE(prepared.prepare());
    constexpr std::int64_t kPoints = 12;
    const std::int64_t calls = prepared.counts().calls[static_cast<std::size_t>(Group::memory)];
    Fault fault{.calls = "memory", .does = "ENOMEM", .lasting = true};
    for (std::int64_t i = 0; i < kPoints; ++i) {
      fault.at = 1 + calls * i / kPoints;
      EXPECT_EQ(run_with(prepared, fault), "") << name;
    }
  }
}

// A list of the files to remove needs memory.
TEST(ExhaustedMemory, LeavesNoUnfinishedModel) {
  const Command& command = command_named("train");
  Prepared prepared(command);
  ASSERT_NO_FATAL_FAILURE(prepared.prepare());
  constexpr std::int64_t kPoints = 40;
  const std::int64_t calls = prepared.counts().calls[static_cast<std::size_t>(Group::memory)],
                     last = calls / 100;  // a run writes its model last
  for (std::int64_t i = 0; i < kPoints; ++i) {
    prepared.restore();
    const Ran ran = prepared.machine.run(
        with_options(command.run),
        {.calls = "memory", .at = calls - last + last * i / kPoints, .does = "ENOMEM", .lasting = true});
    EXPECT_EQ(ran.signal, 0) << ran.err;
    EXPECT_FALSE(fs::exists(prepared.machine.work() / "r/model.partial")) << ran.command << "\n" << ran.err;
  }
}

/// A file system of the kernel that is full, of bytes or of inodes; it needs the rights of root.
class FullDisk : public ::testing::TestWithParam<const char*> {
 protected:
  /// Mounts a file system at `place` that this process alone sees, or returns false.
  static bool mounted(const fs::path& place, const std::string& options) {
    return unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("tmpfs", place.c_str(), "tmpfs", 0, options.c_str()) == 0;
  }

  void check(const std::string& options) const {
    Prepared prepared(command_named(GetParam()));
    ASSERT_NO_FATAL_FAILURE(prepared.prepare());
    const fs::path small = prepared.machine.work() / "small";
    fs::create_directory(small);
    if (!mounted(small, options)) GTEST_SKIP() << "mounting a file system needs the rights of root";
    // Every output goes to the small file system by a folder above it.
    std::string arguments = with_options(prepared.command().run);
    const std::string out = prepared.command().outputs.front();
    const std::size_t at = arguments.find(" " + out + " ");
    ASSERT_NE(at, std::string::npos) << arguments;
    arguments.replace(at + 1, 0, "small/");
    const Ran ran = prepared.machine.run(arguments);
    EXPECT_EQ(complaint(ran), "") << ran.err;
    EXPECT_EQ(ran.code, 1) << ran.err;
    EXPECT_TRUE(has(ran.err, "No space left on device") || has(ran.err, "disk")) << ran.err;
    std::string left;
    for (const auto& entry : fs::recursive_directory_iterator(small)) left += entry.path().string() + "\n";
    umount(small.c_str());
    if (!std::string_view(prepared.command().run).starts_with("train")) {
      EXPECT_EQ(left, "") << "is left on the full disk";
    }
  }
};

TEST_P(FullDisk, OfBytesIsOneMessageWithExitCodeOne) {
  check("size=8k");
}
TEST_P(FullDisk, OfInodesIsOneMessageWithExitCodeOne) {
  // One is that of the root; a single file needs another, a folder with its files several.
  const bool is_file = has(command_named(GetParam()).outputs.front(), ".");
  check(fmt::format("size=4m,nr_inodes={}", is_file ? 1 : 3));
}
INSTANTIATE_TEST_SUITE_P(Commands, FullDisk,
                         ::testing::Values("train", "convert", "convert_file", "convert_gguf", "merge",
                                           "data_shard", "tokenizer_train", "trace", "audit"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace mantissa::faults
