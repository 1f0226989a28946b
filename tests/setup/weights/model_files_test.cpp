// A model whose config.json is damaged or not a file.
#include "mantissa/setup/weights/model_files.h"

#include <gtest/gtest.h>

#include <string>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::weights {
namespace {

class FindModel : public test::TemporaryFolder {
 protected:
  std::string refused(const std::string& config_json) {
    test::put(folder / "config.json", config_json);
    return test::message_of<FileError>([&] { find_model(folder); });
  }
};

TEST_F(FindModel, ADamagedConfigIsOneErrorThatNamesTheFile) {
  const std::string deep(100000, '[');
  for (const std::string& text :
       {deep, "{\"hidden_size\": " + deep, std::string("{\"hidden_size\": NaN}"),
        std::string("{\"a\": 1e999}"), std::string("{\"a\": \"\xff\"}"), std::string()}) {
    const std::string message = refused(text);
    EXPECT_EQ(message.find((folder / "config.json").string()), 0U) << message;
    EXPECT_EQ(message.find("exception"), std::string::npos) << message;
  }
  EXPECT_NE(refused("{\"a\": 1, \"a\": 2}").find("has the key \"a\" twice"), std::string::npos);
}

TEST_F(FindModel, AnInaccessiblePathIsNotADirectory) {
  std::filesystem::create_symlink("loop", folder / "loop");
  const std::string message = test::message_of<FileError>([&] { find_model(folder / "loop"); });
  EXPECT_NE(message.find("loop: cannot be read: Too many levels of symbolic links"), std::string::npos)
      << message;
}

TEST_F(FindModel, ADirectoryWithoutConfigIsAnError) {
  const std::string message = test::message_of<FileError>([&] { find_model(folder); });
  EXPECT_NE(message.find("has no config.json, so it is not a model"), std::string::npos) << message;
}

}  // namespace
}  // namespace mantissa::weights
