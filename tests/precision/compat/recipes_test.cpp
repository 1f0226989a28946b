// Recipes of Transformer Engine, torchao, torchtitan and Megatron-LM.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mantissa/precision/policy/policy.h"
#include "precision/policy/message.h"

namespace mantissa::compat::recipes_test {
namespace {

using precision::Policy;

struct Case {
  const char *text, *policy;
};

void expect_equal(const std::vector<Case>& cases) {
  for (const auto& [text, policy] : cases)
    EXPECT_EQ(Policy::parse(text).line(), Policy::parse(policy).line()) << text;
}

constexpr const char* kRowwise =
    "bf16-mixed compute=mxfp8 scale_rounding=rceil weight_block=row activation_block=row";

TEST(Recipes, OfTransformerEngineAreCallsOrNames) {
  expect_equal({
      {"DelayedScaling()", "bf16-mixed compute=fp8-hybrid"},
      {"DelayedScaling", "bf16-mixed compute=fp8-hybrid"},
      {"recipe.DelayedScaling(margin=1, fp8_format=Format.E4M3, amax_history_len=16, amax_compute_algo=\"max\")",
       "bf16-mixed compute=e4m3 scale_margin=1 amax_history=16"},
      {"DelayedScaling(fp8_format=recipe.Format.HYBRID, amax_history_len=16, amax_compute_algo='most_recent')",
       "bf16-mixed compute=fp8-hybrid amax_history=1"},
      {"Float8CurrentScaling()", "bf16-mixed compute=fp8-hybrid scaling=current"},
      {"MXFP8BlockScaling()", "bf16-mixed compute=mxfp8 scale_rounding=rceil"},
      {"MXFP8BlockScaling(fp8_format=Format.HYBRID, enable_2d_quantization=True)",
       "bf16-mixed compute=mxfp8 scale_rounding=rceil weight_block=32x32; *: operand=gradient compute=mxfp8-e5m2"},
      {"Float8BlockScaling()",
       "bf16-mixed compute=mxfp8 scale_rounding=rceil weight_block=128x128 activation_block=1x128"},
      {"Float8BlockScaling(fp8_format=Format.HYBRID, use_f32_scales=True)",
       "bf16-mixed compute=mxfp8 scale_rounding=none weight_block=128x128 activation_block=1x128; *: operand=gradient "
       "compute=mxfp8-e5m2"},
      {"NVFP4BlockScaling()",
       "bf16-mixed compute=nvfp4 weight_block=16x16 gradient_rounding=stochastic hadamard=16"},
      {"NVFP4BlockScaling(disable_rht=True, disable_stochastic_rounding=True, disable_2d_quantization=True)",
       "bf16-mixed compute=nvfp4"},
      {"MXFP8BlockScaling(backward_override=\"high_precision\")",
       "bf16-mixed compute=mxfp8 scale_rounding=rceil; *: pass=backward compute=bf16"},
  });
}

TEST(Recipes, OfTorchaoAndTorchtitanAreNames) {
  expect_equal({
      {"tensorwise", "bf16-mixed compute=fp8-hybrid scaling=current"},
      {"float8_tensorwise", "bf16-mixed compute=fp8-hybrid scaling=current"},
      {"Float8LinearConfig.from_recipe_name(\"rowwise\")", kRowwise},
      {"float8_rowwise residual=bf16",
       "bf16-mixed compute=mxfp8 scale_rounding=rceil weight_block=row activation_block=row residual=bf16"},
      {"rowwise_with_gw_hp",
       "bf16-mixed compute=mxfp8 scale_rounding=rceil weight_block=row activation_block=row; *: op=matmul.dx "
       "operand=weight compute=e4m3 scaling=current; *: op=matmul.dw compute=bf16"},
      {"mxfp8_rceil", "bf16-mixed compute=mxfp8 scale_rounding=rceil"},
      {"mxfp8_cublas", "bf16-mixed compute=mxfp8"},
      {"Float8LinearConfig()", "bf16-mixed compute=fp8-hybrid scaling=current"},
      {"Float8LinearConfig(pad_inner_dim=True, emulate=True)",
       "bf16-mixed compute=fp8-hybrid scaling=current"},
      {"MXFP8TrainingOpConfig()", "bf16-mixed compute=mxfp8 scale_rounding=rceil"},
      {"MXFP8TrainingOpConfig(wgrad_with_hp=True, scale_calculation_mode=ScaleCalculationMode.FLOOR)",
       "bf16-mixed compute=mxfp8; *: op=matmul.dw compute=bf16"},
      {"mxfp8_rceil_wgrad_with_hp",
       "bf16-mixed compute=mxfp8 scale_rounding=rceil; *: op=matmul.dw compute=bf16"},
      {"--quantize.linear.mx.recipe_name=\"mxfp8_rceil\"",
       "bf16-mixed residual=bf16 compute=mxfp8 scale_rounding=rceil"},
      {"--training.mixed_precision_param float32", "32-true"},
      {"--training.dtype bfloat16", "bf16-true"},
      {"--model.converters=\"quantize.linear.float8\" --quantize.linear.float8.enable_fsdp_float8_all_gather",
       "bf16-mixed residual=bf16 compute=fp8-hybrid scaling=current"},
      {"--training.dtype bfloat16 --quantize.linear.float8.recipe_name tensorwise",
       "bf16-true compute=fp8-hybrid scaling=current"},
      {"--float8.recipe_name rowwise --float8.filter_fqns output,attention.wk",
       "bf16-mixed residual=bf16 compute=mxfp8 scale_rounding=rceil weight_block=row activation_block=row; "
       "*self_attn.k_proj*: compute=bf16"},
  });
}

/// Fields that follow replace those of the recipe.
TEST(Recipes, AreFollowedByFields) {
  expect_equal({
      {"mxfp8_rceil scale_rounding=floor", "bf16-mixed compute=mxfp8"},
      {"NVFP4BlockScaling() hadamard=none kv=bf16",
       "bf16-mixed compute=nvfp4 weight_block=16x16 gradient_rounding=stochastic kv=bf16"},
      {"te.recipe.MXFP8BlockScaling(margin=0), scale_rounding=even",
       "bf16-mixed compute=mxfp8 scale_rounding=even"},
      {"MXFP8BlockScaling(fp8_format=Format.HYBRID) residual=bf16; *: op=matmul.dw compute=bf16",
       "bf16-mixed compute=mxfp8 scale_rounding=rceil residual=bf16; *: operand=gradient compute=mxfp8-e5m2; "
       "*: op=matmul.dw compute=bf16"},
      {"transformer-engine-float16 loss_scale=128",
       "fp8-hybrid compute=fp8-hybrid-f16 kv=f16 loss_scale=128"},
      {"Fabric(precision=\"bf16-mixed\") reduce=bf16", "bf16-mixed reduce=bf16"},
  });
}

TEST(Recipes, OfMegatronAreOptions) {
  expect_equal({
      {"--bf16", "bf16-mixed residual=bf16"},
      {"--bf16 --fp32-residual-connection --grad-reduce-in-bf16", "bf16-mixed reduce=bf16 grads=bf16"},
      {"--fp16", "16-mixed residual=f16 loss_scale=dynamic:2^32"},
      {"--fp16 --initial-loss-scale 65536", "16-mixed residual=f16 loss_scale=dynamic:2^16"},
      {"--fp16 --loss-scale 128", "16-mixed residual=f16 loss_scale=128"},
      {"--bf16 --fp8-e4m3", "bf16-mixed residual=bf16 compute=e4m3 amax_history=1"},
      {"--bf16 --fp8 hybrid", "bf16-mixed residual=bf16 compute=fp8-hybrid amax_history=1"},
      {"--bf16 --fp8-format hybrid", "bf16-mixed residual=bf16 compute=fp8-hybrid amax_history=1"},
      {"--bf16 --fp8-hybrid --fp8-amax-history-len 1024 --fp8-amax-compute-algo max",
       "bf16-mixed residual=bf16 compute=fp8-hybrid"},
      {"--bf16 --fp8-format=e4m3 --fp8-recipe=tensorwise --no-fp8-wgrad",
       "bf16-mixed residual=bf16 compute=e4m3 scaling=current; *: op=matmul.dw compute=bf16"},
      {"--bf16 --fp8-format e4m3 --fp8-recipe mxfp8",
       "bf16-mixed residual=bf16 compute=mxfp8 scale_rounding=rceil"},
      {"--bf16 \\\n  --fp8-format e4m3 \\\n  --fp8-recipe blockwise",
       "bf16-mixed residual=bf16 compute=mxfp8 scale_rounding=rceil weight_block=128x128 activation_block=1x128"},
      {"--bf16 --fp4-format e2m1 --fp4-recipe nvfp4",
       "bf16-mixed residual=bf16 compute=nvfp4 weight_block=16x16 gradient_rounding=stochastic hadamard=16"},
      {"--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --first-last-layers-bf16 --num-layers-at-start-in-bf16 2",
       "bf16-mixed residual=bf16 compute=mxfp8 scale_rounding=rceil; model.layers.{0-1}: compute=bf16"},
  });
  std::vector<std::string> notes;
  Policy::parse("--bf16 --fp8-format hybrid --first-last-layers-bf16 --num-layers 32", &notes);
  EXPECT_EQ(notes,
            (std::vector<std::string>{
                "--first-last-layers-bf16: add a rule for the last layer, such as --rule "
                "'model.layers.31: compute=bf16'",
                "weights are rounded to the recipe's format from f32 masters; there from a 16-bit copy of "
                "them",
                "--num-layers is ignored: it does not set a number format"}));
  notes.clear();
  Policy::parse("--bf16 --exp-avg-dtype bf16 --lr 1e-4", &notes);
  EXPECT_EQ(notes, (std::vector<std::string>{
                       "--exp-avg-dtype bf16 is not read; set what it means by a field or a rule",
                       "--lr is ignored: it does not set a number format"}));
}

TEST(Recipes, WithoutAPolicyAreErrorsThatNameTheSetting) {
  const Case cases[] = {
      {"NVFP4BlockScaling(nvfp4_4over6='all')", "NVFP4BlockScaling: nvfp4_4over6=\"all\": blocks are scaled"},
      {"DelayedScaling(fp8_dpa=True)", "DelayedScaling: fp8_dpa=\"True\": attention multiplies in 16 bits"},
      {"DelayedScaling(amax_history=16)", "DelayedScaling has no \"amax_history\"; did you mean"},
      {"DelayedScaling(16)", "DelayedScaling: \"16\" has no name; write KEY=16"},
      {"DelayedScaling(fp8_format=Format.E5M2)", "fp8_format=\"Format.E5M2\""},
      {"DelayedScaling(margin=-1)", "margin=\"-1\": must be a whole number, 0 or more"},
      {"from_recipe_name(\"rowise\")", "torchao has no recipe \"rowise\"; did you mean \"rowwise\"?"},
      {"--bf16 --fp16", "--bf16 and --fp16 contradict each other"},
      {"--bf16 --fp8-format hybrid --fp8-recipe delay", "fp8-recipe=\"delay\"; did you mean \"delayed\"?"},
      {"--bf16 --bf16", "bf16 is set twice"},
      {"--fp16 --fp8-format hybrid", "--fp8-format with --fp16"},
      {"--bf16 --fp8-format hybrid --fp8-dot-product-attention", "attention multiplies in 16 bits"},
      {"--training.dtype bfloat16 --training.mixed_precision_param float32",
       "weights in bf16 are multiplied"},
      {"DelayedScaling(backward_override=\"high_precision\")", "DelayedScaling has none"},
      {"Float8LinearConfig(round_scales_to_power_of_2=True)", "scales of tensors are f32"},
      {"Float8LinearConfig(cast_config_input=x)", "Float8LinearConfig has no \"cast_config_input\""},
      {"mxfp8_rceil bf16-mixed", "\"bf16-mixed\" is not field=value"},
      {"MXFP8BlockScaling() kv", "\"kv\" is not field=value"},
      {"MXFP8BlockScaling() kv=bf16 kv=f16", "kv is set twice"},
  };
  for (const auto& [text, message] : cases) {
    const std::string got = precision::message_of([&] { Policy::parse(text); });
    EXPECT_NE(got.find(message), std::string::npos) << text << "\n" << got;
  }
}

}  // namespace
}  // namespace mantissa::compat::recipes_test
