// Translation of other systems' policy spellings.
#include "mantissa/precision/compat/foreign.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "mantissa/precision/policy/policy.h"
#include "precision/policy/message.h"

namespace mantissa::compat {
namespace {

using namespace precision;

using Pairs = std::vector<std::pair<const char*, const char*>>;

/// Returns the translated policy line, or and the fields that follow; "" if the text is not a foreign
/// spelling.
std::string line_of(const char* text) {
  const std::optional<Foreign> foreign = read_foreign(text);
  return foreign ? foreign->line + foreign->more : "";
}

TEST(Foreign, FabricsNamesArePresets) {
  const Pairs names = {{"64-true", "64-true"},    {"64", "64-true"},        {"32-true", "32-true"},
                       {"32", "32-true"},         {"16-mixed", "16-mixed"}, {"16", "16-mixed"},
                       {"16-true", "16-true"},    {"bf16", "bf16-mixed"},   {"bf16-mixed", "bf16-mixed"},
                       {"bf16-true", "bf16-true"}};
  for (const auto& [text, preset] : names) EXPECT_EQ(Policy::parse(text).preset(), preset) << text;
  EXPECT_EQ(Policy::parse("precision=\"16-mixed\"").preset(), "16-mixed");
  EXPECT_EQ(Policy::parse("--precision=bf16-true").preset(), "bf16-true");
  EXPECT_EQ(Policy::parse("'bf16'").preset(), "bf16-mixed");
}

TEST(Foreign, ReadsPastedCallsAndOptions) {
  const Pairs lines = {{"Fabric(precision=\"bf16-mixed\")", "bf16-mixed"},
                       {"L.Trainer(precision=16)", "16"},
                       {"Fabric(precision=None)", "32-true"},
                       {"lightning.Trainer(max_epochs=3, precision='16-mixed', devices=1)", "16-mixed"},
                       {"Accelerator(mixed_precision=\"fp16\")", "16-mixed"},
                       {"--precision bf16", "bf16-mixed"},
                       {"--precision 'bf16-true residual=f32'", "bf16-true residual=f32"},
                       {"--precision=\"high residual=bf16\"", "bf16-matmul-x3 residual=bf16"},
                       {"--dtype fp32", "32-true"},
                       {"--jax_default_matmul_precision high", "bf16-matmul-x3"}};
  for (const auto& [text, line] : lines) EXPECT_EQ(line_of(text), line) << text;
  EXPECT_EQ(Policy::parse("L.Trainer(precision=16)").preset(), "16-mixed");
  EXPECT_EQ(Policy::parse("compute=MXFP8"), Policy::parse("compute=mxfp8"));
}

TEST(Foreign, ADtypeMeansThePresetThatComputesInIt) {
  const Pairs names = {{"torch.float64", "64-true"},
                       {"torch.float32", "32-true"},
                       {"torch.bfloat16", "bf16-mixed"},
                       {"torch.float16", "16-mixed"},
                       {"torch.half", "16-mixed"},
                       {"jnp.bfloat16", "bf16-mixed"},
                       {"jax.numpy.float32", "32-true"},
                       {"np.float64", "64-true"},
                       {"dtype=fp32", "32-true"},
                       {"--dtype=bf16", "bf16-mixed"},
                       {"dtype='fp16'", "16-mixed"},
                       {"torch_dtype=torch.bfloat16", "bf16-mixed"},
                       {"mixed_precision=no", "32-true"},
                       {"mixed_precision=fp16", "16-mixed"},
                       {"fp32", "32-true"},
                       {"fp16", "16-mixed"}};
  for (const auto& [text, preset] : names) EXPECT_EQ(Policy::parse(text).preset(), preset) << text;
}

TEST(Foreign, MatmulPrecisionsFollowATpu) {
  const Pairs words = {{"default", "bf16-matmul"},
                       {"fastest", "bf16-matmul"},
                       {"high", "bf16-matmul-x3"},
                       {"HIGHEST", "bf16-matmul-x6"},
                       {"bfloat16_3x", "bf16-matmul-x3"},
                       {"tensorfloat32", "tf32"},
                       {"BF16_BF16_F32_X6", "bf16-matmul-x6"},
                       {"F32_F32_F32", "32-true"},
                       {"jax.lax.Precision.HIGHEST", "bf16-matmul-x6"},
                       {"lax.DotAlgorithmPreset.TF32_TF32_F32", "tf32"},
                       {"jax_default_matmul_precision=high", "bf16-matmul-x3"},
                       {"jax.default_matmul_precision(\"tensorfloat32\")", "tf32"},
                       {"high residual=bf16", "bf16-matmul-x3 residual=bf16"}};
  for (const auto& [text, line] : words) EXPECT_EQ(line_of(text), line) << text;
}

TEST(Foreign, TransformerEngineInF16HasALossScale) {
  const std::string line = "fp8-hybrid compute=fp8-hybrid-f16 kv=f16 loss_scale=dynamic:2^16";
  EXPECT_EQ(line_of("transformer-engine-float16"), line);
  EXPECT_EQ(line_of("--precision=transformer-engine-float16"), line);
  EXPECT_EQ(line_of("transformer-engine-float16 loss_scale=none"), line + " loss_scale=none");
  const Policy policy = Policy::parse("transformer-engine-float16");
  const Resolved r = policy.resolve({});
  EXPECT_EQ(r.compute->scaled, Scaled::tensor);
  EXPECT_EQ(r.compute->factor, Factor(Scalar::e4m3));
  EXPECT_EQ(r.compute->gradient, Scalar::e5m2);
  EXPECT_EQ(r.compute->stored, Scalar::f16);
  EXPECT_EQ(r.kv, Scalar::f16);
  EXPECT_EQ(r.params, Scalar::f32);
  EXPECT_EQ(r.residual, Scalar::f32);
  EXPECT_EQ(policy.loss_scale().str(), "dynamic:2^16");
  EXPECT_EQ(Policy::parse(policy.line()), policy);
  EXPECT_EQ(Policy::parse("transformer-engine"), Policy::parse("fp8-hybrid"));
}

TEST(Foreign, TheKeyDecidesWhichSystemAWordBelongsTo) {
  // A dtype name alone is an alias of a preset. Under a JAX key it is a matmul precision.
  EXPECT_EQ(Policy::parse("bfloat16").preset(), "bf16-mixed");
  EXPECT_EQ(line_of("jax_default_matmul_precision=bfloat16"), "bf16-matmul");
  EXPECT_EQ(Policy::parse("float32").preset(), "32-true");
  EXPECT_EQ(line_of("matmul_precision=float32"), "bf16-matmul-x6");
  // torch and JAX share two words with different meanings.
  EXPECT_EQ(line_of("torch.set_float32_matmul_precision('highest')"), "32-true");
  EXPECT_EQ(line_of("float32_matmul_precision=high"), "tf32");
  EXPECT_EQ(line_of("medium"), "bf16-matmul");
  const std::string message = message_of([] { Policy::parse("jax_default_matmul_precision=higest"); });
  EXPECT_NE(message.find("did you mean \"highest\"?"), std::string::npos) << message;
}

TEST(Foreign, FsdpCastsTheWeightsAndKeepsMastersInF32) {
  const Pairs lines = {
      {"MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.float32)",
       "bf16-mixed residual=bf16"},
      {"param_dtype=bf16 reduce_dtype=fp32 buffer_dtype=fp32", "bf16-mixed residual=bf16"},
      {"mixed_precision=MixedPrecision(param_dtype=torch.float16, cast_forward_inputs=True,),",
       "16-mixed residual=f16 reduce=f16"},
      {"torch.distributed.fsdp.MixedPrecision(torch.bfloat16, torch.bfloat16, torch.float32)",
       "bf16-mixed residual=bf16 reduce=bf16"},
      {"MixedPrecisionPolicy(\n    param_dtype=torch.bfloat16,\n    reduce_dtype=torch.float32,\n    "
       "output_dtype=torch.bfloat16,\n)",
       "bf16-mixed residual=bf16 output=bf16"},
      {"MixedPrecision(param_dtype=torch.bfloat16, keep_low_precision_grads=True)",
       "bf16-mixed residual=bf16 reduce=bf16 grads=bf16"},
      {"MixedPrecision(reduce_dtype=None)", "32-true"},
      {"MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=None)",
       "bf16-mixed residual=bf16 reduce=bf16"},
      {"MixedPrecision()", "32-true"},
      {"{\"param_dtype\": \"bfloat16\", \"reduce_dtype\": \"float32\", \"buffer_dtype\": null}",
       "bf16-mixed residual=bf16"},
      {"{'param_dtype': torch.bfloat16, 'cast_forward_inputs': True}",
       "bf16-mixed residual=bf16 reduce=bf16"},
      {"dict(param_dtype=torch.float16, reduce_dtype=torch.float32)", "16-mixed residual=f16"},
      {"param_dtype=float64", "64-true"},
      {"param_dtype=bfloat16,kv_cache=f32", "bf16-mixed residual=bf16 reduce=bf16 kv_cache=f32"}};
  for (const auto& [text, line] : lines) EXPECT_EQ(line_of(text), line) << text;
  EXPECT_EQ(Policy::parse(lines.front().first), Policy::parse("bf16-mixed residual=bf16"));
}

TEST(Foreign, BuffersKeepTheirFormatWithANote) {
  std::vector<std::string> notes;
  EXPECT_EQ(Policy::parse("param_dtype=bf16 buffer_dtype=bf16", &notes),
            Policy::parse("bf16-mixed residual=bf16 reduce=bf16"));
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_EQ(notes[1].find("buffer_dtype=bf16: buffers (the table of rotary angles) stay f32"), 0U)
      << notes[1];
  notes.clear();
  Policy::parse("param_dtype=bf16 buffer_dtype=fp32", &notes);
  EXPECT_EQ(notes.size(), 1U);
}

TEST(Foreign, FsdpParamDtypeAppliesToTheWholeModuleAndIsNoted) {
  std::vector<std::string> notes;
  EXPECT_EQ(Policy::parse("MixedPrecision(param_dtype=torch.float16)", &notes).fields().residual,
            Scalar::f16);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0],
            "param_dtype casts the whole module: residual=f16, and embedding rows, norm gains and biases are "
            "read from f16 copies; 16-mixed alone keeps them f32, as autocast does");
  notes.clear();
  for (const char* autocast : {"Fabric(precision='16-mixed')", "Trainer(precision='bf16-mixed')", "bf16"})
    EXPECT_EQ(Policy::parse(autocast, &notes).fields().residual, Scalar::f32) << autocast;
  EXPECT_TRUE(notes.empty());
}

