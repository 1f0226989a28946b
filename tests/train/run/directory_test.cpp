#include "mantissa/train/run/directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "mantissa/core/base/error.h"

namespace mantissa::run {
namespace {

class Directory : public ::testing::Test {
 protected:
  Directory()
      : path_(std::filesystem::temp_directory_path() / ("mantissa-directory-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
  }
  ~Directory() override { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  void add_state(std::int64_t step) const {
    io::StateHeader header;
    header.step = step;
    header.model_config = "{}";
    const std::vector<std::byte> bytes(4);
    const std::vector<io::TensorToWrite> tensors = {{"master.x", io::Dtype::f32, {1}, bytes, {}}};
    io::write_state(path_, header, tensors, 9);
  }
  std::optional<std::int64_t> chosen(std::optional<std::int64_t> resume, bool overwrite = false) const {
    const std::optional<io::FoundState> state = choose_state({path_, overwrite, resume});
    return state ? std::optional(state->step) : std::nullopt;
  }

  std::filesystem::path path_;
};

TEST_F(Directory, ThatIsEmptyBeginsARunAtTheStart) {
  EXPECT_EQ(chosen({}), std::nullopt);
  EXPECT_EQ(chosen(0), std::nullopt);
  EXPECT_EQ(chosen({}, true), std::nullopt);
  EXPECT_THROW(chosen(5), FileError);
}

TEST_F(Directory, WithStatesIsResumedOrOverwrittenOnlyByOption) {
  add_state(5);
  add_state(10);
  EXPECT_EQ(chosen(0), 10);
  EXPECT_EQ(chosen(5), 5);
  EXPECT_EQ(chosen({}, true), std::nullopt);
  try {
    chosen({});
    FAIL();
  } catch (const FileError& e) {
    EXPECT_NE(e.message().find("state of step 10"), std::string::npos);
    EXPECT_FALSE(e.cures().empty());
  }
  try {
    chosen(7);
    FAIL();
  } catch (const FileError& e) {
    EXPECT_NE(e.message().find("5 10"), std::string::npos) << "the steps that there are";
  }
}

TEST_F(Directory, KeepsTheModelThatTheRunStartsFrom) {
  std::filesystem::create_directories(path_ / "model");
  std::filesystem::create_directories(path_ / "state/step-00000005");
  for (const char* part : {"model", "state/step-00000005"}) {
    weights::ModelSource source{{}, path_ / part};
    EXPECT_THROW(check_place(path_, source), FileError) << part;
    EXPECT_NO_THROW(check_place(path_ / "other", source)) << part;
    weights::use_memory(source, std::make_shared<io::MemoryTensors>());
    EXPECT_NO_THROW(check_place(path_, source)) << part;
  }
  EXPECT_NO_THROW(check_place(path_, {}));
}

}  // namespace
}  // namespace mantissa::run
