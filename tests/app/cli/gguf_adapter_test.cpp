// LoRA adapters as GGUF files.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "app/cli/run_program.h"
#include "mantissa/files/gguf/gguf_file.h"

namespace mantissa::testing {
namespace {

class GgufAdapters : public ::testing::Test {
 protected:
  void SetUp() override {
    write(folder / "base.toml", config("") + "[run]\nsteps = 2\n");
    ASSERT_EQ(run("train base.toml --out b --quiet").code, 0);
    ASSERT_EQ(run("convert b base.gguf --dtype f32").code, 0);
  }
  static std::string config(const std::string& model) {
    return "[model]\n" +
           (model.empty() ? "hidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = 2\n"
                            "num_attention_heads = 4\nnum_key_value_heads = 2\nvocab_size = 256\n"
                          : model) +
           "[data]\nsource = \"kk\"\nsequence_length = 32\n[batch]\nglobal_batch_size = 4\n[optimizer]\nlr = "
           "1e-2\n[precision]\npolicy = \"32-true\"\n";
  }
  Result run(const std::string& arguments) const { return mantissa(folder, arguments); }
  /// Trains an adapter of the base as the run `r`.
  void adapt(const std::string& settings) {
    write(folder / "run.toml",
          config("path = \"b/model\"\n") + "[run]\nsteps = 3\n[adapter]\nkind = \"lora\"\n" + settings);
    const Result r = run("train run.toml --out r --quiet --overwrite");
    ASSERT_EQ(r.code, 0) << r.err;
  }
  std::string refusal() const {
    const Result r = run("convert r a.gguf");
    EXPECT_EQ(r.code, 2) << r.out;
    EXPECT_FALSE(std::filesystem::exists(folder / "a.gguf"));
    return r.err;
  }

  TemporaryFolder folder;
};

std::vector<float> values(const gguf::GgufFile& file, const std::string& name) {
  const gguf::FileTensor* tensor = file.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<float> all(tensor->count());
  std::memcpy(all.data(), file.data(*tensor).data(), all.size() * 4);
  return all;
}

/// llama.cpp adds alpha / rank · B·A to the weights of the base, as merge does, with the rows in its order.
TEST_F(GgufAdapters, GiveTheWeightsOfTheMergedModel) {
  for (const char* settings : {"rank = 4\nalpha = 6\ntarget = \"all-linear\"\n",
                               "rank = 4\nrslora = true\ntarget = [\"*.q_proj\", \"*.k_proj\"]\n"}) {
    adapt(settings);
    ASSERT_EQ(run("convert r a.gguf --overwrite").code, 0);
    ASSERT_EQ(run("merge b/model r merged --dtype f32 --overwrite").code, 0);
    ASSERT_EQ(run("convert merged merged.gguf --overwrite").code, 0);
    const gguf::GgufFile adapter(folder / "a.gguf"), base(folder / "base.gguf"),
        merged(folder / "merged.gguf");
    EXPECT_EQ(adapter.text("general.type"), "adapter");
    EXPECT_EQ(adapter.text("adapter.type"), "lora");
    EXPECT_EQ(adapter.text("general.architecture"), base.text("general.architecture"));
    const double alpha = adapter.number("adapter.lora.alpha").value();
    int changed = 0;
    for (const gguf::FileTensor& tensor : base.tensors()) {
      const std::vector<float> before = values(base, tensor.name), after = values(merged, tensor.name);
      if (adapter.find(tensor.name + ".lora_a") == nullptr) {
        EXPECT_EQ(before, after) << tensor.name;
        continue;
      }
      const std::vector<float> a = values(adapter, tensor.name + ".lora_a"),
                               b = values(adapter, tensor.name + ".lora_b");
      const std::size_t in = static_cast<std::size_t>(tensor.shape[1]), rank = a.size() / in;
      ASSERT_EQ(rank, 4U);
      for (std::size_t i = 0; i < before.size(); ++i) {
        double sum = 0, size = 0;
        for (std::size_t r = 0; r < rank; ++r) {
          const double term = double{b[i / in * rank + r]} * a[r * in + i % in];
          sum += term, size += std::fabs(term);
        }
        // Four products and sums, the scale and the sum with the weight, each rounded to f32.
        const double scale = alpha / static_cast<double>(rank),
                     bound = 8 * 0x1p-24 * (scale * size + std::fabs(before[i]));
        ASSERT_NEAR(after[i], before[i] + scale * sum, bound) << tensor.name << " " << i;
        changed += after[i] != before[i] ? 1 : 0;
      }
    }
    EXPECT_GT(changed, 1000) << "trained";
  }
}

TEST_F(GgufAdapters, AreRoundedToTheDtypeWithAReport) {
  adapt("rank = 2\n");
  const Result r = run("convert r a.gguf --dtype f16");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(has(r.out, "blk.0.attn_q.weight.lora_a")) << r.out;
  EXPECT_TRUE(has(r.out, "load it beside the base in GGUF")) << r.out;
  const gguf::GgufFile adapter(folder / "a.gguf");
  for (const gguf::FileTensor& tensor : adapter.tensors())
    EXPECT_STREQ(tensor.type->name, "F16") << tensor.name;
}

TEST_F(GgufAdapters, OfOtherKindsAreRefusedWithTheCommandThatMerges) {
  adapt("rank = 2\ndora = true\n");
  EXPECT_TRUE(has(refusal(), "has the magnitudes of DoRA, which llama.cpp does not add to a model. Fix: "))
      << refusal();
  EXPECT_TRUE(has(refusal(), " r/adapter MERGED")) << refusal();
  adapt("rank = 2\n");
  const Result r = run("convert r a.gguf --dtype q8_0");
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.err, "--dtype q8_0: an adapter is written in f32, bf16 or f16")) << r.err;
  std::filesystem::rename(folder / "b", folder / "elsewhere");
  EXPECT_TRUE(has(refusal(), "is not here, and gives the names and the order of rows")) << refusal();
}

}  // namespace
}  // namespace mantissa::testing
