// Conversions of values that leave the model, and disabling them by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/files/io/safetensors_header.h"
#include "mantissa/kernels/update.h"

namespace mantissa::api {
namespace {

using mantissa::testing::into;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;

class Edges : public ::testing::Test {
 protected:
  void SetUp() override { train(Config::parse(tiny_config(2, "32-true")), into(folder / "run")); }

  TraceOptions options(const std::string& policy, std::vector<std::string> unconverted = {}) const {
    TraceOptions o;
    o.model = folder / "run/model";
    o.ids = {{72, 101, 108, 108, 111, 33}, {1, 2, 3, 4, 5, 6}};
    o.labels = {{72, 101, 108, 108, -100, 33}, {1, 2, 3, 4, 5, 6}};
    o.grads = true;
    o.values = "model.layers.0.mlp*";
    o.precision.policy = policy;
    o.unconverted = std::move(unconverted);
    return o;
  }
  static std::map<std::string, Tensor> by_name(const Trace& trace) {
    std::map<std::string, Tensor> all;
    for (const Tensor& t : trace.tensors) all[t.name] = t;
    return all;
  }
  /// A trace holds results, the gradient of each weight, and the values that options() asks for.
  static void expect_every_kind(const std::map<std::string, Tensor>& all) {
    for (const char* name : {"logits", "log_probs", "loss", "grad.model.embed_tokens.weight",
                             "grad.model.layers.0.mlp.down_proj.weight", "grad.model.norm.weight"})
      EXPECT_TRUE(all.contains(name)) << name;
    EXPECT_TRUE(std::ranges::any_of(
        all, [](const auto& each) { return each.first.starts_with("value.model.layers.0.mlp"); }));
  }
  /// The values as f32.
  static std::vector<float> widened(const Tensor& t) {
    const Scalar type = *io::scalar_of(*io::parse_dtype(t.dtype));
    std::vector<float> values(t.bytes.size() / bytes_of(type));
    kernels::cast({}, static_cast<std::int64_t>(values.size()), t.bytes.data(), type, values.data(),
                  Scalar::f32);
    return values;
  }
  static std::string refused(const TraceOptions& o) {
    try {
      trace(o);
    } catch (const ConfigError& e) {
      return e.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }

  TemporaryFolder folder;
};

TEST_F(Edges, ResultsAreF32) {
  for (const char* policy : {"bf16-true output=compute>f32", "16-true", "32-true output=e4m3"}) {
    const auto all = by_name(trace(options(policy)));
    expect_every_kind(all);
    for (const auto& [name, t] : all) EXPECT_EQ(t.dtype, "F32") << name;
  }
  const auto wide = by_name(trace(options("64-true", {"*"})));
  expect_every_kind(wide);
  for (const auto& [name, t] : wide) EXPECT_EQ(t.dtype, "F64") << name;
}

TEST_F(Edges, ANamedPointKeepsItsFormatAndItsValues) {
  const std::string policy = "bf16-true output=compute>f32";
  const auto converted = by_name(trace(options(policy)));
  const auto kept = by_name(trace(options(policy, {"logits", "grad.model.norm.weight", "value.*"})));
  ASSERT_EQ(kept.size(), converted.size());
  int values = 0;
  for (const auto& [name, t] : kept) {
    // Contributions to a gradient are summed without rounding.
    const bool value =
        name.starts_with("value.") && !name.ends_with(".dx") && name.find(".grad.") == std::string::npos;
    const bool named = name == "logits" || name == "grad.model.norm.weight" || value;
    EXPECT_EQ(t.dtype, named ? "BF16" : "F32") << name;
    EXPECT_EQ(t.shape, converted.at(name).shape) << name;
    EXPECT_EQ(widened(t), widened(converted.at(name))) << name;
    values += value ? 1 : 0;
  }
  EXPECT_GE(values, 4);
  EXPECT_EQ(kept.at("logits").shape, (std::vector<std::int64_t>{2, 6, 256}));
}

TEST_F(Edges, LogitsHaveTheFormatThatOutputRoundsThemTo) {
  const std::pair<const char*, const char*> cases[] = {{"bf16-mixed", "F32"},  // unrounded
                                                       {"bf16-mixed output=compute>f32", "BF16"},
                                                       {"16-mixed output=compute>f32", "F16"},
                                                       {"32-true output=e5m2", "F8_E5M2"},
                                                       {"32-true output=tf32", "F32"}};
  for (const auto& [policy, dtype] : cases) {
    const auto kept = by_name(trace(options(policy, {"log*"})));
    EXPECT_EQ(kept.at("logits").dtype, dtype) << policy;
    EXPECT_EQ(kept.at("log_probs").dtype, "F32") << policy;
    EXPECT_EQ(widened(kept.at("logits")), widened(by_name(trace(options(policy))).at("logits"))) << policy;
  }
}

TEST_F(Edges, AFileContainsTheReturnedTensors) {
  TraceOptions o = options("bf16-true", {"grad.*"});
  const Trace memory = trace(o);
  o.out = folder / "trace";
  EXPECT_TRUE(trace(o).tensors.empty());
  const io::SafetensorsReader file(o.out);
  EXPECT_GT(memory.tensors.size(), 10U);
  EXPECT_EQ(file.tensors().size(), memory.tensors.size());
  for (const Tensor& t : memory.tensors) {
    const io::TensorInfo* info = file.find(t.name);
    ASSERT_NE(info, nullptr) << t.name;
    EXPECT_EQ(io::safetensors_name(info->dtype), t.dtype) << t.name;
    std::vector<std::byte> bytes(t.bytes.size());
    file.read(*info, bytes);
    EXPECT_EQ(bytes, t.bytes) << t.name;
  }
}

TEST_F(Edges, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  const std::string message = refused(options("bf16-true", {"logit"}));
  EXPECT_EQ(message.find("--unconverted \"logit\": matches no traced tensor; did you mean "
                         "\"logits\"? (names: logits, log_probs, loss, grad."),
            0U)
      << message;
  TraceOptions plain = options("bf16-true", {"grad.*"});
  plain.grads = false;
  plain.values.clear();
  EXPECT_NE(refused(plain).find("(names: logits, log_probs, loss; grad.* with --grads"), std::string::npos);
}

TEST_F(Edges, RowsFromMemoryAreOfOneLengthAndOfTheVocabulary) {
  TraceOptions o = options("32-true");
  o.ids[1].pop_back();
  EXPECT_THROW(trace(o), ShapeError);
  o = options("32-true");
  o.labels.pop_back();
  EXPECT_THROW(trace(o), ShapeError);
  o = options("32-true");
  o.ids[0][3] = 256;
  EXPECT_NE(refused(o).find("input_ids [0, 3] is 256"), std::string::npos);
  o.ids.clear();
  o.labels.clear();
  EXPECT_THROW(trace(o), ShapeError);
}

}  // namespace
}  // namespace mantissa::api
