// The initial weights of RWKV-7, by the formulas of RWKV-LM's RWKV-v7/train_temp/src/model.py.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "engine/runtime/program.h"

namespace mantissa::runtime::rwkv7_initial_test {
namespace {

using mantissa::testing::Compiled;
using mantissa::testing::Segments;

constexpr std::int64_t kWidth = 128, kLayers = 3, kVocabulary = 300;

/// A model with two heads of 64, and the given fields instead of the defaults.
class Initial {
 public:
  explicit Initial(const nlohmann::json& more = nlohmann::json::object()) {
    nlohmann::json json = {{"model_type", "rwkv7"},
                           {"vocab_size", kVocabulary},
                           {"hidden_size", kWidth},
                           {"num_hidden_layers", kLayers}};
    json.update(more);
    const Segments rows({4});
    compiled_ = std::make_unique<Compiled>(
        model::build_log_prob(model::parse_model_config(json, "rwkv7"), 4, 4, true),
        precision::Policy::parse("64-true"), mantissa::testing::options_for(rows));
  }
  /// Returns the elements of a weight.
  std::vector<double> of(const std::string& name) const {
    for (std::size_t s = 0; s < compiled_->program.slots.size(); ++s) {
      if (compiled_->program.slots[s].name != name) continue;
      std::vector<double> v(compiled_->count(s));
      const Matrix master = compiled_->weights.master(s);
      load_row(master.data, master.type, 0, v.size(), v.data());
      return v;
    }
    ADD_FAILURE() << "no weight " << name;
    return {};
  }
  std::vector<double> of(std::int64_t layer, const std::string& name) const {
    return of("model.layers." + std::to_string(layer) + "." + name);
  }

 private:
  std::unique_ptr<Compiled> compiled_;
};

/// Computed by the statements of model.py in Python: the channels 0, 37, 100 and 127 of 128.
TEST(Rwkv7InitialValues, OfVectorsAreThoseOfRwkvLm) {
  struct Expected {
    std::int64_t layer;
    const char* name;
    double values[4];
  };
  const Expected all[] = {
      {0, "attn.x_r", {1, 0.219813644, 0.048173031, 0.001567406}},
      {0, "attn.x_g", {1, 0.219813644, 0.048173031, 0.001567406}},
      {1, "attn.x_w", {1, 0.525107782, 0.137668962, 0.004694851}},
      {1, "attn.x_a", {1, 0.525107782, 0.137668962, 0.004694851}},
      {2, "attn.x_k", {1, 0.251431739, 0.055973164, 0.001828401}},
      {2, "attn.x_v", {1, 0.251431739, 0.055973164, 0.001828401}},
      {0, "ffn.x_k", {1, 0.7109375, 0.21875, 0.0078125}},
      {2, "ffn.x_k", {1, 0.015205584, 0.003043016, 9.6825e-05}},
      {0, "attn.w_lora.lora.2.bias", {-8, -3.675752832, -0.724570143, 3}},
      {1, "attn.w_lora.lora.2.bias", {-8, -4.78182835, -1.558235127, 3}},
      {2, "attn.w_lora.lora.2.bias", {-8, -4.91451531, -1.728972152, 3}},
      {1, "attn.a_lora.lora.2.bias", {-0.69, -0.264318686, -0.068916921, 0.31}},
      {1, "attn.v_lora.lora.2.bias", {0.93, 0.813464567, 0.61503937, 0.53}},
      {1, "attn.k_k", {0.76, 0.730866142, 0.681259843, 0.66}},
      {1, "attn.k_a", {1.02, 1.02, 1.02, 1.02}},
      {1, "attn.r_k", {-0.04, -0.04, -0.04, -0.04}},
      {1, "attn.g_norm.bias", {0, 0, 0, 0}},
      {1, "attn_norm.weight", {1, 1, 1, 1}},
      {1, "ffn_norm.bias", {0, 0, 0, 0}},
  };
  const Initial model;
  for (const Expected& e : all) {
    const std::vector<double> values = model.of(e.layer, e.name);
    ASSERT_EQ(std::ssize(values), kWidth) << e.name;
    const std::size_t channels[] = {0, 37, 100, 127};
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(values[channels[i]], e.values[i], 1e-9) << "layer " << e.layer << " " << e.name;
  }
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    for (const double gain : model.of(layer, "attn.g_norm.weight"))
      ASSERT_DOUBLE_EQ(gain, std::pow(static_cast<double>(1 + layer) / kLayers, 0.7));
  }
}

/// The smaller side of the matrix has orthogonal vectors of length `gain`.
void expect_orthogonal(const std::vector<double>& matrix, std::int64_t columns, double gain,
                       const std::string& name) {
  const std::int64_t rows = std::ssize(matrix) / columns;
  const bool wide = rows < columns;
  const std::int64_t n = wide ? rows : columns, m = wide ? columns : rows;
  const auto at = [&](std::int64_t i, std::int64_t k) {
    return matrix[static_cast<std::size_t>(wide ? i * columns + k : k * columns + i)];
  };
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < m; ++k) sum += at(i, k) * at(j, k);
      ASSERT_NEAR(sum, i == j ? gain * gain : 0, 1e-12 * gain * gain) << name;
    }
  }
}

