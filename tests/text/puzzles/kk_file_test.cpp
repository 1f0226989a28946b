#include "mantissa/text/puzzles/kk_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::text {
namespace {

class KkFile : public mantissa::test::TemporaryFolder {};

TEST_F(KkFile, AreOneRowOnEachLine) {
  KkOptions options;
  options.count = 3;
  write_kk(options, folder / "f", false);
  std::string rows;
  for (const KkPuzzle& p : generate(options)) rows += to_jsonl_row(p) + '\n';
  EXPECT_EQ(mantissa::test::contents_of(folder / "f"), rows);
  EXPECT_NE(
      mantissa::test::message_of<FileError>([&] { write_kk(options, folder / "f", false); }).find("exists"),
      std::string::npos);
  options.count = 1;
  write_kk(options, folder / "f", true);
  EXPECT_LT(mantissa::test::contents_of(folder / "f").size(), rows.size());
}

// A process limit stands in for a full disk: the write fails midway in the same way.
TEST_F(KkFile, AFullDiskKeepsTheOldFileAndLeavesNoOther) {
  mantissa::test::put(folder / "f", "old");
  KkOptions options;
  options.count = 500;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 14, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message =
      mantissa::test::message_of<ResourceError>([&] { write_kk(options, folder / "f", true); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("exceeds the file size limit"), std::string::npos) << message;
  EXPECT_EQ(mantissa::test::contents_of(folder / "f"), "old");
  EXPECT_FALSE(std::filesystem::exists(folder / "f.partial"));
}

}  // namespace
}  // namespace mantissa::text