TEST(Foreign, FillsInJmpDefaults) {
  const Pairs lines = {
      {"params=float32,compute=bfloat16,output=float32", "bf16-mixed"},
      {"p=f32,c=bf16,o=f32", "bf16-mixed"},
      {"params=full,compute=half,output=full", "16-mixed"},
      {"p=bf16,c=bf16,o=f32", "bf16-true"},
      {"p=bf16", "bf16-true output=bf16"},
      {"c=f16", "16-mixed output=f16"},
      {"p=f16,c=bf16", "bf16-mixed params=f16 grads=f16 output=bf16"},
      {"p=f64", "64-true"},
      {"jmp.get_policy('params=float32,compute=float16,output=float32')", "16-mixed"},
      {"get_policy(\"f32\")", "32-true"},
      {"jmp.Policy(param_dtype=jnp.float32, compute_dtype=jnp.bfloat16, output_dtype=jnp.float32)",
       "bf16-mixed"},
      {"jmp.Policy(jnp.float16, jnp.float16, jnp.float32)", "16-true"}};
  for (const auto& [text, line] : lines) EXPECT_EQ(line_of(text), line) << text;
  EXPECT_EQ(line_of("params=float32,compute=bfloat16"), "bf16-mixed output=bf16");
  EXPECT_EQ(line_of("params=full, compute=half"), "16-mixed output=f16");
  // With fewer than three keys and this language's dtype names, the line is a policy line.
  EXPECT_EQ(line_of("params=f32,compute=bf16"), "");
  EXPECT_EQ(Policy::parse("compute=bf16").fields().kv, Scalar::f32);
}

