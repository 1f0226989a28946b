#include "mantissa/core/disk/look.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/append_file.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/lines.h"

namespace mantissa::disk {
namespace {

using test::message_of;
using test::put;

class Look : public test::TemporaryFolder {
 protected:
  void SetUp() override {
    test::TemporaryFolder::SetUp();
    put(folder / "file", "x");
    std::filesystem::create_directory(folder / "directory");
    std::filesystem::create_symlink("nowhere", folder / "dangling");
    std::filesystem::create_symlink("loop", folder / "loop");
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  }
};

TEST_F(Look, TellsWhatAPathLeadsTo) {
  EXPECT_EQ(kind_of(folder / "file"), Kind::file);
  EXPECT_EQ(kind_of(folder / "directory"), Kind::directory);
  EXPECT_EQ(kind_of(folder / "pipe"), Kind::other);
  EXPECT_EQ(kind_of(folder / "none"), Kind::absent);
  EXPECT_EQ(kind_of(folder / "file" / "none"), Kind::absent);
  EXPECT_EQ(kind_of(folder / std::string(300, 'n')), Kind::absent);
  EXPECT_EQ(kind_of(folder / "dangling"), Kind::absent);
  EXPECT_TRUE(has_name(folder / "dangling"));
  EXPECT_TRUE(is_same(folder / "file", folder / "directory" / ".." / "file"));
  EXPECT_FALSE(is_same(folder / "none", folder / "none"));
}

TEST_F(Look, WhatCannotBeReadIsNotAbsent) {
  EXPECT_NE(message_of<FileError>([&] {
              disk::exists(folder / "loop");
            }).find("loop: cannot be read: Too many levels"),
            std::string::npos);
  EXPECT_THROW(is_file(folder / "loop" / "x"), FileError);
  EXPECT_THROW(entries(folder / "none"), FileError);
  EXPECT_EQ(guess_kind(folder / "loop"), Kind::absent);
}

TEST_F(Look, NamesAreSorted) {
  const std::vector<std::filesystem::path> names = entries(folder);
  ASSERT_EQ(names.size(), 5U);
  EXPECT_EQ(names.front(), folder / "dangling");
  EXPECT_EQ(names.back(), folder / "pipe");
}

// Opening a pipe for reading or writing would wait for its other end.
TEST_F(Look, OnlyRegularFilesAreReadOrAppendedTo) {
  for (const char* name : {"pipe", "directory"}) {
    EXPECT_THROW(read_text_file(folder / name, 100), FileError) << name;
    EXPECT_THROW(LineReader(folder / name), FileError) << name;
    EXPECT_NE(message_of<FileError>([&] { AppendFile(folder / name); }).find("is not a regular file"),
              std::string::npos)
        << name;
  }
  EXPECT_THROW(read_text_file("/dev/zero", 100), FileError);
  EXPECT_THROW(LineReader("/dev/zero"), FileError);
  std::filesystem::create_symlink("file", folder / "link");
  EXPECT_NE(message_of<FileError>([&] { AppendFile(folder / "link"); }).find("link: is a link"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { read_text_file(folder / "file", 0); }).find("has 1 bytes"),
            std::string::npos);
}

TEST_F(Look, WhatIsAppendedReachesNoOtherNameOfTheFile) {
  const std::string text(3'000'000, 'x');  // several pieces
  put(folder / "lines", text);
  std::filesystem::create_hard_link(folder / "lines", folder / "other");
  AppendFile(folder / "lines").write("more");
  EXPECT_TRUE(contents_of(folder / "lines") == text + "more");
  EXPECT_TRUE(contents_of(folder / "other") == text);
  put(folder / "empty", "");
  std::filesystem::create_hard_link(folder / "empty", folder / "another");
  AppendFile(folder / "empty").write("more");
  EXPECT_TRUE(contents_of(folder / "another").empty());
}

TEST_F(Look, LinesHaveTheirNumbersAndTheLastMayBeCut) {
  put(folder / "lines", "a\n\n" + std::string(200'000, 'b') + "\nc");
  LineReader lines(folder / "lines");
  std::string line;
  std::vector<std::size_t> sizes;
  while (lines.next(line)) {
    sizes.push_back(line.size());
    EXPECT_EQ(lines.is_complete(), sizes.size() < 4);
    EXPECT_EQ(lines.number(), static_cast<std::int64_t>(sizes.size()));
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 0, 200'000, 1}));
}

TEST_F(Look, AFileTooLargeForTheDiskTakesNoneOfIt) {
  const int descriptor = ::open((folder / "large").c_str(), O_RDWR | O_CREAT, 0666);
  File file(descriptor, folder / "large");
  EXPECT_THROW(file.reserve(std::uint64_t{1} << 50), ResourceError);
  EXPECT_EQ(file.size(), 0U);
}

}  // namespace
}  // namespace mantissa::disk
