#include "mantissa/core/disk/output.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::disk {
namespace {

namespace fs = std::filesystem;
using test::put;

class OutputPlace : public test::TemporaryFolder {
 protected:
  /// Returns the message, or "" if the output is fine.
  static std::string refusal(const Output& out, const std::vector<fs::path>& inputs) {
    try {
      check_output(out, inputs);
    } catch (const FileError& error) {
      return error.what();
    }
    return "";
  }
  std::string refusal(const fs::path& out, Shape shape, const std::vector<fs::path>& inputs = {}) const {
    return refusal(Output{folder / out, shape, true, "OUT"}, inputs);
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
};

TEST_F(OutputPlace, IsNotAnInputNorAroundItNorInsideOfIt) {
  fs::create_directories(folder / "in" / "deep");
  put(folder / "in" / "file", "x");
  fs::create_symlink("in", folder / "link");
  fs::create_symlink("in/new", folder / "dangling");
  const std::vector<fs::path> input = {folder / "in"}, file = {folder / "in" / "file"};
  EXPECT_TRUE(has(refusal("in", Shape::directory, input), "/in: is the input itself; choose another OUT"));
  EXPECT_TRUE(has(refusal("link", Shape::directory, input), "is the input itself"));
  EXPECT_TRUE(has(refusal("in/file", Shape::file, file), "is the input itself"));
  EXPECT_TRUE(has(refusal("in/file/x", Shape::directory, file), "lies in the input"));
  EXPECT_TRUE(has(refusal("in/new", Shape::file, input), "lies in the input"));
  EXPECT_TRUE(has(refusal("in/deep/new", Shape::directory, input), "lies in the input"));
  EXPECT_TRUE(has(refusal("dangling", Shape::directory, input), "lies in the input"));
  EXPECT_TRUE(has(refusal("link/deep/../new", Shape::directory, input), "lies in the input"));
  EXPECT_TRUE(has(refusal("in", Shape::directory, file), "contains the input"));
  EXPECT_TRUE(has(refusal(".", Shape::directory, file), "contains the input"));
  for (const char* apart : {"in2", "other", "new/deep"})
    EXPECT_EQ(refusal(apart, Shape::directory, input), "");
}

TEST_F(OutputPlace, HasTheShapeOfWhatIsWritten) {
  put(folder / "file", "");
  fs::create_directory(folder / "directory");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const Shape shape : {Shape::stream, Shape::file, Shape::directory}) {
    EXPECT_EQ(refusal("file", shape).empty(), shape != Shape::directory);
    EXPECT_EQ(refusal("directory", shape).empty(), shape == Shape::directory);
    EXPECT_EQ(refusal("pipe", shape).empty(), shape == Shape::stream);
  }
  EXPECT_TRUE(has(refusal("pipe", Shape::file), "written in any order. Fix: choose another OUT"));
}

TEST_F(OutputPlace, HasAFolder) {
  put(folder / "file", "");
  EXPECT_TRUE(has(refusal("none/f", Shape::stream), "its folder does not exist"));
  EXPECT_TRUE(has(refusal("file/f", Shape::stream), "its folder does not exist"));
  EXPECT_TRUE(has(refusal("file/d", Shape::directory), "its folder does not exist"));
  EXPECT_EQ(refusal("none/deep/d", Shape::directory), "");
  EXPECT_FALSE(fs::exists(folder / "none")) << "nothing is created";
}

TEST_F(OutputPlace, ThatExistsIsKeptUnlessItIsToBeReplaced) {
  put(folder / "file", "x");
  fs::create_directory(folder / "empty");
  const auto refused = [&](const char* name, Shape shape) {
    return refusal(Output{folder / name, shape}, {});
  };
  EXPECT_TRUE(
      has(refused("file", Shape::stream), "file: exists already; choose another --out, or replace it"));
  EXPECT_EQ(refused("empty", Shape::directory), "");
  put(folder / "empty" / "f", "x");
  EXPECT_TRUE(has(refused("empty", Shape::directory), "exists already"));
}

}  // namespace
}  // namespace mantissa::disk
