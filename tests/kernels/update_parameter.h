// A parameter in some formats, for the tests of AdamW's update.
#pragma once

#include <cmath>
#include <random>

#include "kernels/adamw.h"
#include "kernels/row_testing.h"
#include "mantissa/core/numeric/philox.h"

namespace mantissa::kernels::testing {

inline const RoundingKey kKey{.seed = 3, .step = 70, .name_hash = hash_name("model.norm.weight")};

struct Formats {
  Scalar master, copy, gradient, moment;
  Rounding rounding = Rounding::nearest;
  bool compensated = false;
  Scalar lowered = Scalar::f64;  // arithmetic
  Scalar arithmetic() const { return is_f64(master) ? Scalar::f64 : Scalar::f32; }
};

/// A parameter in the middle of training, and the result of an update.
struct Parameter {
  Parameter(const Formats& f, std::int64_t count)
      : master(f.master, 1, count),
        copy(f.copy, 1, count),
        gradient(f.gradient, 1, count),
        first(f.moment, 1, count),
        second(f.moment, 1, count),
        compensation(f.master, 1, count),
        rounding(f.rounding),
        compensated(f.compensated),
        lowered(f.lowered) {
    std::mt19937 random(kSeed);
    std::normal_distribution<double> normal;
    master.fill_normal(random);
    gradient.fill_normal(random);
    for (std::int64_t i = 0; i < count; ++i) {
      first.set(0, i, normal(random) / 8);
      second.set(0, i, std::exp(normal(random)) / 8);
      compensation.set(0, i, normal(random) / 512);
    }
  }
  AdamW update() {
    return {.count = master.columns,
            .master = master.bytes.data(),
            .master_type = master.type,
            .copy = copy.bytes.data(),
            .copy_type = copy.type,
            .gradient = gradient.bytes.data(),
            .gradient_type = gradient.type,
            .first_moment = first.bytes.data(),
            .second_moment = second.bytes.data(),
            .moment_type = first.type,
            .compensation = compensated ? compensation.bytes.data() : nullptr,
            .rounding = rounding,
            .arithmetic = lowered,
            .key = kKey,
            .lr = 3e-3,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .eps = 1e-8,
            .weight_decay = 0.1,
            .gradient_factor = 0.375,
            .t = 7};
  }
  friend bool operator==(const Parameter&, const Parameter&) = default;

  Tensor master, copy, gradient, first, second, compensation;
  Rounding rounding;
  bool compensated;
  Scalar lowered;
};

}  // namespace mantissa::kernels::testing
