// The models of tests/golden compared with PyTorch (tools/golden_trace.py wrote the files).
#include <gtest/gtest.h>

#include "engine/model/golden.h"

namespace mantissa::model::golden_test {
namespace {

using mantissa::testing::expect_golden;
using mantissa::testing::GoldenTokens;
using mantissa::testing::kGolden;
using mantissa::testing::read_json;
using mantissa::testing::Trace;

Trace trace(const std::filesystem::path& directory, const char* policy) {
  return mantissa::testing::trace(directory, policy, GoldenTokens(kGolden / "tokens.safetensors"));
}

class Golden : public ::testing::TestWithParam<const char*> {
 protected:
  std::filesystem::path directory() const { return kGolden / GetParam(); }
};

TEST_P(Golden, F64AgreesWithPyTorch) {
  // About 1e4 operations on values of order 1 to 10, each off by 1.1e-16: 1e-11 bounds any order of
  // summation.
  expect_golden(directory() / "trace_f64.safetensors", trace(directory(), "64-true"),
                [](const std::string&, double) { return 1e-11; });
}

TEST_P(Golden, F32IsAsNearToF64AsPyTorchIs) {
  // Another order of summation may err in another direction, and on other elements: eight times PyTorch's
  // largest error. The loss is one number, whose error may have cancelled: as a mean of log-probabilities it
  // has their bound.
  const nlohmann::json spreads = read_json(directory() / "spreads.json")["f32"];
  expect_golden(directory() / "trace_f64.safetensors", trace(directory(), "32-true"),
                [&](const std::string& name, double) {
                  return 8 * spreads[name == "loss" ? "log_probs" : name].get<double>();
                });
}

TEST_P(Golden, Bf16MixedHasTheRoundingPointsOfTheReference) {
  // Both round at the same places, in f32 and in f64 arithmetic: the differences are f32 summation and the
  // file's f32.
  const nlohmann::json spreads = read_json(directory() / "spreads.json")["bf16-emulated"];
  expect_golden(directory() / "trace_bf16.safetensors", trace(directory(), "bf16-mixed"),
                [&](const std::string& name, double largest) {
                  return 8 * spreads[name].get<double>() + unit_roundoff(Scalar::f32) * largest;
                });
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, ::testing::Values("untied", "tied"),
                         [](const auto& i) { return std::string(i.param); });

TEST(Parameters, HaveTheNamesAndShapesOfTransformers) {
  for (const bool tied : {false, true}) {
    std::map<std::string, Shape> want{{"model.embed_tokens.weight", {29, 16}}, {"model.norm.weight", {16}}};
    if (!tied) want["lm_head.weight"] = {29, 16};
    for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
      const std::string scope = layer;
      want[scope + "input_layernorm.weight"] = {16};
      want[scope + "self_attn.q_proj.weight"] = {16, 16};
      want[scope + "self_attn.k_proj.weight"] = {8, 16};
      want[scope + "self_attn.v_proj.weight"] = {8, 16};
      want[scope + "self_attn.o_proj.weight"] = {16, 16};
      want[scope + "post_attention_layernorm.weight"] = {16};
      want[scope + "mlp.gate_proj.weight"] = {24, 16};
      want[scope + "mlp.up_proj.weight"] = {24, 16};
      want[scope + "mlp.down_proj.weight"] = {16, 24};
    }
    const ModelConfig config = mantissa::testing::tiny_llama(tied);
    const graph::Graph graphs[] = {build_log_prob(config, 8, 8, true), build_logits(config, 8, 8, false),
                                   build_decode(config, 4, 1, 8)};
    for (const graph::Graph& graph : graphs) {
      std::map<std::string, Shape> got;
      std::int64_t count = 0;
      for (const graph::ValueId p : graph.parameters()) {
        got[graph.value(p).name] = graph.value(p).shape;
        count += graph.value(p).shape.count();
      }
      EXPECT_TRUE(got == want) << (tied ? "tied" : "untied");
      EXPECT_EQ(count, config.parameters());
    }
  }
}

}  // namespace
}  // namespace mantissa::model::golden_test