TEST(Rwkv7InitialValues, OfMatricesAreOrthogonalWithTheGainsOfRwkvLmOrZero) {
  const Initial model;
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    expect_orthogonal(model.of(layer, "attn.r_proj.weight"), kWidth, 1, "receptance");
    expect_orthogonal(model.of(layer, "attn.k_proj.weight"), kWidth, 0.1, "key");
    expect_orthogonal(model.of(layer, "attn.v_proj.weight"), kWidth, 1, "value");
    expect_orthogonal(model.of(layer, "ffn.key.weight"), kWidth, 1, "ffn.key");
    for (const char* zero : {"attn.o_proj.weight", "ffn.value.weight", "attn.w_lora.lora.0.weight",
                             "attn.a_lora.lora.0.weight", "attn.g_lora.lora.0.weight"}) {
      for (const double x : model.of(layer, zero)) ASSERT_EQ(x, 0) << zero;
    }
    for (const auto& [name, rank] : std::map<std::string, std::int64_t>{{"w", 32}, {"a", 32}, {"g", 64}})
      expect_orthogonal(model.of(layer, "attn." + name + "_lora.lora.2.weight"), rank, 0.1, name);
  }
  expect_orthogonal(model.of(1, "attn.v_lora.lora.2.weight"), 32, 0.1, "v");
  expect_orthogonal(model.of("lm_head.weight"), kWidth,
                    0.5 * std::sqrt(static_cast<double>(kVocabulary) / kWidth), "head");
}

/// ortho_init() multiplies by √(rows / columns) of [rank, channels] if there are more rows.
TEST(Rwkv7InitialValues, OfRanksAboveTheWidthAreScaled) {
  const Initial model({{"gate_low_rank_dim", 2 * kWidth}, {"vocab_size", 64}});
  expect_orthogonal(model.of(0, "attn.g_lora.lora.2.weight"), 2 * kWidth, 0.1 * std::sqrt(2.0), "g");
  expect_orthogonal(model.of("lm_head.weight"), kWidth, 0.5, "a head with fewer entries than channels");
}

/// 38,400 uniform numbers: their mean has the standard deviation 1e-4 / √(3·n), their mean square the
/// relative one √(4/5/n).
TEST(Rwkv7InitialValues, OfTheEmbeddingAreUniformWithinTheirBound) {
  const Initial model;
  const std::vector<double> values = model.of("model.embeddings.weight");
  double sum = 0, squares = 0, most = 0;
  for (const double x : values) {
    sum += x;
    squares += x * x;
    most = std::max(most, std::abs(x));
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_LE(most, 1e-4);
  EXPECT_GT(most, 0.999e-4);
  EXPECT_NEAR(sum / n, 0, 5 * 1e-4 / std::sqrt(3 * n));
  EXPECT_NEAR(squares / n, 1e-8 / 3, 5 * std::sqrt(0.8 / n) * 1e-8 / 3);
}

}  // namespace
}  // namespace mantissa::runtime::rwkv7_initial_test
