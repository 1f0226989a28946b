// A recurrence over random inputs, as RWKV-7 has them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/row_testing.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/recurrence.h"

namespace mantissa::kernels::testing {

struct RecurrenceCase {
  RecurrenceShape shape;
  Scalar format = Scalar::f32;  // of the inputs and outputs
  Scalar arithmetic = Scalar::f32;
  bool head_decay = false;
  Scalar kept = Scalar::f64;
  std::vector<std::int64_t> lengths = {1, 15, 16, 17, 40};
  StateRounding rounding = {};
};

/// A problem as RWKV-7 has them: α = −κ̂ and β = κ̂∘a with a unit κ̂, and decays over their whole range.
struct RecurrenceProblem {
  explicit RecurrenceProblem(const RecurrenceCase& c, unsigned seed = kSeed)
      : of(c),
        batch(c.lengths),
        r(c.format, batch.tokens, c.shape.keys(), 1),
        decay(c.format, batch.tokens, c.head_decay ? c.shape.heads : c.shape.keys(), 2),
        k(r),
        v(c.format, batch.tokens, c.shape.values()),
        alpha(r),
        beta(r),
        dy(v),
        y(v),
        dr(r),
        ddecay(decay),
        dk(r),
        dv(v),
        dalpha(r),
        dbeta(r),
        initial(c.arithmetic, 1, c.shape.state()),
        dinitial(initial) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(0, 1);
    std::normal_distribution<double> normal;
    for (Tensor* t : {&r, &k, &v, &dy, &initial}) t->fill_normal(random);
    for (std::int64_t t = 0; t < batch.tokens; ++t) {
      for (std::int64_t j = 0; j < decay.columns; ++j)
        decay.set(t, j, -0.6065306597126334 * std::pow(uniform(random), 4));
      for (std::int64_t h = 0; h < c.shape.heads; ++h) {
        std::vector<double> unit(static_cast<std::size_t>(c.shape.key_dim));
        double square = 0;
        for (double& x : unit) {
          x = normal(random);
          square += x * x;
        }
        for (std::int64_t j = 0; j < c.shape.key_dim; ++j) {
          const double x = unit[static_cast<std::size_t>(j)] / std::sqrt(square);
          alpha.set(t, h * c.shape.key_dim + j, -x);
          beta.set(t, h * c.shape.key_dim + j, x * uniform(random));
        }
      }
    }
    dinitial = Tensor(c.arithmetic, 1, c.shape.state());
    for (std::int64_t i = 0; i < c.shape.state(); ++i) dinitial.set(0, i, 0);
  }

  Recurrence call() {
    return {of.shape, of.head_decay, r,       decay,      k, v, alpha, beta, y, {},
            {},       of.arithmetic, of.kept, of.rounding};
  }
  void forward(Context ctx, const Recurrence& c) {
    const Storage memory(recurrence_workspace(ctx, of.shape, of.arithmetic));
    ctx.workspace = memory.data();
    recurrence(ctx, batch.extent(), c);
  }
  void forward(const Context& ctx) { forward(ctx, call()); }
  RecurrenceBackward backward_call() {
    return {of.shape, of.head_decay, r,  decay, k,      v,     alpha, beta,          {},      dy,
            dr,       ddecay,        dk, dv,    dalpha, dbeta, {},    of.arithmetic, of.kept, of.rounding};
  }
  void backward(Context ctx, const RecurrenceBackward& b) {
    const Storage memory(
        recurrence_backward_workspace(ctx, of.shape, *std::ranges::max_element(of.lengths), of.arithmetic));
    ctx.workspace = memory.data();
    recurrence_backward(ctx, batch.extent(), b);
  }
  /// `after_others`: the initial state is that of rows before.
  void backward(const Context& ctx, bool of_initial = false, bool after_others = false) {
    RecurrenceBackward b = backward_call();
    if (of_initial) {
      b.initial = initial;
      b.dinitial = dinitial;
    }
    if (after_others) b.before = initial;
    backward(ctx, b);
  }
  std::vector<const Tensor*> gradients() const { return {&dr, &ddecay, &dk, &dv, &dalpha, &dbeta}; }

  RecurrenceCase of;
  Batch batch;
  Tensor r, decay, k, v, alpha, beta, dy, y, dr, ddecay, dk, dv, dalpha, dbeta, initial, dinitial;
};

}  // namespace mantissa::kernels::testing
