// Paired differences: Student's distribution, the error of few seeds, and how often equal and different
// policies are called different.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "mantissa/lab/compare/compare.h"
#include "mantissa/lab/compare/paired.h"
#include "mantissa/lab/compare/student.h"

namespace mantissa::lab {
namespace {

TEST(Student, HasTheTabulatedLimits) {
  // Two-sided limits of 5 % and 1 % (Abramowitz and Stegun, table 26.10).
  EXPECT_NEAR(student_limit(0.05, 1), 12.706, 5e-4);
  EXPECT_NEAR(student_limit(0.05, 2), 4.303, 5e-4);
  EXPECT_NEAR(student_limit(0.05, 4), 2.776, 5e-4);
  EXPECT_NEAR(student_limit(0.05, 30), 2.042, 5e-4);
  EXPECT_NEAR(student_limit(0.01, 2), 9.925, 5e-4);
  EXPECT_NEAR(student_limit(0.01, 10), 3.169, 5e-4);
  EXPECT_NEAR(student_limit(0.05, 1e6), 1.95996, 5e-4) << "the normal distribution";
}

TEST(Student, TailsAndLimitsAreInverse) {
  EXPECT_EQ(student_tail(0, 3), 1);
  EXPECT_EQ(student_tail(-2, 3), student_tail(2, 3));
  for (const double degrees : {0.5, 1.0, 2.0, 3.7, 12.0, 400.0}) {
    for (const double tail : {0.9, 0.3, 0.04, 1e-4})
      EXPECT_NEAR(student_tail(student_limit(tail, degrees), degrees), tail, 1e-9 * tail) << degrees;
  }
  // With one and two degrees the distribution has a closed form.
  for (const double t : {0.2, 1.0, 7.0}) {
    EXPECT_NEAR(student_tail(t, 1), 1 - 2 * std::atan(t) / M_PI, 1e-12);
    EXPECT_NEAR(student_tail(t, 2), 1 - t / std::sqrt(t * t + 2), 1e-12);
  }
}

TEST(Student, WithFourDegreesThreeErrorsAreALimit) {
  EXPECT_LT(student_limit(1 / kComparisonsPerFalseCall, kLeastDegrees), 3);
  EXPECT_GT(student_limit(1 / kComparisonsPerFalseCall, kLeastDegrees - 0.1), 3);
}

std::vector<StepDifference> steps_of(const std::vector<double>& differences) {
  std::vector<StepDifference> all;
  for (std::size_t i = 0; i < differences.size(); ++i)
    all.push_back({static_cast<std::int64_t>(i) + 1, differences[i]});
  return all;
}

TEST(PairedGap, OfFewStepsIsTheTextbooks) {
  // Means 1, 2, 6 of the last step: mean 3, variance 7, error √(7/3), two degrees.
  const std::vector<SeedDifferences> pairs = {
      {1, steps_of({0, 1})}, {2, steps_of({0, 2})}, {5, steps_of({0, 6})}};
  const std::optional<PairedGap> gap = paired_gap(pairs);
  ASSERT_TRUE(gap);
  EXPECT_EQ(gap->seeds, (std::vector<std::uint64_t>{1, 2, 5}));
  EXPECT_EQ(gap->gaps, (std::vector<double>{1, 2, 6}));
  EXPECT_EQ(gap->mean, 3);
  EXPECT_NEAR(*gap->standard_error, std::sqrt(7.0 / 3), 1e-12);
  EXPECT_EQ(gap->degrees_of_freedom, 2);
  EXPECT_NEAR(*gap->limit, student_limit(0.04, 2) * std::sqrt(7.0 / 3), 1e-9);
}

TEST(PairedGap, OfOneSeedHasNoError) {
  const std::optional<PairedGap> gap = paired_gap(std::vector<SeedDifferences>{{7, steps_of({1, 2})}});
  ASSERT_TRUE(gap);
  EXPECT_EQ(gap->mean, 2);
  EXPECT_FALSE(gap->standard_error);
  EXPECT_FALSE(gap->limit);
  EXPECT_FALSE(paired_gap({}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(paired_gap(std::vector<SeedDifferences>{{1, steps_of({1, nan})}, {2, {}}}));
}

/// How the differences of two runs with equal seeds vary: within a run from step to step, with a memory, by
/// an offset that a seed keeps, and with a size that grows or falls with the steps. docs/laboratory.md has
/// measured ones: offsets of 0 to 2 errors of a window's mean, a memory of up to a fifth of the run.
struct Noise {
  double memory = 0;  // correlation of neighbouring steps
  double offset = 0;  // of a seed, in errors of the mean of a tenth of the steps
  double trend = 0;   // e to this power is the last size relative to the first
};

std::vector<SeedDifferences> random_pairs(std::mt19937_64& random, const Noise& noise, std::size_t seeds,
                                          std::size_t steps) {
  std::normal_distribution<double> normal;
  std::vector<SeedDifferences> pairs;
  for (std::size_t k = 0; k < seeds; ++k) {
    std::vector<double> all;
    const double offset = noise.offset * normal(random) / std::sqrt(static_cast<double>(steps) / 10);
    double error = normal(random);
    for (std::size_t t = 0; t < steps; ++t) {
      error = noise.memory * error + std::sqrt(1 - noise.memory * noise.memory) * normal(random);
      const double size = std::exp(noise.trend * static_cast<double>(t) / static_cast<double>(steps));
      all.push_back(size * (offset + error));
    }
    pairs.push_back({k + 1, steps_of(all)});
  }
  return pairs;
}

/// Returns the share of comparisons of equal policies that are called different.
double false_calls(const Noise& noise, std::size_t seeds, std::size_t steps) {
  constexpr int kComparisons = 2000;
  std::mt19937_64 random(11);
  int calls = 0;
  for (int i = 0; i < kComparisons; ++i) {
    const std::optional<PairedGap> gap = paired_gap(random_pairs(random, noise, seeds, steps));
    calls += std::abs(gap->mean) > *gap->limit ? 1 : 0;
  }
  return static_cast<double>(calls) / kComparisons;
}

/// 2000 comparisons with a chance of 0.04 have a standard deviation of 0.0044.
TEST(PairedGap, CallsEqualPoliciesDifferentInAtMostOneOf25Comparisons) {
  for (const std::size_t steps : {5U, 40U, 150U}) {
    for (const double memory : {0.0, 0.7, 0.95}) {
      for (const double trend : {0.0, -2.0, 3.0})
        EXPECT_LT(false_calls({.memory = memory, .offset = 1, .trend = trend}, 3, steps), 0.04 + 3 * 0.0044)
            << steps << " steps, memory " << memory << ", trend " << trend;
    }
  }
  EXPECT_LT(false_calls({.memory = 0.9, .offset = 1, .trend = -1}, 5, 100), 0.04 + 3 * 0.0044);
}

/// Seeds that keep their differences to the end leave K − 1 degrees of freedom, of which the correlation of
/// the windows is an estimate: the worst case of the rule.
TEST(PairedGap, CallsEqualPoliciesDifferentInAtMostOneOf15ComparisonsIfSeedsKeepTheirDifferences) {
  for (const std::size_t steps : {40U, 200U})
    EXPECT_LT(false_calls({.memory = 0.7, .offset = 10, .trend = 0}, 3, steps), 1.0 / 15) << steps;
  std::mt19937_64 random(12);
  double degrees = 0;
  for (int i = 0; i < 200; ++i)
    degrees +=
        paired_gap(random_pairs(random, {.memory = 0, .offset = 30}, 3, 200))->degrees_of_freedom / 200;
  EXPECT_LT(degrees, 2.2);
}

/// Losses of two policies that differ by `shift` standard errors of their comparison.
Comparison planted(std::mt19937_64& random, const std::optional<double>& shift) {
  constexpr std::size_t kSteps = 300, kSeeds = 3;
  std::vector<SeedDifferences> pairs =
      random_pairs(random, {.memory = 0.9, .offset = 0.5, .trend = -1}, kSeeds, kSteps);
  const std::optional<PairedGap> gap = paired_gap(pairs);
  const double add = shift ? *shift * *gap->standard_error - gap->mean : 0;
  Comparison c;
  std::normal_distribution<double> normal;
  for (const SeedDifferences& pair : pairs) {
    ComparedRun reference;
    reference.name = "a";
    reference.seed = pair.seed;
    ComparedRun run = reference;
    run.name = "b";
    const double of_seed = normal(random);  // what another seed changes is far larger
    for (const StepDifference& d : pair.steps) {
      const double loss = 30 + of_seed + normal(random) - 0.05 * static_cast<double>(d.step);
      reference.steps.push_back({d.step, loss});
      run.steps.push_back({d.step, loss + d.difference + add});
    }
    run.of = 1;
    std::vector<ComparedRun>& to = c.runs.size() < 2 ? c.runs : c.reseeded;
    to.push_back(reference);
    to.push_back(run);
  }
  judge(c);
  return c;
}

TEST(PairedGap, CallsAtMostTwoOf40EqualPairsDifferentAndAll20PlantedDifferencesOfThreeErrors) {
  std::mt19937_64 random(2026);
  int equal = 0, wrong = 0, found = 0, told = 0;
  for (int i = 0; i < 40; ++i) {
    const Outcome outcome = planted(random, {}).runs[1].outcome;
    equal += outcome == Outcome::same ? 1 : 0;
    wrong += outcome == Outcome::better || outcome == Outcome::worse ? 1 : 0;
  }
  EXPECT_LE(wrong, 2);
  EXPECT_GE(equal, 38);
  for (int i = 0; i < 20; ++i) {
    const double shift = i % 2 == 0 ? 3 : -3;
    const Comparison c = planted(random, shift);
    const Outcome outcome = c.runs[1].outcome;
    EXPECT_NEAR(*c.runs[1].gap, shift * *c.runs[1].paired->standard_error, 1e-9);
    found += outcome == (shift > 0 ? Outcome::worse : Outcome::better) ? 1 : 0;
    told += c.runs[1].paired->degrees_of_freedom >= kLeastDegrees ? 1 : 0;
  }
  EXPECT_EQ(found, told) << "three errors are enough with four degrees of freedom";
  EXPECT_EQ(found, 20);
}

}  // namespace
}  // namespace mantissa::lab
