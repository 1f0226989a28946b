#include "mantissa/core/disk/sudden_end.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/disk/temporary.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/owned.h"

namespace mantissa::disk {
namespace {

using test::contents_of;
using test::put;

void end(int /*signal*/) {
  remove_at_sudden_end();
  ::_exit(3);
}

class SuddenEnd : public test::TemporaryFolder {
 protected:
  /// Runs `body` in another process, which handles SIGTERM by end(), and returns what the process exits with.
  static int exit_of(const std::function<void()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(SIGTERM, end);
      try {
        body();
      } catch (...) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::ptrdiff_t entries() const { return std::distance(std::filesystem::directory_iterator(folder), {}); }
};

TEST_F(SuddenEnd, RemovesAnUnfinishedFileAndKeepsTheOldOne) {
  put(folder / "f", "old");
  EXPECT_EQ(exit_of([&] {
              AtomicFile file(folder / "f");
              file.write(std::as_bytes(std::span(std::string_view("new"))));
              ::raise(SIGTERM);
            }),
            3);
  EXPECT_EQ(contents_of(folder / "f"), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(SuddenEnd, RemovesAnUnfinishedDirectoryWithManyFilesAndItsNewParents) {
  EXPECT_EQ(exit_of([&] {
              AtomicDirectory directory(folder / "a" / "b" / "d", kModel);
              for (int i = 0; i < 500; ++i)  // more names than one look at a directory returns
                write_file_atomic(directory.beside() / ("file" + std::to_string(i)), "text");
              const AtomicFile open(directory.beside() / "open");
              ::raise(SIGTERM);
            }),
            3);
  EXPECT_EQ(entries(), 0);
}

TEST_F(SuddenEnd, KeepsWhatAppeared) {
  std::filesystem::create_directory(folder / "mine");
  put(folder / "mine" / "f", "mine");
  write_files_atomic(folder / "d", kModel, {{"a", "old"}});
  EXPECT_EQ(exit_of([&] {
              AtomicDirectory directory(folder / "d", kModel);
              write_file_atomic(directory.beside() / "a", "new");
              directory.commit();
              AtomicFile file(folder / "mine" / "g");
              file.commit();
              ::raise(SIGTERM);
            }),
            3);
  EXPECT_EQ(contents_of(folder / "d" / "a"), "new");
  EXPECT_EQ(contents_of(folder / "mine" / "f"), "mine");
  EXPECT_EQ(contents_of(folder / "mine" / "g"), "");
  EXPECT_EQ(entries(), 2);
}

TEST_F(SuddenEnd, KeepsFilesOfOthersInAnUnfinishedDirectory) {
  EXPECT_EQ(exit_of([&] {
              AtomicDirectory directory(folder / "d", kModel);
              write_file_atomic(directory.beside() / "ours", "ours");
              put(directory.beside() / "theirs", "theirs");
              ::raise(SIGTERM);
            }),
            3);
  EXPECT_EQ(contents_of(folder / "d.partial" / "theirs"), "theirs");
  EXPECT_FALSE(std::filesystem::exists(folder / "d.partial" / "ours"));
}

TEST_F(SuddenEnd, KeepsANameThatBelongsToAnotherFileNow) {
  EXPECT_EQ(exit_of([&] {
              AtomicFile file(folder / "f");
              std::filesystem::remove(folder / "f.partial");
              put(folder / "f.partial", "theirs");
              ::raise(SIGTERM);
            }),
            3);
  EXPECT_EQ(contents_of(folder / "f.partial"), "theirs");
}

TEST_F(SuddenEnd, AForkedProcessRemovesNothingOfItsParent) {
  const AtomicFile file(folder / "f");
  EXPECT_EQ(exit_of([] { ::raise(SIGTERM); }), 3);
  EXPECT_TRUE(std::filesystem::exists(folder / "f.partial"));
}

TEST_F(SuddenEnd, WaitsForCallsThatAreUndivided) {
  EXPECT_EQ(exit_of([&] {
              std::optional<AtomicFile> file(std::in_place, folder / "f");
              std::atomic<bool> is_inside = false;
              std::jthread other([&] {
                const Undivided whole;
                is_inside = true;
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                std::filesystem::rename(folder / "f.partial", folder / "g");
              });
              while (!is_inside) std::this_thread::yield();
              ::raise(SIGTERM);
            }),
            3);
  EXPECT_TRUE(std::filesystem::exists(folder / "g"));
  EXPECT_EQ(entries(), 1);
}

TEST_F(SuddenEnd, ASignalWaitsUntilTheUndividedCallsOfItsThreadAreDone) {
  EXPECT_EQ(exit_of([&] {
              const AtomicFile file(folder / "f");
              const Undivided whole;
              ::raise(SIGTERM);
              std::filesystem::rename(folder / "f.partial", folder / "g");
            }),
            3);
  EXPECT_TRUE(std::filesystem::exists(folder / "g"));
  EXPECT_EQ(entries(), 1);
}

TEST_F(SuddenEnd, MoreNamesThanTheTableHoldsAreLeft) {
  EXPECT_EQ(exit_of([&] {
              std::vector<std::unique_ptr<AtomicFile>> files;
              for (int i = 0; i < 70; ++i)
                files.push_back(std::make_unique<AtomicFile>(folder / std::to_string(i)));
              files.erase(files.begin(), files.begin() + 10);  // ten entries are free again
              files.push_back(std::make_unique<AtomicFile>(folder / "last"));
              ::raise(SIGTERM);
            }),
            3);
  EXPECT_EQ(entries(), 70 - 64);
  EXPECT_FALSE(std::filesystem::exists(folder / "last.partial"));
}

}  // namespace
}  // namespace mantissa::disk
