// Policies as settings of other systems.
#include "mantissa/precision/policy/emit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "precision/policy/message.h"

namespace mantissa::precision::emit_test {
namespace {

using Strings = std::vector<std::string>;

TEST(Emit, WritesEachRecipeAsItIsRead) {
  const struct {
    const char *system, *policy, *settings;
  } cases[] = {
      {"te", "NVFP4BlockScaling()",
       "from transformer_engine.common.recipe import NVFP4BlockScaling\n\nrecipe = NVFP4BlockScaling()\n"},
      {"te", "bf16-mixed compute=nvfp4 hadamard=16",
       "from transformer_engine.common.recipe import NVFP4BlockScaling\n\nrecipe = "
       "NVFP4BlockScaling(disable_stochastic_rounding=True, disable_2d_quantization=True)\n"},
      {"te", "MXFP8BlockScaling(fp8_format=Format.HYBRID)",
       "from transformer_engine.common.recipe import Format, MXFP8BlockScaling\n\nrecipe = "
       "MXFP8BlockScaling(fp8_format=Format.HYBRID)\n"},
      {"te", "Float8BlockScaling()",
       "from transformer_engine.common.recipe import Format, Float8BlockScaling\n\nrecipe = "
       "Float8BlockScaling(fp8_format=Format.E4M3)\n"},
      {"te", "Float8BlockScaling(use_f32_scales=True)",
       "from transformer_engine.common.recipe import Format, Float8BlockScaling\n\nrecipe = "
       "Float8BlockScaling(fp8_format=Format.E4M3, use_f32_scales=True)\n"},
      {"te", "bf16-mixed compute=fp8-hybrid amax_history=16 scale_margin=2",
       "from transformer_engine.common.recipe import Format, DelayedScaling\n\nrecipe = DelayedScaling(margin=2, "
       "fp8_format=Format.HYBRID, amax_history_len=16, amax_compute_algo=\"max\")\n"},
      {"te", "16-mixed loss_scale=none",
       "# Transformer Engine has no recipe for this; torch alone:\ntorch.autocast(\"cuda\", dtype=torch.float16)\n"},
      {"megatron", "--fp16 --loss-scale 128", "--fp16 \\\n--loss-scale 128\n"},
      {"deepspeed", "32-true", "{}\n"},
  };
  for (const auto& c : cases) {
    const Emitted e = emitted(Policy::parse(c.policy), c.system);
    EXPECT_EQ(e.settings, c.settings) << c.policy;
    EXPECT_EQ(e.missing, Strings{}) << c.policy;
  }
}

/// These systems quantize the weights of a module that they have cast.
TEST(Emit, SaysWhichWeightsAreRounded) {
  const struct {
    const char *system, *policy, *settings;
  } cases[] = {
      {"torchtitan", "--quantize.linear.float8.recipe_name rowwise",
       "--training.mixed_precision_param bfloat16 \\\n--model.converters quantize.linear.float8 \\\n"
       "--quantize.linear.float8.filter_fqns output \\\n--quantize.linear.float8.recipe_name rowwise\n"},
      {"torchtitan", "--quantize.linear.mx.recipe_name mxfp8_cublas",
       "--training.mixed_precision_param bfloat16 \\\n--model.converters quantize.linear.mx \\\n"
       "--quantize.linear.mx.filter_fqns output \\\n--quantize.linear.mx.recipe_name mxfp8_cublas\n"},
      {"megatron", "--bf16 --fp4-format e2m1", "--bf16 \\\n--fp4-format e2m1 \\\n--fp4-recipe nvfp4\n"},
      {"megatron", "--bf16 --fp32-residual-connection --fp8-format e4m3 --fp8-recipe blockwise",
       "--bf16 \\\n--fp32-residual-connection \\\n--fp8-format e4m3 \\\n--fp8-recipe blockwise\n"},
  };
  for (const auto& c : cases) {
    const Emitted e = emitted(Policy::parse(c.policy), c.system);
    EXPECT_EQ(e.settings, c.settings) << c.policy;
    EXPECT_EQ(e.missing,
              (Strings{"weights are rounded to the recipe's format from f32 masters; there from a 16-bit "
                       "copy of them"}))
        << c.policy;
  }
}

/// DeepSpeed casts whole modules.
TEST(Emit, WritesDeepSpeedsBlocks) {
  const Emitted e = emitted(Policy::parse("16-mixed residual=f16 loss_scale=dynamic:2^12"), "deepspeed");
  EXPECT_NE(e.settings.find("\"fp16\": {\"enabled\": true, \"loss_scale\": 0, \"initial_scale_power\": 12}"),
            std::string::npos)
      << e.settings;
  EXPECT_EQ(e.missing, Strings{});
}

TEST(Emit, SaysWhatAnotherSystemDoesNotExpress) {
  EXPECT_EQ(emitted(Policy::parse("bf16-mixed kv=f16; lm_head: compute=f32"), "te").missing,
            (Strings{"kv=f16; theirs is bf16", "the rule \"lm_head: compute=f32\""}));
  EXPECT_EQ(emitted(Policy::parse("bf16-mixed compute=mxfp4"), "te").missing,
            (Strings{"compute=mxfp4; theirs is bf16"}));
  EXPECT_EQ(emitted(Policy::parse("bf16-true"), "megatron").missing.front(), "params=bf16; theirs is f32");
  const Strings missing = emitted(Policy::parse("bf16-mixed compute=nvfp4"), "megatron").missing;
  for (const char* part : {"gradient_rounding=nearest; theirs is stochastic",
                           "weight_block=auto; theirs is 16x16", "hadamard=none; theirs is 16"})
    EXPECT_EQ(std::ranges::count(missing, part), 1) << part;
  EXPECT_EQ(emitted(Policy::parse("transformer-engine-float16"), "megatron").missing.front(),
            "compute=fp8-hybrid-f16; theirs is f16");
}

/// Whatever a policy is, settings and differences together say all of it.
TEST(Emit, HasNoDifferenceOnlyIfTheSettingsMeanThePolicy) {
  for (const char* policy : {"32-true", "tf32", "64-true", "bf16-mixed", "16-mixed", "16-true",
                             "bf16-matmul-x3", "bf16-mixed accumulate=h100"}) {
    for (const std::string& system : emitted_systems()) {
      const Emitted e = emitted(Policy::parse(policy), system);
      if (system != "megatron" && system != "torchtitan") continue;
      std::string line = e.settings;
      if (line.empty()) line = "32-true";
      EXPECT_EQ(e.missing.empty(), Policy::parse(line).line() == Policy::parse(policy).line())
          << policy << " for " << system;
    }
  }
}

TEST(Emit, RefusesAnUnknownSystem) {
  EXPECT_EQ(
      message_of([] { emitted(Policy(), "megatrn"); }),
      "--emit \"megatrn\": unknown system; did you mean \"megatron\"? (systems: te, torchtitan, megatron, "
      "deepspeed)");
}

}  // namespace
}  // namespace mantissa::precision::emit_test
