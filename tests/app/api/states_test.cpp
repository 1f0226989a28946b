// Runs with optimizer states in blocks: files, resuming, and resuming in another format.
#include <gtest/gtest.h>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/files/io/state.h"

namespace mantissa::api {
namespace {

using testing::into;
using testing::TemporaryFolder;

/// The embedding has 32 blocks; blocks of the feed-forward end within its rows.
std::string config(const std::string& policy, int steps = 6) {
  std::string text = testing::tiny_config(steps, policy);
  const std::string small = "hidden_size = 16\nintermediate_size = 24\n";
  return text.replace(text.find(small), small.size(), "hidden_size = 32\nintermediate_size = 136\n");
}

class StatesIn : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string policy() { return "bf16-mixed optimizer=" + std::string(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Formats, StatesIn, ::testing::Values("dynamic8-256", "e4m3-256", "f16-256"),
                         [](const auto& p) {
                           return std::string(p.param).substr(0, std::string(p.param).find('-'));
                         });

TEST_P(StatesIn, ResumedEndWithTheBytesOfARunThatNeverStopped) {
  testing::expect_same_bytes_from(Config::parse(config(policy())), {3});
}

TEST_P(StatesIn, MicroBatchesAndThreadsChangeNoBit) {
  const TemporaryFolder folder;
  const std::string whole = train(Config::parse(config(policy())), into(folder / "a")).weights_xxh64;
  std::string text = config(policy());
  text.replace(text.find("[run]\n"), 6, "[run]\nthreads = 1\n");
  text.replace(text.find("micro_batch_size = 2"), 20, "micro_batch_size = 1");
  EXPECT_EQ(train(Config::parse(text), into(folder / "b")).weights_xxh64, whole);
  EXPECT_NE(train(Config::parse(config("bf16-mixed")), into(folder / "c")).weights_xxh64, whole);
}

/// A state is read as its values, whatever the format in which it is kept from then on.
TEST_P(StatesIn, GoOnFromAndToStatesInF32) {
  const TemporaryFolder folder;
  for (const auto& [from, to] :
       {std::pair(policy(), std::string("bf16-mixed")), {std::string("bf16-mixed"), policy()}}) {
    const std::filesystem::path run = folder / (from == policy() ? "widened" : "narrowed");
    train(Config::parse(config(from, 3)), into(run));
    TrainOptions again = into(run);
    again.resume = 3;
    const Summary end = train(Config::parse(config(to, 6)), again);
    EXPECT_EQ(end.steps, 6);
    // The moments were not lost: Adam without them would make the first step after the resume one of full
    // size.
    const auto losses = testing::steps_of(run);
    EXPECT_LT(losses.back()["loss"].get<double>(), losses[2]["loss"].get<double>() + 0.3);
  }
}

TEST_P(StatesIn, LieInFilesAsCodesWithScales) {
  const TemporaryFolder folder;
  train(Config::parse(config(policy(), 3)), into(folder / "run"));
  const io::SafetensorsReader file(folder / "run/state/step-00000003/state.safetensors");
  const std::string weight = "model.embed_tokens.weight";
  const io::TensorInfo* codes = file.find("second_moment." + weight);
  const io::TensorInfo* scales = file.find("second_moment." + weight + ".scales");
  ASSERT_NE(codes, nullptr);
  ASSERT_NE(scales, nullptr);
  const std::map<std::string, io::Dtype> kDtypes = {
      {"dynamic8-256", io::Dtype::u8}, {"e4m3-256", io::Dtype::e4m3}, {"f16-256", io::Dtype::f16}};
  EXPECT_EQ(codes->dtype, kDtypes.at(GetParam()));
  EXPECT_EQ(codes->shape, (std::vector<std::int64_t>{256, 32}));
  EXPECT_EQ(scales->dtype, io::Dtype::f32);
  EXPECT_EQ(scales->shape, (std::vector<std::int64_t>{32}));
  EXPECT_EQ(file.find("second_moment.model.norm.weight.scales"), nullptr) << "it has 32 elements";
}

/// A state whose checksums are right may still hold tensors that do not belong together.
TEST_P(StatesIn, WithOtherScalesAreRefused) {
  const TemporaryFolder folder;
  train(Config::parse(config(policy(), 3)), into(folder / "run"));
  const io::FoundState found = io::find_states(folder / "run").back();
  const std::string name = "first_moment.model.embed_tokens.weight.scales";
  std::vector<std::vector<std::byte>> bytes;
  std::vector<io::TensorToWrite> tensors;
  io::StateHeader header;
  {
    const io::StateReader state(found.path);
    header = state.header();
    for (const io::TensorInfo& t : state.tensors().tensors()) {
      state.tensors().read(t.name, bytes.emplace_back(t.end - t.begin));
      if (t.name == name) bytes.back().resize(bytes.back().size() / 2);
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const io::TensorInfo& t = state.tensors().tensors()[i];
      tensors.push_back({t.name, t.dtype, t.shape, bytes[i], nullptr});
      if (t.name == name) tensors.back().shape.front() /= 2;
    }
  }
  io::write_state(folder / "run", header, tensors, 3);
  TrainOptions again = into(folder / "run");
  again.resume = 3;
  for (const std::string& to : {policy(), std::string("bf16-mixed")}) {
    try {
      train(Config::parse(config(to, 6)), again);
      FAIL() << "the state was not refused";
    } catch (const ShapeError& e) {
      EXPECT_NE(
          std::string(e.what()).find("tensor \"" + name +
                                     "\" is F32 [16], but first_moment.model.embed_tokens.weight has 32 "
                                     "blocks, each with a scale in F32"),
          std::string::npos)
          << e.what();
    }
  }
}

/// From one format of blocks to another, through f32 or at once, the values are the same.
TEST(States, ChangeFromOneFormatOfBlocksToAnother) {
  const TemporaryFolder folder;
  train(Config::parse(config("32-true optimizer=dynamic8-256", 3)), into(folder / "run"));
  TrainOptions again = into(folder / "run");
  again.resume = 3;
  EXPECT_EQ(train(Config::parse(config("32-true optimizer=e4m3-256", 6)), again).steps, 6);
  again.resume = 6;
  EXPECT_EQ(train(Config::parse(config("32-true optimizer=dynamic8-256", 7)), again).steps, 7);
}

}  // namespace
}  // namespace mantissa::api
