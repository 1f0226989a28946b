#include "mantissa/files/io/atomic.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/io/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::io {
namespace {

using test::contents_of;
using test::message_of;
using test::put;

class Atomic : public test::TemporaryFolder {
 protected:
  std::ptrdiff_t entries() const { return std::distance(std::filesystem::directory_iterator(folder), {}); }
};

TEST_F(Atomic, ReplacesAFileCompletely) {
  put(folder / "f", "a long old text");
  write_file_atomic(folder / "f", "new");
  EXPECT_EQ(contents_of(folder / "f"), "new");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Atomic, AFileThatIsNotCommittedChangesNothing) {
  put(folder / "f", "old");
  {
    AtomicFile file(folder / "f");
    file.write(std::as_bytes(std::span(std::string_view("new"))));
    EXPECT_EQ(contents_of(folder / "f"), "old");
    EXPECT_EQ(entries(), 2);
  }
  EXPECT_EQ(contents_of(folder / "f"), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Atomic, FilesOfOneResultAreReplacedTogetherOrNotAtAll) {
  write_file_atomic(folder / "a", "old");
  EXPECT_THROW(write_files_atomic(folder, {{"a", "new"}, {"missing/b", "new"}}), Error);
  EXPECT_EQ(contents_of(folder / "a"), "old");
  EXPECT_THROW(write_files_atomic(folder / "x" / "y", {{"a", "new"}, {"missing/b", "new"}}), Error);
  { const AtomicDirectory directory(folder / "x" / "y"); }
  EXPECT_EQ(entries(), 1) << "no directory remains";
  write_files_atomic(folder, {{"a", "new"}, {"b", "also"}});
  write_files_atomic(folder / "c" / "d", {{"a", "new"}});
  EXPECT_EQ(contents_of(folder / "c" / "d" / "a"), "new");
  EXPECT_EQ(contents_of(folder / "a"), "new");
  EXPECT_EQ(contents_of(folder / "b"), "also");
}

TEST_F(Atomic, OverwritesFilesLeftByACrash) {
  put(folder / "f.partial", "half of something longer than what comes");
  write_file_atomic(folder / "f", "new");
  EXPECT_EQ(contents_of(folder / "f"), "new");
  EXPECT_EQ(entries(), 1);
  std::filesystem::create_directories(folder / "d.partial" / "half");
  AtomicDirectory directory(folder / "d");
  write_file_atomic(directory.beside() / "whole", "x");
  directory.commit();
  EXPECT_FALSE(std::filesystem::exists(folder / "d" / "half"));
  EXPECT_TRUE(std::filesystem::exists(folder / "d" / "whole"));
  EXPECT_EQ(entries(), 2);
}

TEST_F(Atomic, MessagesHaveTheFinalNames) {
  const auto message_of = [](const auto& write) {
    try {
      write();
    } catch (const Error& e) {
      return e.message();
    }
    return std::string();
  };
  EXPECT_EQ(message_of([&] { write_file_atomic(folder / "no" / "f", "x"); }),
            (folder / "no" / "f").string() + ": its folder does not exist; create it or check the path");
  AtomicDirectory directory(folder / "d");
  EXPECT_EQ(
      message_of([&] { write_file_atomic(directory.beside() / "no" / "f", "x"); }),
      (folder / "d" / "no" / "f").string() + ": its folder does not exist; create it or check the path");
}

TEST_F(Atomic, FilesHaveThePermissionsOfTheUmask) {
  const mode_t before = ::umask(027);
  write_file_atomic(folder / "f", "x");
  ::umask(before);
  EXPECT_EQ(static_cast<int>(std::filesystem::status(folder / "f").permissions()), 0640);
}

TEST_F(Atomic, ADirectoryAppearsComplete) {
  {
    AtomicDirectory directory(folder / "a" / "b");
    put(directory.beside() / "f", "x");
    std::filesystem::create_directory(directory.beside() / "deeper");
    put(directory.beside() / "deeper" / "g", "y");
    EXPECT_FALSE(std::filesystem::exists(folder / "a" / "b"));
    directory.commit();
  }
  EXPECT_EQ(contents_of(folder / "a" / "b" / "f"), "x");
  EXPECT_EQ(contents_of(folder / "a" / "b" / "deeper" / "g"), "y");
}

TEST_F(Atomic, ADirectoryReplacesTheOldOne) {
  std::filesystem::create_directory(folder / "d");
  put(folder / "d" / "old", "x");
  AtomicDirectory directory(folder / "d/");  // with a trailing slash
  put(directory.beside() / "new", "y");
  EXPECT_TRUE(std::filesystem::exists(folder / "d" / "old"));
  directory.commit();
  EXPECT_FALSE(std::filesystem::exists(folder / "d" / "old"));
  EXPECT_EQ(contents_of(folder / "d" / "new"), "y");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Atomic, ADirectoryThatIsNotCommittedChangesNothing) {
  std::filesystem::create_directory(folder / "d");
  put(folder / "d" / "old", "x");
  {
    AtomicDirectory directory(folder / "d");
    put(directory.beside() / "new", "y");
  }
  EXPECT_EQ(contents_of(folder / "d" / "old"), "x");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Atomic, ALinkStaysAndLeadsToTheNewFile) {
  std::filesystem::create_directory(folder / "d");
  put(folder / "d" / "f", "old");
  std::filesystem::create_symlink("d/f", folder / "link");
  std::filesystem::create_symlink("d/g", folder / "dangling");
  write_file_atomic(folder / "link", "new");
  write_file_atomic(folder / "dangling", "first");
  EXPECT_EQ(contents_of(folder / "d" / "f"), "new");
  EXPECT_EQ(contents_of(folder / "d" / "g"), "first");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "dangling"));
  EXPECT_EQ(entries(), 3);
}

TEST_F(Atomic, APipeIsWrittenAndStays) {
  const std::filesystem::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);  // a write waits for a reader
  ASSERT_GE(reader, 0);
  write_file_atomic(pipe, "new");
  char got[8] = {};
  EXPECT_EQ(::read(reader, got, sizeof got), 3);
  ::close(reader);
  EXPECT_STREQ(got, "new");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(entries(), 1);
}

TEST_F(Atomic, AFullDeviceIsAnErrorAndStays) {
  const std::filesystem::path full = folder / "full";  // a link protects the device from a test that fails
  std::filesystem::create_symlink("/dev/full", full);
  EXPECT_NE(message_of<ResourceError>([&] { write_file_atomic(full, "x"); }).find("the disk is full"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::is_character_file(full));
}

TEST_F(Atomic, ErrorsNameAnUnwritablePath) {
  put(folder / "f", "a file");
  EXPECT_NE(message_of<FileError>([&] { write_file_atomic(folder / "none" / "f", "x"); }).find("none"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] {
              AtomicDirectory(folder / "f" / "d");
            }).find("/f\": cannot create the directory: "),
            std::string::npos);
}

}  // namespace
}  // namespace mantissa::io
