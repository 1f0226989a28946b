// The base with which the run of an adapter began.
#include "mantissa/setup/weights/base_hash.h"

#include <gtest/gtest.h>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::weights::base_hash_test {
namespace {

class StartOfAdapter : public test::TemporaryFolder {
 protected:
  std::string refusal() const {
    return test::message_of<FileError>([&] { changed_base({}, folder); });
  }
  std::string name() const { return (folder / "start.safetensors").string(); }
};

TEST_F(StartOfAdapter, ThatIsMissingTellsNothing) {
  EXPECT_EQ(changed_base({}, folder), std::nullopt);
  EXPECT_EQ(changed_base({}, folder / "nothing"), std::nullopt);
}

TEST_F(StartOfAdapter, ThatCannotBeReadIsAnErrorAndNotAbsence) {
  std::filesystem::create_symlink("start.safetensors", folder / "start.safetensors");  // a loop
  EXPECT_EQ(refusal().find(name() + ": cannot be read: "), 0U) << refusal();
  std::filesystem::remove(folder / "start.safetensors");
  std::filesystem::create_directory(folder / "start.safetensors");
  EXPECT_EQ(refusal().find(name() + ": is not a regular file"), 0U) << refusal();
  std::filesystem::remove(folder / "start.safetensors");
  test::put(folder / "start.safetensors", "no header");
  EXPECT_EQ(refusal().find(name()), 0U) << refusal();
}

}  // namespace
}  // namespace mantissa::weights::base_hash_test
