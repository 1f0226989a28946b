#include "mantissa/io/atomic.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/temporary.h"
#include "mantissa/base/error.h"

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

TEST_F(Atomic, ErrorsNameAnUnwritablePath) {
  put(folder / "f", "a file");
  EXPECT_NE(message_of<FileError>([&] { write_file_atomic(folder / "none" / "f", "x"); }).find("none"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { AtomicDirectory(folder / "f" / "d"); }).find("f/d"),
            std::string::npos);
}

}  // namespace
}  // namespace mantissa::io
