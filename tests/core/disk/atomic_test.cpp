#include "mantissa/core/disk/atomic.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/core/disk/unfinished.h"

namespace mantissa::disk {
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

TEST_F(Atomic, APartOfSeveralFilesIsCompletedAndAllOfThemAreKept) {
  put(folder / "notes", "mine");
  const auto write = [&](std::string_view text) {
    write_files_atomic(folder, kTokenizer, {{"a", text}, {"b", text}}, Existing::keep);
  };
  write("first");
  std::filesystem::remove(folder / "b");  // what an interrupted command left
  write("second");
  EXPECT_EQ(contents_of(folder / "a"), "second");
  EXPECT_EQ(contents_of(folder / "b"), "second");
  EXPECT_THROW(write("third"), FileError);
  EXPECT_EQ(contents_of(folder / "a"), "second");
  EXPECT_EQ(contents_of(folder / "notes"), "mine");
}

TEST_F(Atomic, FilesThatDoNotAppearAreNotInTheList) {
  put(folder / "notes", "mine");
  write_files_atomic(folder, kTokenizer, {{"a", "old"}});
  std::filesystem::create_directory(folder / "b");  // a file cannot take this name
  EXPECT_THROW(write_files_atomic(folder, kTokenizer, {{"b", "new"}, {"c", "new"}}), FileError);
  EXPECT_EQ(owned_names(folder), std::set<std::string>{"a"});
  EXPECT_EQ(entries(), 4);  // with the list
}

TEST_F(Atomic, MessagesHaveTheFinalNames) {
  const std::string absent = ": its folder does not exist; create it or check the path";
  EXPECT_EQ(message_of<FileError>([&] { write_file_atomic(folder / "no" / "f", "x"); }),
            (folder / "no" / "f").string() + absent);
  const AtomicDirectory directory(folder / "d", kModel);
  EXPECT_EQ(message_of<FileError>([&] { write_file_atomic(directory.beside() / "no" / "f", "x"); }),
            (folder / "d" / "no" / "f").string() + absent);
}

TEST_F(Atomic, FilesOfOneResultAreReplacedTogetherOrNotAtAll) {
  write_file_atomic(folder / "a", "old");
  EXPECT_THROW(write_files_atomic(folder, kTokenizer, {{"a", "new"}, {"missing/b", "new"}}), Error);
  EXPECT_EQ(contents_of(folder / "a"), "old");
  EXPECT_THROW(write_files_atomic(folder / "x" / "y", kTokenizer, {{"a", "new"}, {"missing/b", "new"}}),
               Error);
  { const AtomicDirectory directory(folder / "x" / "y", kModel); }
  EXPECT_EQ(entries(), 1) << "no directory remains";
  EXPECT_NE(message_of<FileError>([&] {
              write_files_atomic(folder, kTokenizer, {{"a", "new"}});
            }).find("a: is in the way"),
            std::string::npos)
      << "no list names it";
  put(folder / kOwnedList, owned_list({"a"}, kTokenizer));
  write_files_atomic(folder, kTokenizer, {{"a", "new"}, {"b", "also"}});
  EXPECT_EQ(owned_names(folder), (std::set<std::string>{"a", "b"}));
  write_files_atomic(folder / "c" / "d", kTokenizer, {{"a", "new"}});
  EXPECT_EQ(contents_of(folder / "c" / "d" / "a"), "new");
  EXPECT_EQ(owned_names(folder / "c" / "d"), (std::set<std::string>{"a"}));
  write_files_atomic(folder / "c" / "d", kTokenizer, {{"a", "newest"}});
  write_files_atomic(folder / "c" / "d", kTokenizer, {{"e", "newer"}});
  EXPECT_EQ(contents_of(folder / "c" / "d" / "a"), "newest") << "of another result";
  put(folder / "c" / "d" / "notes", "a user's");
  write_files_atomic(folder / "c" / "d", kTokenizer, {{"e", "newest"}});
  EXPECT_EQ(contents_of(folder / "c" / "d" / "notes"), "a user's");
  EXPECT_EQ(contents_of(folder / "c" / "d" / "e"), "newest");
  EXPECT_EQ(contents_of(folder / "a"), "new");
  EXPECT_EQ(contents_of(folder / "b"), "also");
}

/// What a process that is killed while it writes leaves: `write` runs in a child that ends without unwinding.
template <class F>
void in_killed_process(F write) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    write();
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST_F(Atomic, OverwritesWhatAKilledProcessLeft) {
  in_killed_process([&] {
    static AtomicFile file(folder / "f");
    file.write(std::as_bytes(std::span(std::string_view("half of something longer than what comes"))));
  });
  in_killed_process([&] {
    static AtomicDirectory directory(folder / "d", kModel);
    write_file_atomic(directory.beside() / "half", "x");
  });
  ASSERT_EQ(entries(), 2);
  write_file_atomic(folder / "f", "new");
  EXPECT_EQ(contents_of(folder / "f"), "new");
  AtomicDirectory directory(folder / "d", kModel);
  write_file_atomic(directory.beside() / "whole", "x");
  directory.commit();
  EXPECT_FALSE(std::filesystem::exists(folder / "d" / "half"));
  EXPECT_TRUE(std::filesystem::exists(folder / "d" / "whole"));
  EXPECT_EQ(entries(), 2);
}

TEST_F(Atomic, AbandonedNamesAreRemovedAndOthersStay) {
  in_killed_process([&] { static AtomicFile file(folder / "f"); });
  in_killed_process([&] {
    static AtomicDirectory directory(folder / "d", kModel);
    write_file_atomic(directory.beside() / "half", "x");
  });
  put(folder / "mine.partial", "a user's");
  const AtomicFile busy(folder / "busy");
  remove_abandoned(folder);
  EXPECT_EQ(contents_of(folder / "mine.partial"), "a user's");
  EXPECT_TRUE(std::filesystem::exists(folder / "busy.partial"));
  EXPECT_EQ(entries(), 2);
}

TEST_F(Atomic, SomebodyElsesNamesAreNeverTaken) {
  put(folder / "f.partial", "a user's");
  std::filesystem::create_directory(folder / "d.partial");
  put(folder / "target", "a user's");
  std::filesystem::create_symlink("target", folder / "g.partial");
  for (const char* name : {"f", "d", "g"}) {
    EXPECT_NE(
        message_of<FileError>([&] { write_file_atomic(folder / name, "x"); }).find(".partial: is in the way"),
        std::string::npos);
    EXPECT_NE(message_of<FileError>([&] {
                AtomicDirectory(folder / name, kModel);
              }).find(".partial: is in the way"),
              std::string::npos);
  }
  EXPECT_EQ(contents_of(folder / "f.partial"), "a user's");
  EXPECT_EQ(contents_of(folder / "target"), "a user's");
  EXPECT_EQ(entries(), 4);
}

TEST_F(Atomic, NamesMayBeAsLongAsTheFileSystemAllows) {
  const std::string name(255, 'n'), other = std::string(254, 'n') + "m";
  AtomicFile file(folder / name), second(folder / other);
  EXPECT_THROW(AtomicFile third(folder / name), FileError);
  file.commit();
  second.commit();
  AtomicDirectory directory(folder / std::string(250, 'd'), kModel);
  directory.commit();
  EXPECT_EQ(entries(), 3);
}

TEST_F(Atomic, ANameHasOneWriter) {
  AtomicFile first(folder / "f");
  EXPECT_NE(message_of<FileError>([&] {
              AtomicFile second(folder / "f");
            }).find("f: another process is writing it"),
            std::string::npos);
  AtomicDirectory directory(folder / "d", kModel);
  EXPECT_NE(message_of<FileError>([&] {
              AtomicDirectory second(folder / "d", kModel);
            }).find("d: another process is writing it"),
            std::string::npos);
  first.commit();
  directory.commit();
  EXPECT_NO_THROW(AtomicFile third(folder / "f"));
  EXPECT_EQ(entries(), 2);
}

// Between the look of a command at its output and its first byte, another one may have completed.
TEST_F(Atomic, AnExistingResultIsKeptUnlessItIsToBeReplaced) {
  put(folder / "f", "another's");
  EXPECT_THROW(write_file_atomic(given(folder / "f", false), "mine"), FileError);
  EXPECT_EQ(contents_of(folder / "f"), "another's");
  AtomicFile slow(given(folder / "g", false));
  put(folder / "g", "another's");
  EXPECT_THROW(slow.commit(), FileError);
  EXPECT_EQ(contents_of(folder / "g"), "another's");
  AtomicDirectory directory(Target(folder / "d", Links::replace, Existing::keep), kModel);
  std::filesystem::create_directory(folder / "d");
  put(folder / "d" / "f", "another's");
  EXPECT_THROW(directory.commit(), FileError);
  EXPECT_EQ(contents_of(folder / "d" / "f"), "another's");
  write_file_atomic(given(folder / "f", true), "mine");
  EXPECT_EQ(contents_of(folder / "f"), "mine");
}

TEST_F(Atomic, FilesHaveThePermissionsOfTheUmask) {
  const mode_t before = ::umask(027);
  write_file_atomic(folder / "f", "x");
  ::umask(before);
  EXPECT_EQ(static_cast<int>(std::filesystem::status(folder / "f").permissions()), 0640);
}

TEST_F(Atomic, ADirectoryAppearsComplete) {
  {
    AtomicDirectory directory(folder / "a" / "b", kModel);
    write_file_atomic(directory.beside() / "f", "x");
    EXPECT_FALSE(std::filesystem::exists(folder / "a" / "b"));
    directory.commit();
  }
  EXPECT_EQ(contents_of(folder / "a" / "b" / "f"), "x");
  EXPECT_EQ(owned_names(folder / "a" / "b"), (std::set<std::string>{"f"}));
  for (const char* path : {"a/b", "a/b/f", "a/b/.mantissa.json"}) {
    EXPECT_EQ(std::filesystem::status(folder / path).permissions() & std::filesystem::perms::sticky_bit,
              std::filesystem::perms::none)
        << path;
  }
}

class OwnedDirectory : public Atomic {
 protected:
  void SetUp() override {
    Atomic::SetUp();
    AtomicDirectory directory(folder / "d", kModel);
    write_file_atomic(directory.beside() / "old", "x");
    directory.commit();
  }
};

TEST_F(OwnedDirectory, IsReplaced) {
  AtomicDirectory directory(folder / "d/", kModel);  // with a trailing slash
  write_file_atomic(directory.beside() / "new", "y");
  EXPECT_TRUE(std::filesystem::exists(folder / "d" / "old"));
  directory.commit();
  EXPECT_FALSE(std::filesystem::exists(folder / "d" / "old"));
  EXPECT_EQ(contents_of(folder / "d" / "new"), "y");
  EXPECT_EQ(entries(), 1);
}

TEST_F(OwnedDirectory, StaysIfItsReplacementIsNotCommitted) {
  {
    AtomicDirectory directory(folder / "d", kModel);
    write_file_atomic(directory.beside() / "new", "y");
  }
  EXPECT_EQ(contents_of(folder / "d" / "old"), "x");
  EXPECT_EQ(entries(), 1);
}

TEST_F(OwnedDirectory, IsNotReplacedOrRemovedWithAnotherFileInIt) {
  put(folder / "d" / "notes.txt", "a user's");
  for (const bool whole : {false, true}) {
    EXPECT_NE(message_of<FileError>([&] {
                whole ? remove_whole(folder / "d") : static_cast<void>(AtomicDirectory(folder / "d", kModel));
              }).find("d: contains \"notes.txt\", which this program did not write"),
              std::string::npos);
  }
  EXPECT_EQ(contents_of(folder / "d" / "notes.txt"), "a user's");
  EXPECT_EQ(contents_of(folder / "d" / "old"), "x");
  std::filesystem::remove(folder / "d" / "notes.txt");
  remove_whole(folder / "d");
  EXPECT_EQ(entries(), 0);
}

TEST_F(OwnedDirectory, IsNotReplacedWithADirectoryInIt) {
  std::filesystem::create_directory(folder / "d" / "deeper");
  put(folder / "d" / kOwnedList, owned_list({"old", "deeper"}, kModel));
  EXPECT_NE(
      message_of<FileError>([&] { AtomicDirectory(folder / "d", kModel); }).find("d: contains \"deeper\""),
      std::string::npos);
  EXPECT_EQ(contents_of(folder / "d" / "old"), "x");
}

TEST_F(OwnedDirectory, OneWithoutAListIsSomebodyElses) {
  std::filesystem::remove(folder / "d" / kOwnedList);
  EXPECT_NE(message_of<FileError>([&] {
              AtomicDirectory(folder / "d", kModel);
            }).find("d: is not replaced: it has no "),
            std::string::npos);
  put(folder / "d" / kOwnedList, "{\"files\": [\"../x\"]}");
  EXPECT_NE(
      message_of<FileError>([&] { AtomicDirectory(folder / "d", kModel); }).find("is not a list of files"),
      std::string::npos);
  EXPECT_EQ(contents_of(folder / "d" / "old"), "x");
  EXPECT_EQ(entries(), 1);
}

TEST_F(OwnedDirectory, IsNotReplacedByAnotherKindOfResult) {
  EXPECT_NE(message_of<FileError>([&] {
              AtomicDirectory(folder / "d", kShards);
            }).find("d: contains a model, which is never replaced by token shards"),
            std::string::npos);
  EXPECT_EQ(contents_of(folder / "d" / "old"), "x");
  // Reports may be beside other results, but not replace their files.
  write_files_atomic(folder / "d", kAudit, {{"audit.json", "1"}, {"report.html", "1"}});
  write_files_atomic(folder / "d", kAudit, {{"audit.json", "2"}, {"report.html", "2"}});
  EXPECT_NE(message_of<FileError>([&] {
              write_files_atomic(folder / "d", kComparison, {{"report.html", "3"}});
            }).find("d: contains an audit, which is never replaced by a comparison"),
            std::string::npos);
  EXPECT_THROW(write_files_atomic(folder / "d", kTokenizer, {{"tokenizer.json", "3"}}), FileError);
  EXPECT_EQ(contents_of(folder / "d" / "report.html"), "2");
  EXPECT_EQ(owned_kinds(folder / "d"),
            (OwnedKinds{{"audit.json", "audit"}, {"old", "model"}, {"report.html", "audit"}}));
}

TEST_F(OwnedDirectory, AListOfAnEarlierVersionIsThatOfAnyKind) {
  put(folder / "d" / kOwnedList, "{\"files\": [\"old\"]}");
  AtomicDirectory directory(folder / "d", kShards);
  directory.commit();
  EXPECT_FALSE(std::filesystem::exists(folder / "d" / "old"));
}

// On file systems that cannot exchange two names (tests/faults/plain_renames_test.cpp kills at each call).
TEST_F(OwnedDirectory, ComesBackIfAKillInterruptedItsReplacement) {
  mark_directory(folder / "d");
  std::filesystem::rename(folder / "d", folder / "d.replaced");
  { AtomicDirectory uncommitted(folder / "d", kModel); }
  EXPECT_EQ(contents_of(folder / "d" / "old"), "x");
  EXPECT_EQ(entries(), 1);
  mark_directory(folder / "d");
  std::filesystem::rename(folder / "d", folder / "d.replaced");
  AtomicDirectory(folder / "e", kModel).commit();
  std::filesystem::rename(folder / "e", folder / "d");
  AtomicDirectory(folder / "d", kModel).commit();
  EXPECT_FALSE(std::filesystem::exists(folder / "d" / "old"));
  EXPECT_EQ(entries(), 1) << "the replaced one is removed";
  std::filesystem::create_directory(folder / "d.replaced");
  AtomicDirectory(folder / "d", kModel).commit();
  EXPECT_TRUE(std::filesystem::exists(folder / "d.replaced")) << "somebody else's stays";
}

TEST_F(OwnedDirectory, ALinkStaysAndLeadsToTheNewDirectory) {
  std::filesystem::create_symlink("d", folder / "link");
  std::filesystem::create_symlink("e", folder / "dangling");
  for (const char* name : {"link", "dangling/"}) {
    AtomicDirectory directory(given(folder / name, true), kModel);
    write_file_atomic(directory.beside() / "new", "y");
    directory.commit();
  }
  write_files_atomic(folder / "dangling", kAudit, {{"audit.json", "1"}});
  EXPECT_EQ(contents_of(folder / "d" / "new"), "y");
  EXPECT_FALSE(std::filesystem::exists(folder / "d" / "old"));
  EXPECT_EQ(contents_of(folder / "e" / "audit.json"), "1");
  for (const char* name : {"link", "dangling"})
    EXPECT_TRUE(std::filesystem::is_symlink(folder / name)) << name;
  std::filesystem::create_symlink("f/g", folder / "deep");
  std::filesystem::create_directory(folder / "f");
  make_directories(folder / "deep" / "h");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "f" / "g" / "h"));
  EXPECT_EQ(entries(), 6);
}

