// Checkpoints of RWKV-LM as models: their logits have the bits of those of the converted directory.
#include "engine/runtime/device.h"
#include "files/convert/gguf_testing.h"
#include "mantissa/core/base/error.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/train/steps/trace.h"

namespace mantissa::weights {
namespace {

class RwkvModel : public convert::GgufModel {
 protected:
  void SetUp() override {
    convert::GgufModel::SetUp();
    for (const convert::SmallModel& model : convert::small_models()) {
      if (std::string(model.name) == "Rwkv7") write(model.config, Scalar::bf16);
    }
    convert::convert({io::open_model(in()), pth(), {}, true, convert::Layout::pth}, {});
  }

  std::filesystem::path pth() const { return folder / "model.pth"; }

  static std::vector<train::TracedTensor> trace_of(const ModelSource& model, const char* policy) {
    train::TraceOptions o;
    o.model = model;
    o.ids = {{1, 38, 11, 48, 21, 58, 31, 4, 41}};
    o.policy = precision::Policy::parse(policy);
    return train::write_trace(o, mantissa::testing::best_device()).tensors;
  }
};

TEST_F(RwkvModel, HasTheBitsOfTheConvertedDirectory) {
  convert::convert({io::open_model(pth()), folder / "directory", {}, true}, {});
  for (const char* policy : {"32-true", "bf16-mixed", "64-true"}) {
    const auto got = trace_of(find_model(pth()), policy),
               want = trace_of(find_model(folder / "directory"), policy);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(got[i].bytes == want[i].bytes) << got[i].name << " under " << policy;
  }
}

TEST_F(RwkvModel, TheNamesInTheFileCountAndNotAConfigBesideIt) {
  test::put(folder / "config.json", R"({"model_type": "gpt2"})");
  const ModelSource source = find_model(pth());
  EXPECT_EQ(source.config.model_type, "rwkv7");
  EXPECT_EQ(source.directory, folder);
}

TEST_F(RwkvModel, ItsUnusedTensorsAreANoteOfTheModel) {
  const ModelSource source = find_model(pth());
  ASSERT_EQ(source.config.notes.size(), 1U);
  EXPECT_NE(source.config.notes.front().find("are not used by RWKV-7 and left out"), std::string::npos);
}

}  // namespace
}  // namespace mantissa::weights
