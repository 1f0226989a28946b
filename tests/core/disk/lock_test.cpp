#include "mantissa/core/disk/lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::disk {
namespace {

using test::message_of;

class Lock : public test::TemporaryFolder {};

TEST_F(Lock, RejectsASecondHolderAndNamesTheFirst) {
  const RunLock first(folder);
  EXPECT_TRUE(first.held());
  const std::string message = message_of<FileError>([&] { RunLock second(folder); });
  EXPECT_NE(
      message.find(folder.string() + ": process " + std::to_string(::getpid()) + " is writing this run"),
      std::string::npos)
      << message;
  EXPECT_NE(message.find("--out"), std::string::npos);
}

TEST_F(Lock, ReleasesTheLockAndRemovesItsFile) {
  std::optional<RunLock> lock(std::in_place, folder);
  lock.reset();
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_NO_THROW(RunLock again(folder));
}

TEST_F(Lock, AFailedAttemptKeepsTheLock) {
  const RunLock first(folder);
  EXPECT_THROW(RunLock second(folder), FileError);
  EXPECT_THROW(RunLock third(folder), FileError);
}

TEST_F(Lock, RejectsAMissingDirectory) {
  EXPECT_THROW(RunLock lock(folder / "none"), FileError);
}

TEST_F(Lock, ItsHolderIsKnownWithoutTakingIt) {
  EXPECT_EQ(lock_holder(folder), std::nullopt);
  EXPECT_EQ(lock_holder(folder / "none"), std::nullopt);
  {
    const RunLock lock(folder);
    EXPECT_EQ(lock_holder(folder), ::getpid());
  }
  test::put(folder / ".lock", "1\n");  // of a process that was killed
  EXPECT_EQ(lock_holder(folder), std::nullopt);
}

TEST_F(Lock, AKilledProcessReleasesTheLock) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RunLock lock(folder);
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_NE(message_of<FileError>([&] { RunLock lock(folder); }).find(std::to_string(child)),
            std::string::npos);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_NO_THROW(RunLock lock(folder));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(Lock, InACopyByHardLinksIsItsOwn) {
  const std::filesystem::path original = folder / "a", copy = folder / "b";
  std::filesystem::create_directories(original);
  std::filesystem::create_directories(copy);
  test::put(original / ".lock", "123\n");  // of a process that was killed
  std::filesystem::create_hard_link(original / ".lock", copy / ".lock");
  const RunLock of_the_copy(copy);
  EXPECT_TRUE(of_the_copy.held());
  EXPECT_EQ(test::contents_of(original / ".lock"), "123\n");
  const RunLock of_the_original(original);
  EXPECT_TRUE(of_the_original.held());
  EXPECT_THROW(RunLock second(copy), FileError);
}

TEST_F(Lock, OfADirectoryThatWasMovedIsNoticed) {
  const std::filesystem::path run = folder / "run";
  std::filesystem::create_directories(run);
  std::optional<RunLock> lock(std::in_place, run);
  EXPECT_NO_THROW(lock->check());
  std::filesystem::rename(run, folder / "moved");
  EXPECT_THROW(lock->check(), RunStopped);
  std::filesystem::create_directories(run);
  const RunLock second(run);
  EXPECT_THROW(lock->check(), RunStopped);
  EXPECT_NO_THROW(second.check());
  lock.reset();
  EXPECT_TRUE(std::filesystem::exists(run / ".lock")) << "that of the second one";
}

TEST_F(Lock, AUsersFileOrLinkIsNotOne) {
  test::put(folder / ".lock", "a user's");
  EXPECT_NE(message_of<FileError>([&] { RunLock lock(folder); }).find(".lock: is not the lock of a run"),
            std::string::npos);
  EXPECT_EQ(test::contents_of(folder / ".lock"), "a user's");
  std::filesystem::rename(folder / ".lock", folder / "target");
  std::filesystem::create_symlink("target", folder / ".lock");
  EXPECT_THROW(RunLock lock(folder), FileError);
  EXPECT_EQ(test::contents_of(folder / "target"), "a user's");
  std::filesystem::remove(folder / ".lock");
  test::put(folder / ".lock", "4711\n");  // that of an earlier version
  EXPECT_NO_THROW(RunLock lock(folder));
}

}  // namespace
}  // namespace mantissa::disk
