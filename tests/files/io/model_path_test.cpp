// What paths to models name (files/io/model_path.h).
#include "mantissa/files/io/model_path.h"

#include <gtest/gtest.h>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"
#include "mantissa/files/io/state.h"

namespace mantissa::io {
namespace {

namespace fs = std::filesystem;
using Kind = ModelPath::Kind;

class OpenModel : public test::TemporaryFolder {
 protected:
  /// Writes an empty file, or one with `text`, and its folders.
  fs::path file(const std::string& name, const std::string& text = "") const {
    const fs::path path = folder / name;
    fs::create_directories(path.parent_path());
    test::put(path, text);
    return path;
  }
  void expect(const fs::path& given, Kind kind, const std::string& path, const std::string& weights) const {
    const ModelPath found = open_model(given);
    EXPECT_EQ(found.kind, kind) << given;
    EXPECT_EQ(found.path, folder / path) << given;
    EXPECT_EQ(found.weights, folder / weights) << given;
  }
  void expect_refused(const fs::path& given, const std::string& message) const {
    try {
      open_model(given);
      FAIL() << given;
    } catch (const FileError& e) {
      EXPECT_EQ(e.message(), given.string() + ": " + message);
    }
  }
};

TEST_F(OpenModel, DirectoryWithAConfigOrWeightsIsAModel) {
  file("a/config.json");
  file("b/model.safetensors");
  expect(folder / "a", Kind::model, "a", "a");
  expect(folder / "b", Kind::model, "b", "b");
  expect(folder / "a/config.json", Kind::model, "a", "a");
  expect(file("b/model.safetensors.index.json"), Kind::model, "b", "b/model.safetensors.index.json");
}

TEST_F(OpenModel, FileOfWeightsIsItself) {
  expect(file("w.pth"), Kind::file, "w.pth", "w.pth");
  expect(file("w.safetensors"), Kind::file, "w.safetensors", "w.safetensors");
  expect(file("w.gguf"), Kind::gguf, "w.gguf", "w.gguf");
  expect(file("unnamed", "GGUF\3"), Kind::gguf, "unnamed", "unnamed");
}

TEST_F(OpenModel, RunStandsForItsModelItsAdapterOrItsNewestState) {
  file("run/state/step-00000002/state.safetensors");
  file("run/state/step-00000010/state.safetensors");
  const std::vector<FoundState> states = find_states(folder / "run");
  ASSERT_EQ(states.size(), 2U);
  const std::string newest = "run/state/step-00000010";
  expect(folder / "run", Kind::state, newest, newest + "/state.safetensors");
  expect(states.front().path, Kind::state, "run/state/step-00000002",
         "run/state/step-00000002/state.safetensors");
  file("run/adapter/adapter_config.json");
  expect(folder / "run", Kind::adapter, "run/adapter", "run/adapter");
  file("run/model/config.json");
  expect(folder / "run", Kind::model, "run/model", "run/model");
}

TEST_F(OpenModel, DirectoryInPeftsLayoutIsAnAdapter) {
  file("a/adapter_config.json");
  file("a/adapter_model.safetensors");
  expect(folder / "a", Kind::adapter, "a", "a");
}

TEST_F(OpenModel, DownloadsANameOfTheHub) {
  const auto message = [](const fs::path& path) {
    return test::message_of<FileError>([&] { open_model(path); });
  };
  const fs::path absent = folder / "Owner" / "Some-1.5B";  // as of a config
  EXPECT_TRUE(message(absent).ends_with(
      ". Fix: if Owner/Some-1.5B is a model of the Hugging Face Hub, download it with `hf download Owner/Some-1.5B "
      "--local-dir " +
      absent.string() + "`"))
      << message(absent);
  EXPECT_TRUE(message("owner/name").ends_with("with `hf download owner/name --local-dir owner/name`"));
  EXPECT_TRUE(message(fs::current_path() / "owner/name").ends_with(" --local-dir owner/name`"));
  file("owner/model/config.json");
  for (const fs::path& path : {folder / "owner/name", folder / "a/b/c", fs::path("a/b/c"), fs::path("./a/b"),
                               fs::path("../a/b"), fs::path("/a/b"), fs::path("a b/c"), fs::path("name")})
    EXPECT_EQ(message(path).find("hf download"), std::string::npos) << path;
}

TEST_F(OpenModel, NamesWhatIsNotAModel) {
  expect_refused(
      folder / "nowhere",
      "not found; expected a model directory, a run, an adapter, or a file of weights (safetensors, "
      "GGUF, or a checkpoint of PyTorch)");
  expect_refused(file("run.toml"), "expected a model, got a config. Fix: give the directory of its run");
  fs::create_symlink(folder / "gone", folder / "link");
  expect_refused(folder / "link",
                 "is a link to " + (folder / "gone").string() + ", which does not exist; check the link");
  fs::create_symlink("loop", folder / "loop");
  expect_refused(folder / "loop",
                 "cannot be read: Too many levels of symbolic links; check its permissions and its disk");
}

TEST_F(OpenModel, WhatCannotBeReadIsNotAbsent) {
  for (const char* name : {"config.json", "adapter_config.json", "state"}) {
    const fs::path run = folder / (std::string("of_") + name);
    fs::create_directories(run);
    fs::create_symlink(name, run / name);  // a loop
    const std::string message = test::message_of<FileError>([&] { open_model(run); });
    EXPECT_EQ(message,
              (run / name).string() +
                  ": cannot be read: Too many levels of symbolic links; check its permissions and its disk");
  }
}

}  // namespace
}  // namespace mantissa::io
