// Gradients of a compiled graph against central differences.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "engine/runtime/program.h"

namespace mantissa::graph::testing {

using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::options_for;
using mantissa::testing::Segments;
using mantissa::testing::train_step;

/// Σ d·output, and the sum of the terms' sizes.
inline std::pair<double, double> loss(const Compiled& c, std::string_view output, std::span<const double> d,
                                      const Segments& rows) {
  c.executor->run(Phase::forward, rows.extent());
  const std::vector<double> values = c.values(output, d.size());
  double sum = 0, size = 0;
  for (std::size_t i = 0; i < d.size(); ++i) {
    sum += d[i] * values[i];
    size += std::abs(d[i] * values[i]);
  }
  return {sum, size};
}

/// Derivatives by steps of h and 2h: D(h) = g + c·h² + …, so (4·D(h) − D(2h))/3 = g + O(h⁴), and the change
/// that this makes to D(h) bounds what is left. The function's own rounding errors, at most `chain` u of its
/// size, are divided by the step. A step over a kink of relu(x)², whose second derivative jumps, has an error
/// of its own: networks with many of them need a small h.
inline void check_gradients(Compiled& c, std::string_view output, std::span<const double> d,
                            const Segments& rows, double chain, double h = 0x1p-11) {
  train_step(c, rows.extent());
  std::vector<std::vector<double>> gradients;
  for (std::size_t s = 0; s < c.program.slots.size(); ++s) {
    const bool trained = c.program.slots[s].gradient != plan::kNoBuffer;
    gradients.push_back(!trained ? std::vector<double>() : c.values(c.program.slots[s].gradient, c.count(s)));
  }
  for (std::size_t s = 0; s < gradients.size(); ++s) {
    const plan::BufferId master = c.program.slots[s].master_buffer;
    bool moves = false;
    for (std::size_t e = 0; e < gradients[s].size();
         e += std::max<std::size_t>(1, gradients[s].size() / 24)) {
      const double at = c.values(master, 1, e).front();
      const auto difference = [&](double step) {
        c.set(master, e, at + step);
        const auto [up, size] = loss(c, output, d, rows);
        c.set(master, e, at - step);
        const auto [down, size_down] = loss(c, output, d, rows);
        c.set(master, e, at);
        return std::pair{(up - down) / (2 * step), std::max(size, size_down)};
      };
      const auto [near, size] = difference(h);
      const auto [far, size_far] = difference(2 * h);
      const double want = (4 * near - far) / 3;
      const double tolerance =
          std::abs(near - far) * h + 3 * chain * unit_roundoff(Scalar::f64) * (size + 1) / h;
      ASSERT_NEAR(gradients[s][e], want, tolerance) << c.program.slots[s].name << " element " << e;
      moves = moves || std::abs(want) > 100 * tolerance;
    }
    EXPECT_TRUE(moves || gradients[s].empty())
        << "no element of " << c.program.slots[s].name << " has a gradient to speak of";
  }
}

inline void check_gradients(const Graph& graph, std::int64_t vocabulary, const Segments& rows, double chain) {
  Compiled c(graph, precision::Policy::parse("64-true"), options_for(rows));
  const Data data(rows.tokens, vocabulary, 3);
  data.feed(c, 0, data.ids.size());
  if (c.program.find("order") != plan::kNoBuffer) {
    for (std::size_t t = 0; t < data.ids.size(); ++t)
      c.integers("order")[t] = static_cast<std::int32_t>(3 * t % 5);
  }
  check_gradients(c, "log_prob", data.d, rows, chain);
}

}  // namespace mantissa::graph::testing
