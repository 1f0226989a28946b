// The models of tests/data/golden against what PyTorch computes with them (tools/golden_trace.py made the
// files).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "mantissa/io/checkpoint.h"
#include "runtime/program.h"

namespace mantissa::model {
namespace {

using mantissa::testing::Compiled;
using mantissa::testing::options_for;
using mantissa::testing::Segments;

const std::filesystem::path kGolden = std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/data/golden";
constexpr std::int64_t kRows = 2, kLength = 12, kVocabulary = 64;
constexpr std::size_t kSamples = 32;  // of each gradient: element floor(i · size / 32)

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

std::vector<std::int64_t> read_integers(const char* name) {
  const io::WeightFiles files(kGolden / "tokens.safetensors");
  std::vector<std::int64_t> values(static_cast<std::size_t>(kRows * kLength));
  files.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<double> read_tensor(const io::WeightFiles& files, std::string_view name) {
  std::vector<double> v(static_cast<std::size_t>(files.find(name)->count()));
  files.read_f64(name, v);
  return v;
}

/// Our values under the names of the golden traces, gradients sampled.
std::map<std::string, std::vector<double>> trace(const std::filesystem::path& directory, const char* policy) {
  const ModelConfig config = parse_model_config(read_json(directory / "config.json"), "config.json");
  const Segments rows({kLength, kLength});
  Compiled c(build_logits(config, rows.tokens, kLength, true), precision::Policy::parse(policy),
             options_for(rows));
  const io::WeightFiles weights(directory);
  for (std::size_t s = 0; s < c.program.slots.size(); ++s) {
    const std::vector<double> values = read_tensor(weights, c.program.slots[s].name);
    const Matrix master = c.weights.master(s);
    store_row(values.data(), values.size(), master.data, master.type, 0);
  }
  c.refresh_copies();
  const std::vector<std::int64_t> ids = read_integers("input_ids"), labels = read_integers("labels");
  std::vector<std::size_t> predicting;  // tokens that have a next one
  double asked = 0;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const bool last = static_cast<std::int64_t>(t + 1) % kLength == 0;
    c.executor->integers("ids")[t] = static_cast<std::int32_t>(ids[t]);
    c.executor->integers("targets")[t] = last ? -1 : static_cast<std::int32_t>(ids[t + 1]);
    if (!last) predicting.push_back(t);
    if (!last && labels[t + 1] >= 0) ++asked;
  }
  const plan::BufferId seed = c.program.find("dlog_prob");
  for (std::size_t t = 0; t < ids.size(); ++t) c.set(seed, t, 0);
  for (const std::size_t t : predicting) {
    if (labels[t + 1] >= 0) c.set(seed, t, -1 / asked);
  }
  mantissa::testing::train_step(c, rows.extent());

  std::map<std::string, std::vector<double>> out;
  out["logits"] = c.values("logits", ids.size() * kVocabulary);
  const std::vector<double> log_prob = c.values("log_prob", ids.size());
  out["loss"] = {0};
  for (const std::size_t t : predicting) {
    out["log_probs"].push_back(log_prob[t]);
    if (labels[t + 1] >= 0) out["loss"][0] -= log_prob[t] / asked;
  }
  for (std::size_t s = 0; s < c.program.slots.size(); ++s) {
    const std::vector<double> all = c.values(c.program.slots[s].gradient, c.count(s));
    std::vector<double>& sampled = out["grad." + c.program.slots[s].name];
    const std::size_t n = std::min(kSamples, all.size());
    for (std::size_t i = 0; i < n; ++i) sampled.push_back(all[i * all.size() / n]);
  }
  return out;
}

/// Each tensor of the golden file is within tolerance(name, largest) of ours.
template <class F>
void expect_golden(const std::filesystem::path& file, const std::map<std::string, std::vector<double>>& ours,
                   F tolerance) {
  const io::WeightFiles golden(file);
  EXPECT_EQ(golden.tensors().size(), ours.size());
  for (const io::TensorInfo& info : golden.tensors()) {
    ASSERT_TRUE(ours.contains(info.name)) << info.name;
    const std::vector<double> want = read_tensor(golden, info.name);
    const std::vector<double>& got = ours.at(info.name);
    ASSERT_EQ(got.size(), want.size()) << info.name;
    double largest = 0, distance = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(want[i]));
      distance = std::max(distance, std::abs(got[i] - want[i]));
    }
    EXPECT_LE(distance, tolerance(info.name, largest)) << info.name << " of " << file;
  }
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
  // The same roundings between f32 and f64 arithmetic: what is left is f32 summation, and the file's own f32.
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
}  // namespace mantissa::model