TEST(Foreign, ErrorsNameTheNearestSpelling) {
  const Pairs faults = {
      {"MixedPrecision(param_dtyp=torch.bfloat16)", "did you mean \"param_dtype\"?"},
      {"MixedPrecision(param_dtype=torch.bfloat15)", "param_dtype="},
      {"MixedPrecision(param_dtype=bf16, param_dtype=f32)", "param_dtype is set twice"},
      {"MixedPrecision(param_dtype=torch.int8)", "(dtypes: float64, float32, bfloat16, float16)"},
      {"MixedPrecision(keep_low_precision_grads=1)", "must be True or False"},
      {"p=f32,c=bf16,p=f32", "params is set twice"},
      {"jmp.Policy(dtype=f32)", "jmp.Policy has no \"dtype\""},
      {"F16_F16_F32", "no policy rounds only operands to f16; write 16-mixed"},
      {"lax.DotAlgorithmPreset.TF32_TF32_F32_X3", "write bf16-matmul-x6"},
      {"jax_default_matmul_precision=BF16_BF16_F32_X9", "write bf16-matmul-x6"},
      {"ANY_F8_ANY_F8_F32", "write fp8-hybrid"},
      {"Trainer(devices=1)", "Trainer(…) has no precision"},
      {"{'param_dtype': 'bf17'}", "(dtypes: float64"},
      {"{'param_dtype': 'bf16', 'reduce': 'f32'}", "MixedPrecision has no \"reduce\""},
      {"transformer-engin", "did you mean \"transformer-engine\"?"},
      {"torch.bfloat15", "did you mean \"torch.bfloat16\"?"},
      {"highst", "did you mean \"highest\"?"}};
  for (const auto& [text, expected] : faults) {
    const std::string message = message_of([&] { Policy::parse(text); });
    EXPECT_NE(message.find(expected), std::string::npos) << text << "\n" << message;
  }
}

TEST(Foreign, RulesFollowAForeignSpelling) {
  const Policy policy = Policy::parse(
      "MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32); lm_head: compute=f32");
  EXPECT_EQ(policy.fields(), Policy::parse("bf16-mixed residual=bf16").fields());
  ASSERT_EQ(policy.rules().size(), 1U);
}

}  // namespace
}  // namespace mantissa::compat
