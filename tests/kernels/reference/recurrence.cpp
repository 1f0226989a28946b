#include "kernels/reference/recurrence.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace mantissa::kernels::reference {
namespace {

using Values = std::vector<double>;

/// The rows of one token and head.
struct Rows {
  const double *r, *decay, *k, *v, *alpha, *beta;
  bool head_decay;
  double w(std::int64_t j) const { return std::exp(decay[head_decay ? 0 : j]); }
};

Rows rows_of(const Recurrence& c, std::int64_t t, std::int64_t h) {
  const RecurrenceShape& s = c.shape;
  const std::int64_t keys = t * s.keys() + h * s.key_dim, values = t * s.values() + h * s.value_dim;
  const std::int64_t decay = c.head_decay ? t * s.heads + h : keys;
  return {c.r + keys, c.decay + decay, c.k + keys, c.v + values, c.alpha + keys, c.beta + keys, c.head_decay};
}

/// A state [key_dim, value_dim] of one head.
struct State {
  RecurrenceShape shape;
  Values values;
  double& at(std::int64_t j, std::int64_t i) {
    return values[static_cast<std::size_t>(j * shape.value_dim + i)];
  }
  double at(std::int64_t j, std::int64_t i) const {
    return values[static_cast<std::size_t>(j * shape.value_dim + i)];
  }
  /// Returns Σ_j factors[j] S[j, i].
  double combine(const double* factors, std::int64_t i) const {
    double sum = 0;
    for (std::int64_t j = 0; j < shape.key_dim; ++j) sum += factors[j] * at(j, i);
    return sum;
  }
};

State first_state(const Recurrence& c, std::int64_t h) {
  const auto size = static_cast<std::size_t>(c.shape.key_dim * c.shape.value_dim);
  State s{c.shape, Values(size)};
  if (c.initial != nullptr) std::copy_n(c.initial + h * std::ssize(s.values), size, s.values.begin());
  return s;
}

State next(const State& before, const Rows& t) {
  State after = before;
  for (std::int64_t i = 0; i < before.shape.value_dim; ++i) {
    const double s = before.combine(t.alpha, i);
    for (std::int64_t j = 0; j < before.shape.key_dim; ++j)
      after.at(j, i) = t.w(j) * before.at(j, i) + s * t.beta[j] + t.v[i] * t.k[j];
  }
  return after;
}

}  // namespace

void recurrence(const Extent& extent, const Recurrence& c, double* y, double* last) {
  for (const Segment& segment : extent.segments) {
    for (std::int64_t h = 0; h < c.shape.heads; ++h) {
      State state = first_state(c, h);
      for (std::int64_t t = segment.begin; t < segment.begin + segment.length; ++t) {
        const Rows rows = rows_of(c, t, h);
        state = next(state, rows);
        for (std::int64_t i = 0; i < c.shape.value_dim; ++i)
          y[t * c.shape.values() + h * c.shape.value_dim + i] = state.combine(rows.r, i);
      }
      if (last != nullptr) last = std::copy(state.values.begin(), state.values.end(), last);
    }
  }
}

void recurrence_backward(const Extent& extent, const Recurrence& c, const double* dy,
                         const RecurrenceGradients& to) {
  const RecurrenceShape& shape = c.shape;
  if (to.dinitial != nullptr) std::fill_n(to.dinitial, shape.state(), 0.0);
  for (const Segment& segment : extent.segments) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      std::vector<State> states{first_state(c, h)};
      for (std::int64_t t = 0; t < segment.length; ++t)
        states.push_back(next(states.back(), rows_of(c, segment.begin + t, h)));
      State g{shape, Values(states.front().values.size())};
      for (std::int64_t t = segment.length - 1; t >= 0; --t) {
        const std::int64_t token = segment.begin + t;
        const Rows rows = rows_of(c, token, h);
        const State &before = states[static_cast<std::size_t>(t)],
                    &after = states[static_cast<std::size_t>(t) + 1];
        const std::int64_t keys = token * shape.keys() + h * shape.key_dim,
                           values = token * shape.values() + h * shape.value_dim;
        for (std::int64_t i = 0; i < shape.value_dim; ++i) {
          for (std::int64_t j = 0; j < shape.key_dim; ++j) g.at(j, i) += rows.r[j] * dy[values + i];
        }
        Values ds(static_cast<std::size_t>(shape.value_dim)), s = ds;
        for (std::int64_t i = 0; i < shape.value_dim; ++i) {
          to.dv[values + i] = g.combine(rows.k, i);
          ds[static_cast<std::size_t>(i)] = g.combine(rows.beta, i);
          s[static_cast<std::size_t>(i)] = before.combine(rows.alpha, i);
        }
        double of_head = 0;
        for (std::int64_t j = 0; j < shape.key_dim; ++j) {
          double dr = 0, dw = 0, dk = 0, dalpha = 0, dbeta = 0;
          for (std::int64_t i = 0; i < shape.value_dim; ++i) {
            dr += after.at(j, i) * dy[values + i];
            dw += g.at(j, i) * before.at(j, i);
            dk += g.at(j, i) * rows.v[i];
            dbeta += g.at(j, i) * s[static_cast<std::size_t>(i)];
            dalpha += before.at(j, i) * ds[static_cast<std::size_t>(i)];
          }
          to.dr[keys + j] = dr;
          to.dk[keys + j] = dk;
          to.dalpha[keys + j] = dalpha;
          to.dbeta[keys + j] = dbeta;
          of_head += dw * rows.w(j);
          if (!c.head_decay) to.ddecay[keys + j] = dw * rows.w(j);
          for (std::int64_t i = 0; i < shape.value_dim; ++i)
            g.at(j, i) = rows.w(j) * g.at(j, i) + rows.alpha[j] * ds[static_cast<std::size_t>(i)];
        }
        if (c.head_decay) to.ddecay[token * shape.heads + h] = of_head;
      }
      if (to.dinitial == nullptr) continue;
      for (std::size_t i = 0; i < g.values.size(); ++i)
        to.dinitial[static_cast<std::size_t>(h) * g.values.size() + i] += g.values[i];
    }
  }
}

}  // namespace mantissa::kernels::reference
