#include "mantissa/text/rows/rwkv_walk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "mantissa/core/base/error.h"
#include "mantissa/text/rows/dataset.h"
#include "text/rows/temp_files.h"

namespace mantissa::text {
namespace {

/// The rows of a stream, whose last id is not the first of a row.
std::int64_t rows_of(std::int64_t tokens, std::int64_t length) {
  return (tokens - 1) / length;
}

TEST(RwkvWalk, HasTheMagicPrimesOfMinipile) {
  constexpr std::int64_t kMinipile = 1'498'226'207;  // tokens, as demo-training-run.sh states
  EXPECT_EQ(magic_prime_below(rows_of(kMinipile, 512)), 2'926'181);
  EXPECT_EQ(magic_prime_below(rows_of(kMinipile, 4096)), 365'759);
}

TEST(RwkvWalk, HasThePrimesBelowTokensDividedByTheLengthMinusOne) {
  // By its definition, in real numbers: 3n + 2 < tokens / length − 1.
  const auto trial_division = [](std::int64_t n) {
    if (n < 2) return false;
    for (std::int64_t d = 2; d * d <= n; ++d) {
      if (n % d == 0) return false;
    }
    return true;
  };
  for (std::int64_t n = 0; n < 5000; ++n) ASSERT_EQ(is_prime(n), trial_division(n)) << n;
  for (const std::int64_t length : {1, 7, 10}) {
    for (std::int64_t tokens = 2; tokens < 700; ++tokens) {
      std::int64_t expected = 0;
      for (std::int64_t p = 2; p * length < tokens - length; p += 3) {
        if (trial_division(p)) expected = p;
      }
      ASSERT_EQ(magic_prime_below(rows_of(tokens, length)), expected) << tokens << " tokens / " << length;
    }
  }
  // A Carmichael number, strong pseudoprimes to the first bases, and primes near 2^63.
  for (const std::int64_t n :
       {std::int64_t{561}, std::int64_t{3'215'031'751}, std::int64_t{3'825'123'056'546'413'051},
        std::int64_t{9'223'372'036'854'775'807}})
    EXPECT_FALSE(is_prime(n)) << n;
  for (const std::int64_t n : {std::int64_t{2'147'483'647}, std::int64_t{9'223'372'036'854'775'783}})
    EXPECT_TRUE(is_prime(n)) << n;
}

TEST(RwkvWalk, HasTheRowsOfTheirDataset) {
  // From dataset.py of RWKV-LM, ii = 1 + epoch·40320 + idx·world_size + rank, computed with whole numbers of
  // any size in Python. Sample s is ii − 1.
  struct Case {
    std::int64_t prime, sample, row;
  };
  constexpr std::int64_t kEpoch = 40320;
  for (const Case& c : {
           Case{2926181, 0, 1808479},
           Case{2926181, 1, 2763108},
           Case{2926181, 2, 2010037},
           Case{2926181, kEpoch - 1, 1326902},
           Case{2926181, kEpoch, 1232952},
           Case{2926181, 71 * kEpoch + 12345, 1419239},
           Case{2926181, 123456 * kEpoch + 7 * 8 + 3, 2699158},
           Case{365759, 0, 226051},
           Case{365759, 1, 345372},
           Case{365759, 2, 251233},
           Case{365759, kEpoch - 1, 246271},
           Case{365759, kEpoch, 334513},
           Case{365759, 71 * kEpoch + 12345, 292667},
           Case{365759, 123456 * kEpoch + 7 * 8 + 3, 60761},
           Case{4611686018427387761, 0, 2850178704830799872},
           Case{4611686018427387761, 1'000'000'000'000'000, 538183878751438293},
       }) {
    EXPECT_EQ(RwkvWalk(c.prime).row(c.sample), c.row) << c.prime << ", sample " << c.sample;
  }
}

TEST(RwkvWalk, VisitsEveryRowBelowThePrimeOnce) {
  for (const std::int64_t prime : {2, 5, 11, 101, 4079}) {
    const RwkvWalk walk(prime);
    std::set<std::int64_t> rows;
    for (std::int64_t s = 0; s < prime; ++s) rows.insert(walk.row(s));
    EXPECT_EQ(std::ssize(rows), prime);
    EXPECT_EQ(*rows.begin(), 0);
    EXPECT_EQ(*rows.rbegin(), prime - 1);
    for (std::int64_t s = 0; s < prime; ++s) EXPECT_EQ(walk.row(prime + s), walk.row(s));
  }
}

std::vector<std::int32_t> counted_ids(std::int32_t tokens) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

Dataset walked(std::int32_t tokens, std::int64_t length, std::int64_t prime = 0, double validation = 0) {
  return {counted_ids(tokens),
          {.sequence_length = length, .validation = validation, .rwkv_walk = true, .magic_prime = prime},
          "data"};
}

TEST(RwkvOrder, ReadsTheIdsFromTheirOffsetOneMoreThanTheContext) {
  constexpr std::int64_t kLength = 10, kTokens = 1500, kPrime = 137;  // 1500 / 10 − 1 = 149
  const auto factor = static_cast<std::int64_t>(137 * ((std::sqrt(5.0) - 1) / 2));
  const Dataset data = walked(kTokens, kLength);
  EXPECT_EQ(data.training_rows(), kPrime);
  std::int64_t ii = 1;
  for (std::int64_t step = 1; step <= 40; ++step) {
    const StepData rows = data.step(step, 4);
    for (std::int64_t r = 0; r < 4; ++r, ++ii) {
      const std::int64_t offset = factor * ii * ii * ii % kPrime * kLength;
      for (std::int64_t t = 0; t <= kLength; ++t)
        ASSERT_EQ(rows.ids[static_cast<std::size_t>(r * (kLength + 1) + t)], offset + t) << "sample " << ii;
    }
  }
  EXPECT_GT(ii, kPrime) << "the walk goes on after all rows";
}

TEST(RwkvOrder, DoesNotDependOnTheBatchSize) {
  const Dataset data = walked(1500, 10);
  const StepData all = data.step(1, 24);
  std::vector<std::int64_t> origins;
  for (std::int64_t step = 1; step <= 8; ++step) {
    const StepData rows = data.step(step, 3);
    origins.insert(origins.end(), rows.origin.begin(), rows.origin.end());
  }
  EXPECT_EQ(origins, all.origin);
}

TEST(RwkvOrder, HoldsOutTheLastRowsBeforeItChoosesThePrime) {
  const Dataset data = walked(1500, 10, 0, 0.1);  // 149 rows: 14 held out, 135 for training
  EXPECT_EQ(data.validation_rows(), 14);
  EXPECT_EQ(data.training_rows(), 131);
  for (std::int64_t step = 1; step <= 131; ++step) EXPECT_LT(data.step(step, 1).origin.front(), 131);
}

TEST(RwkvOrder, TakesAPrimeThatRwkvLmAccepts) {
  EXPECT_EQ(walked(1500, 10, 149).training_rows(), 149);  // all rows
  const auto refused = [](std::int64_t prime) {
    const std::string message = error_of<ConfigError>([&] { walked(1500, 10, prime); });
    EXPECT_TRUE(has(message, "remove the key, which then has the value for this data.sequence_length, 137"));
    return message;
  };
  EXPECT_TRUE(has(refused(167), "data.magic_prime = 167: expected a prime of the form 3n + 2"));
  EXPECT_TRUE(has(refused(167), "but the data have 149 rows"));
  EXPECT_TRUE(has(refused(131), "but the data have 149 rows"));  // 0.88 of them
  EXPECT_TRUE(has(refused(139), "but it is 1 mod 3, not 2"));
  EXPECT_TRUE(has(refused(143), "but it is not a prime"));
}

TEST(RwkvOrder, NeedsDataWithAPrime) {
  EXPECT_TRUE(has(error_of<ConfigError>([] { walked(21, 10); }),
                  "data: expected data for data.order = \"rwkv\" with a prime of the form 3n + 2"));
  EXPECT_TRUE(has(error_of<ConfigError>([] { walked(1311, 10); }), "got 131 rows"));  // 113 is 0.86 of them
  EXPECT_EQ(walked(121, 10).training_rows(), 11);
}

}  // namespace
}  // namespace mantissa::text
