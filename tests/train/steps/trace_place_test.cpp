// The files that a trace may replace.
#include "mantissa/train/steps/trace_place.h"

#include <gtest/gtest.h>

#include <array>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::train {
namespace {

class TracePlace : public test::TemporaryFolder {
 protected:
  /// Returns the message of the refusal to write `out`, or "" if it may be written.
  std::string refusal(const char* out, bool overwrite) {
    options_.out = folder / out;
    options_.overwrite = overwrite;
    try {
      check_place(options_);
      return "";
    } catch (const FileError& e) {
      return e.message();
    }
  }
  void write_trace_at(const char* name) const {
    const std::array<float, 1> value = {1};
    std::vector<io::TensorToWrite> tensors;
    for (const char* tensor : {"logits", "log_probs", "loss"})
      tensors.push_back({tensor, io::Dtype::f32, {1}, std::as_bytes(std::span(value)), nullptr});
    io::write_safetensors(folder / name, tensors, {{"mantissa.policy", "32-true"}});
  }

  TraceOptions options_;
};

TEST_F(TracePlace, IsNeverAnInput) {
  std::filesystem::create_directory(folder / "model");
  for (const char* name : {"model/config.json", "ids", "ds.json"}) test::put(folder / name, "an input");
  options_.model.directory = options_.model.weights = folder / "model";
  options_.tokens = folder / "ids";
  options_.deepspeed = folder / "ds.json";
  for (const char* name : {"model/config.json", "ids", "ds.json"})
    EXPECT_NE(refusal(name, true).find("is the input itself"), std::string::npos) << name;
  EXPECT_NE(refusal("model", true).find("is a directory"), std::string::npos);
}

TEST_F(TracePlace, IsAnotherFileOnlyOnRequest) {
  test::put(folder / "mine", "a file of the user");
  EXPECT_NE(refusal("mine", false).find("exists already"), std::string::npos);
  EXPECT_EQ(refusal("mine", true), "");
  EXPECT_EQ(refusal("new", false), "");
}

TEST_F(TracePlace, MayBeAnEarlierTraceAlsoInTheModelsDirectory) {
  std::filesystem::create_directory(folder / "model");
  options_.model.directory = options_.model.weights = folder / "model";
  write_trace_at("model/t");
  EXPECT_EQ(refusal("model/t", false), "");
}

}  // namespace
}  // namespace mantissa::train
