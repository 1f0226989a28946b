// States in blocks: the updates of bitsandbytes (tools/golden_states.py), of a reference in f64 on the
// decoded states, and which states stay in f32.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "core/base/sanitized.h"
#include "engine/optim/update_case.h"
#include "mantissa/files/io/checkpoint.h"

namespace mantissa::optim::states_test {
namespace {

using mantissa::testing::UpdateCase;
using precision::Policy;

constexpr std::int64_t kRows = 70, kWidth = 61, kCount = kRows * kWidth;

std::vector<Parameter> matrix(double weight_decay = 0.1) {
  return {
      {.name = "w.weight", .shape = {kRows, kWidth}, .hidden_matrix = true, .weight_decay = weight_decay}};
}

/// Equal to tools/golden_states.py.
std::vector<double> start() {
  std::vector<double> w;
  for (std::int64_t i = 0; i < kCount; ++i) w.push_back(static_cast<double>((i * 613) % 257 - 128) / 256);
  return w;
}
std::vector<double> gradient(std::int64_t t) {
  std::vector<double> g;
  for (std::int64_t i = 0; i < kCount; ++i)
    g.push_back((static_cast<double>((i * 7919 + t * 104729) % 2003) - 1000.5) / 4096);
  return g;
}

template <class T>
std::vector<T> golden(const std::string& name) {
  const io::WeightFiles file(std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/golden/states.safetensors");
  std::vector<T> values(static_cast<std::size_t>(file.find(name)->count()));
  file.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<std::uint8_t> codes_of(const UpdateCase& c, std::string_view name) {
  const std::vector<std::byte> memory = c.state_bytes(name);
  const BlockedState state{StateCodes::dynamic8, nullptr, kCount};
  const auto* first = reinterpret_cast<const std::uint8_t*>(memory.data() + state.codes_begin());
  return {first, first + kCount};
}

/// The operations differ in their order, so a moment within an f32 rounding of a midpoint may have the code
/// beside. After twelve steps such codes have moved a few weights by some percent of a step.
TEST(States, FollowBitsandbytes) {
  UpdateCase run("adamw", {}, matrix(), Policy::parse("32-true optimizer=dynamic8-256"));
  run.set_weight(0, start());
  for (int t = 1; t <= 12; ++t) {
    run.set_gradient(0, gradient(t));
    ASSERT_TRUE(run.step({.lr = 0.01, .t = t, .step = t}).applied);
    if (t != 1 && t != 12) continue;
    const std::string at = "run." + std::to_string(t);
    for (const auto& [mine, theirs] :
         {std::pair("first_moment.w.weight", ".first"), {"second_moment.w.weight", ".second"}}) {
      const std::vector<std::uint8_t> got = codes_of(run, mine), want = golden<std::uint8_t>(at + theirs);
      int other = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        ASSERT_LE(std::abs(got[i] - want[i]), 1) << mine << " element " << i << " after step " << t;
        other += got[i] == want[i] ? 0 : 1;
      }
      EXPECT_LE(other, t == 1 ? 4 : 20) << mine << " of " << kCount << " after step " << t;
    }
    const std::vector<float> want = golden<float>(at + ".weight");
    const std::vector<double> got = run.weight(0);
    double squares = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double apart = got[i] - static_cast<double>(want[i]);
      ASSERT_LE(std::abs(apart), t == 1 ? 1e-6 : 2e-3) << "element " << i << " after step " << t;
      squares += apart * apart;
    }
    EXPECT_LE(std::sqrt(squares / kCount), t == 1 ? 1e-7 : 5e-5) << "after step " << t;
  }
}

/// One step of AdamW in f64.
struct Reference {
  double weight, first, second;
  Reference(double w, double m, double v, double g, int t) {
    first = 0.9 * m + 0.1 * g;
    second = 0.95 * v + 0.05 * g * g;
    const double root = std::sqrt(second / (1 - std::pow(0.95, t))) + 1e-8;
    weight = w * (1 - 1e-3) - 0.01 * (first / (1 - std::pow(0.9, t))) / root;
  }
};

class StatesIn : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Formats, StatesIn, ::testing::Values("dynamic8-256", "e4m3-256", "f16-256"),
                         [](const auto& p) {
                           return std::string(p.param).substr(0, std::string(p.param).find('-'));
                         });

/// The weight moves by the moments before they are stored; these are stored within half the distance of two
/// numbers.
TEST_P(StatesIn, AreReadForEveryStepAsTheyWereStored) {
  UpdateCase run("adamw", {}, matrix(), Policy::parse("32-true optimizer=" + std::string(GetParam())));
  run.set_weight(0, start());
  for (int t = 1; t <= 5; ++t) {
    const std::vector<double> w = run.weight(0), m = run.state("first_moment.w.weight"),
                              v = run.state("second_moment.w.weight"), g = gradient(t);
    run.set_gradient(0, g);
    ASSERT_TRUE(run.step({.lr = 0.01, .t = t, .step = t}).applied);
    const std::vector<double> now = run.weight(0), first = run.state("first_moment.w.weight"),
                              second = run.state("second_moment.w.weight");
    for (std::size_t i = 0; i < kCount; ++i) {
      const Reference want(w[i], m[i], v[i], g[i], t);
      ASSERT_NEAR(now[i], want.weight, 1e-6) << i << " after step " << t;
      const std::size_t block = i / kStateBlock * kStateBlock;
      double most_first = 0, most_second = 0;
      for (std::size_t k = block; k < std::min<std::size_t>(block + kStateBlock, kCount); ++k) {
        const Reference other(w[k], m[k], v[k], g[k], t);
        most_first = std::max(most_first, std::abs(other.first));
        most_second = std::max(most_second, other.second);
      }
      ASSERT_NEAR(first[i], want.first, most_first / 27) << i;
      ASSERT_NEAR(second[i], want.second, most_second / 27) << i;
    }
  }
}

TEST_P(StatesIn, HaveTheSameBytesOnEveryInstructionSetAndThreadCount) {
  const std::vector<Parameter> all = {{.name = "a.weight", .shape = {150, 130}, .hidden_matrix = true},
                                      {.name = "b.weight", .shape = {5001}},
                                      {.name = "small.weight", .shape = {41, 33}}};
  for (const char* optimizer : {"adamw", "adam", "lion", "sgd", "muon", "adafactor"}) {
    const Settings settings = std::string_view(optimizer) == "sgd" ? Settings{{"momentum", 0.9}} : Settings{};
    for (const char* policy : {"32-true", "bf16-true rounding=stochastic", "bf16-true kahan=true"}) {
      std::vector<std::byte> first;
      for (const kernels::Simd simd : {kernels::best_simd(), kernels::Simd::avx2}) {
        for (const int threads : mantissa::testing::thread_counts()) {
          if (simd != kernels::best_simd() && kernels::best_simd() == kernels::Simd::neon) continue;
          UpdateCase c(optimizer, settings, all,
                       Policy::parse(std::string(policy) + " optimizer=" + GetParam()),
                       {.simd = simd, .threads = threads});
          for (std::size_t p = 0; p < all.size(); ++p) {
            std::vector<double> w;
            for (std::int64_t i = 0; i < all[p].shape.count(); ++i)
              w.push_back(0.5 * std::sin(0.37 * static_cast<double>(i)));
            c.set_weight(p, w);
          }
          for (int t = 1; t <= 3; ++t) {
            for (std::size_t p = 0; p < all.size(); ++p) {
              std::vector<double> g;
              for (std::int64_t i = 0; i < all[p].shape.count(); ++i)
                g.push_back(0.1 * std::sin(0.71 * static_cast<double>(i) + t));
              c.set_gradient(p, g);
            }
            ASSERT_TRUE(c.step({.lr = 1e-2, .t = t, .step = t, .seed = 5}).applied) << optimizer << policy;
          }
          if (first.empty()) first = c.bytes();
          ASSERT_TRUE(c.bytes() == first)
              << optimizer << ' ' << policy << ' ' << kernels::name(simd) << ' ' << threads;
        }
      }
    }
  }
}

TEST(States, StayInF32IfTheyAreSmallOrHaveAnotherShape) {
  const std::vector<Parameter> all = {{.name = "large.weight", .shape = {64, 64}},
                                      {.name = "small.weight", .shape = {63, 65}}};
  const auto formats = [&](const char* optimizer, const char* policy) {
    std::string text;
    const UpdateCase c(optimizer, {}, all, Policy::parse(policy));
    for (const plan::Buffer& b : c.program().buffers) {
      if (b.home == plan::Home::kept)
        text += b.name + "=" + std::string(b.codes == StateCodes::none ? name(b.type) : name(b.codes)) + " ";
    }
    return text;
  };
  EXPECT_EQ(formats("adamw", "32-true optimizer=dynamic8-256"),
            "first_moment.large.weight=dynamic8-256 second_moment.large.weight=dynamic8-256 "
            "first_moment.small.weight=f32 second_moment.small.weight=f32 ");
  EXPECT_EQ(formats("adafactor", "32-true optimizer=e4m3-256"),
            "row_moment.large.weight=f32 column_moment.large.weight=f32 row_moment.small.weight=f32 "
            "column_moment.small.weight=f32 ");
  EXPECT_EQ(formats("lion", "32-true optimizer=f16-256; large: optimizer=bf16 rounding=stochastic"),
            "first_moment.large.weight=bf16 first_moment.small.weight=f32 ");
}

TEST(States, InBlocksTakeAQuarterOfTheMemory) {
  const std::vector<Parameter> all = {{.name = "w.weight", .shape = {512, 512}}};
  const auto kept = [&](const char* format) {
    return UpdateCase("adamw", {}, all, Policy::parse("32-true optimizer=" + std::string(format)))
        .program()
        .memory.kept;
  };
  constexpr std::size_t kElements = 512 * 512, kScales = kElements / 256 * 4;
  EXPECT_EQ(kept("f32"), 2 * kElements * 4);
  EXPECT_EQ(kept("dynamic8-256"), 2 * (kElements + kScales));
  EXPECT_EQ(kept("e4m3-256"), 2 * (kElements + kScales));
  EXPECT_EQ(kept("f16-256"), 2 * (2 * kElements + kScales));
}

}  // namespace
}  // namespace mantissa::optim::states_test
