// Configs on disk: paths in them, and files that are not TOML texts.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/config/run_config.h"
#include "setup/config/config_text.h"

namespace mantissa::config {
namespace {

class ConfigFile : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() /
           ("mantissa_config_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path write(const std::string& text) const {
    std::ofstream(dir_ / "run.toml", std::ios::binary) << text;
    return dir_ / "run.toml";
  }
  static std::string file_error(const std::filesystem::path& path) {
    try {
      load_config(path);
    } catch (const FileError& e) {
      return e.what();
    }
    ADD_FAILURE() << "nothing was refused";
    return {};
  }
  std::filesystem::path dir_;
};

TEST_F(ConfigFile, IsReadFromDisk) {
  std::string text = kSmallest;
  text.append("validation = \"held.txt\"\n");
  const RunConfig c = load_config(write(text), Strings{"run.steps=2"});
  EXPECT_EQ(c.run.steps, 2);
  EXPECT_EQ(c.data.validation.files, Strings{(dir_ / "held.txt").string()});
}

TEST_F(ConfigFile, ThatIsNotTextIsAnError) {
  EXPECT_EQ(file_error(dir_ / "none.toml"),
            (dir_ / "none.toml").string() + ": there is no such file; check the path");
  EXPECT_EQ(file_error(dir_), dir_.string() + ": is a directory; give the path of a config file");
  const std::string name = (dir_ / "run.toml").string();
  EXPECT_EQ(file_error(write(std::string("\x7f"
                                         "ELF\0\0",
                                         6))),
            name + ": expected a config, a TOML text, got binary data; give the path of a config file");
  EXPECT_EQ(
      file_error(write(std::string(2000000, '#'))),
      name + ": has 2000000 bytes, but such a file has at most 1048576; check that it is the right file");
}

}  // namespace
}  // namespace mantissa::config
