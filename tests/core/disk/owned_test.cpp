// Directories that the program may replace.
#include "mantissa/core/disk/owned.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/atomic.h"

namespace mantissa::disk {
namespace {

namespace fs = std::filesystem;

/// A user other than root, who may remove anything.
class AsOrdinaryUser {
 public:
  static constexpr uid_t kNobody = 65534;
  AsOrdinaryUser() { become(kNobody); }
  ~AsOrdinaryUser() { become(0); }
  AsOrdinaryUser(const AsOrdinaryUser&) = delete;
  AsOrdinaryUser& operator=(const AsOrdinaryUser&) = delete;

 private:
  void become(uid_t user) const {
    const int done = root_ ? setresuid(user, user, 0) : 0;
    EXPECT_EQ(done, 0);
  }
  bool root_ = geteuid() == 0;
};

/// A folder that every user can reach: TMPDIR may be in one that only its owner can.
class Owned : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/mantissa-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }

  fs::path folder;
};

TEST_F(Owned, ADirectoryWhoseFilesThisUserCannotRemoveIsNotReplaced) {
  const fs::path result = folder / "result";
  write_files_atomic(result, kTokenizer, {{"tokenizer.json", "{}"}});
  if (geteuid() == 0) {
    for (const fs::path& path : {folder, result, result / "tokenizer.json", result / kOwnedList})
      ASSERT_EQ(chown(path.c_str(), AsOrdinaryUser::kNobody, static_cast<gid_t>(-1)), 0) << path;
  }
  fs::permissions(result, fs::perms::owner_read | fs::perms::owner_exec);
  {
    const AsOrdinaryUser user;
    try {
      const AtomicDirectory directory(given(result, true), kTokenizer);
      ADD_FAILURE() << "it is about to be replaced";
    } catch (const FileError& e) {
      EXPECT_NE(std::string(e.what()).find("result: is not replaced, since its files cannot be removed"),
                std::string::npos)
          << e.what();
    }
    EXPECT_FALSE(fs::exists(folder / "result.partial"));
    EXPECT_TRUE(fs::exists(result / "tokenizer.json"));
  }
  fs::permissions(result, fs::perms::owner_all);
  const AsOrdinaryUser user;
  AtomicDirectory directory(given(result, true), kTokenizer);
  write_file_atomic(directory.beside() / "tokenizer.json", "[]");
  directory.commit();
  EXPECT_FALSE(fs::exists(folder / "result.partial"));
}

}  // namespace
}  // namespace mantissa::disk