TEST_F(Atomic, ALinkStaysAndLeadsToTheNewFile) {
  std::filesystem::create_directory(folder / "d");
  put(folder / "d" / "f", "old");
  std::filesystem::create_symlink("d/f", folder / "link");
  std::filesystem::create_symlink("d/g", folder / "dangling");
  write_file_atomic(given(folder / "link", true), "new");
  write_file_atomic(given(folder / "dangling", true), "first");
  EXPECT_EQ(contents_of(folder / "d" / "f"), "new");
  EXPECT_EQ(contents_of(folder / "d" / "g"), "first");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "dangling"));
  EXPECT_EQ(entries(), 3);
}

// In a directory whose names are the program's, a link would lead to somebody else's file.
TEST_F(Atomic, ALinkUnderANameOfTheProgramIsReplaced) {
  put(folder / "target", "a user's");
  std::filesystem::create_symlink("target", folder / "link");
  write_file_atomic(folder / "link", "new");
  EXPECT_EQ(contents_of(folder / "target"), "a user's");
  EXPECT_FALSE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(contents_of(folder / "link"), "new");
}

TEST_F(Atomic, APipeIsWrittenAndStays) {
  const std::filesystem::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);  // a write waits for a reader
  ASSERT_GE(reader, 0);
  write_file_atomic(given(pipe, true), "new");
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
  EXPECT_NE(message_of<ResourceError>([&] {
              write_file_atomic(given(full, true), "x");
            }).find("the device accepts no more bytes: No space left on device"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::is_character_file(full));
}

TEST_F(Atomic, ErrorsNameAnUnwritablePath) {
  put(folder / "f", "a file");
  EXPECT_NE(message_of<FileError>([&] { write_file_atomic(folder / "none" / "f", "x"); }).find("none"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] {
              AtomicDirectory(folder / "f" / "d", kModel);
            }).find("/f\": cannot create the directory: "),
            std::string::npos);
}

}  // namespace
}  // namespace mantissa::disk
