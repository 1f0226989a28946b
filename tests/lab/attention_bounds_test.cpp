// What attention adds to the differences that rounding explains.
#include "mantissa/lab/diff/attention_bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "core/disk/temporary.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/lab/diff/diff.h"

namespace mantissa::lab::attention_bounds_test {
namespace {

constexpr std::int64_t kRows = 64, kWidth = 64;
const std::string kScope = "model.layers.0.self_attn", kAttention = "value." + kScope + ".attention";

/// Traces of one layer of attention, with normal random values of a given size for each tensor.
class AttentionBounds : public test::TemporaryFolder {
 protected:
  struct TracedTensor {
    std::string name;
    double size = 1;
    double error = 0;  // relative, of side B
  };

  Diff compare(const std::vector<TracedTensor>& parts, Scalar interior) const {
    return diff(write("a", parts, Scalar::f32, false), write("b", parts, interior, true), false,
                *runtime::cpu({}));
  }

 private:
  std::filesystem::path write(const std::string& name, const std::vector<TracedTensor>& parts,
                              Scalar interior, bool errors) const {
    constexpr unsigned kSeed = 3;
    std::mt19937 random(kSeed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> error(-1, 1);
    std::vector<std::vector<float>> values;
    std::string formats;
    for (const TracedTensor& part : parts) {
      std::vector<float>& of = values.emplace_back();
      for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
        // Log-sum-exps are all of one size.
        const double x = part.name.ends_with(".lse") ? part.size : part.size * normal(random);
        const double factor = 1 + part.error * error(random);
        of.push_back(static_cast<float>(errors ? x * factor : x));
      }
      formats += (formats.empty() ? "" : ", ") + std::string("\"") + part.name +
                 R"(": {"store": "f32", "accumulate": "f32", "output": "f32")";
      if (part.name.starts_with(kAttention))
        formats += R"(, "interior": ")" + std::string(mantissa::name(interior)) + '"';
      formats += "}";
    }
    std::vector<io::TensorToWrite> out;
    for (std::size_t i = 0; i < parts.size(); ++i)
      out.push_back(
          {parts[i].name, io::Dtype::f32, {kRows, kWidth}, std::as_bytes(std::span(values[i])), nullptr});
    io::write_safetensors(folder / name, out,
                          {{"mantissa.policy", "32-true"}, {"mantissa.formats", "{" + formats + "}"}});
    return folder / name;
  }
};

TEST_F(AttentionBounds, AnErrorOfAScoreIsExponentialInItsProbability) {
  // Scores of size 1 beyond ln n, so A is 1: first order would be 2u + A · 2u.
  const double u = unit_roundoff(Scalar::e5m2), lse = 1 + std::log(double{kRows}), sums = std::sqrt(2.0 * 64);
  const Diff d = compare({{kAttention, 1, 0.53 * std::sqrt(3.0)}, {kAttention + ".lse", lse}}, Scalar::e5m2);
  ASSERT_TRUE(d.rounding);
  EXPECT_NEAR(d.rounding->allowance, 2 * u + std::expm1(2 * u), 1e-4 + sums * unit_roundoff(Scalar::f32));
  EXPECT_GT(d.rounding->difference, 4 * u) << "the first order does not explain it";
  EXPECT_TRUE(d.rounding->explains);
  EXPECT_FALSE(compare({{kAttention, 1, 1}, {kAttention + ".lse", lse}}, Scalar::e5m2).rounding->explains);
}

TEST_F(AttentionBounds, GradientsOfScoresBelowTheRangeOfTheirFormatAreLost) {
  const auto explained = [&](double size, Scalar format) {
    const Diff d = compare({{"value." + kScope + ".q_proj.matmul"},
                            {"value." + kScope + ".k_proj.matmul"},
                            {kAttention},
                            {"value." + kScope + ".o_proj.matmul"},
                            {kAttention + ".grad.q", size},
                            {kAttention + ".grad.k", size},
                            {"grad." + kScope + ".k_proj.weight", 1, 1.5},
                            {"grad." + kScope + ".o_proj.weight", 1, 1.5}},
                           format);
    std::map<std::string, bool> result;
    for (const GradientVerdict& g : d.rounding->gradients) result[g.name] = g.explains;
    return result;
  };
  const std::string key = "grad." + kScope + ".k_proj.weight", out = "grad." + kScope + ".o_proj.weight";
  // dS has the size of dq, divided by √n = 8.
  const double smallest = ulp(0, Scalar::e4m3);
  EXPECT_TRUE(explained(smallest, Scalar::e4m3)[key]);
  EXPECT_FALSE(explained(smallest, Scalar::e4m3)[out]) << "its gradient does not depend on dS";
  EXPECT_FALSE(explained(64 * smallest, Scalar::e4m3)[key]);
  EXPECT_FALSE(explained(smallest, Scalar::f16)[key]);
  EXPECT_FALSE(explained(smallest, Scalar::f32)[key]);
}

}  // namespace
}  // namespace mantissa::lab::attention_bounds_test
