// Error bounds of the attention kernels, derived from the formats and sizes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention_case.h"

namespace mantissa::kernels::attention_test {

/// Half the distance between neighbouring values of `s` around x: the largest rounding error.
inline double rounding_of(Scalar s, double x) {
  const ScalarTraits& t = traits(s);
  const double subnormal = std::ldexp(1.0, t.min_normal_exp - t.mantissa_bits);
  return std::max(unit_roundoff(s) * std::abs(x), subnormal / 2);
}

inline double dot_abs(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::abs(a[i] * b[i]);
  return sum;
}

inline double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

inline constexpr double kExpUlps = 4;   // an exponential of at most 2 ulp is 4 unit roundoffs
inline constexpr double kTanhUlps = 3;  // a tanh of at most 1.35 ulp

/// A score and its derivative with respect to scale·q·k, with error bounds of the kernel's values.
struct Score {
  double value = 0, error = 0;
  double slope = 1, slope_error = 0;
};

/// First-order error bounds of the kernels relative to the exact values. A sum of n products in a chain errs
/// by at most n·u·Σ|a·b|, and each rounding to a format by rounding_of. u is the arithmetic's unit roundoff.
struct Bounds {
  const Case& c;
  std::vector<double> q, k, v, out, lse, dout;
  double u;
  std::int64_t d, heads, group, stride;
  double spans;  // of keys, whose results are merged

  explicit Bounds(const Case& of, double merged_spans = 0)
      : c(of),
        q(of.q.values()),
        k(of.k.values()),
        v(of.v.values()),
        out(of.out.values()),
        lse(of.lse.values()),
        dout(of.dout.values()),
        u(unit_roundoff(of.formats.arithmetic())),
        d(of.sizes.head_dim),
        heads(of.sizes.heads),
        group(of.sizes.heads / of.sizes.kv_heads),
        stride(of.sizes.kv_heads * of.sizes.head_dim),
        spans(merged_spans) {}

  double scale() const { return c.sizes.shape().scale; }

  template <class F>
  void for_each_query(F f) const {
    for (const Segment& s : c.segments) {
      for (std::int64_t t = 0; t < s.length; ++t) {
        for (std::int64_t h = 0; h < heads; ++h)
          f(s, t, (s.begin + t) * heads + h, s.begin * stride + h / group * d);
      }
    }
  }

  /// A scaled product errs by its chain over head_dim and the scaling. The slope of tanh is at most 1, so the
  /// cap adds only its own roundings: quotient, tanh and product.
  Score score(std::int64_t row, std::int64_t at) const {
    const double *a = &q[static_cast<std::size_t>(row * d)], *b = &k[static_cast<std::size_t>(at)];
    const double scaled = scale() * dot(a, b, d);
    const double error = static_cast<double>(d + 2) * u * scale() * dot_abs(a, b, d);
    const double cap = c.sizes.soft_cap;
    if (cap == 0) return {scaled, error, 1, 0};
    const double t = std::tanh(scaled / cap), slope = 1 - t * t;
    const double t_error = error / cap + (kTanhUlps + 1) * u * std::abs(t);
    return {cap * t, cap * t_error + u * cap * std::abs(t), slope,
            2 * std::abs(t) * t_error + t_error * t_error + u * slope};
  }

  /// Computes bounds of out and lse from their exact values.
  void forward(const std::vector<double>& exact_out, const std::vector<double>& exact_lse,
               std::vector<double>& out_bound, std::vector<double>& lse_bound) const {
    out_bound.assign(exact_out.size(), 0);
    lse_bound.assign(exact_lse.size(), 0);
    for_each_query([&](const Segment&, std::int64_t t, std::int64_t row, std::int64_t base) {
      const auto r = static_cast<std::size_t>(row);
      double worst = 0, range = 0;
      std::vector<double> p;
      const std::int64_t first = c.sizes.first_key(t);
      for (std::int64_t j = first; j <= t; ++j) {
        const Score s = score(row, base + j * stride);
        worst = std::max(worst, s.error);
        range = std::max(range, std::abs(s.value));
        p.push_back(std::exp(s.value - exact_lse[r]));
      }
      // One exponential per key, and one per key block for rescaling. Its argument is a rounded difference of
      // at most 2·range. Merging a span has two more, and a logarithm.
      const auto blocks = static_cast<double>(t / kKeyBlock + 1) + 4 * spans;
      const double p_error = worst + (blocks + 1) * (2 * range + kExpUlps + 2) * u;
      const double sum_error = p_error + (static_cast<double>(t + 1) / 16 + blocks + 20) * u;
      lse_bound[r] = 1.01 * (sum_error + worst + (kExpUlps + 1) * u * (std::abs(exact_lse[r]) + range + 1));
      const double chain = (static_cast<double>(std::min(t + 1, kKeyBlock)) + 2 * blocks + 2) * u;
      std::vector<double> error(static_cast<std::size_t>(d));
      for (std::int64_t j = first; j <= t; ++j) {
        const double of_p = p[static_cast<std::size_t>(j - first)];
        const double each = (p_error + sum_error + chain) * of_p + rounding_of(c.formats.operand, of_p);
        for (std::int64_t i = 0; i < d; ++i) {
          error[static_cast<std::size_t>(i)] +=
              each * std::abs(v[static_cast<std::size_t>(base + j * stride + i)]);
        }
      }
      for (std::int64_t i = 0; i < d; ++i) {
        const double before = error[static_cast<std::size_t>(i)];
        const double exact = exact_out[static_cast<std::size_t>(row * d + i)];
        out_bound[static_cast<std::size_t>(row * d + i)] =
            1.01 * before + rounding_of(c.formats.out, std::abs(exact) + before);
      }
    });
  }

  /// Replaces the exact values of dq, dk and dv, computed from the same rounded out and lse, by their bounds.
  void backward(std::vector<double>& dq, std::vector<double>& dk, std::vector<double>& dv) const {
    const auto n_q =
        static_cast<double>(kKeyBlock) + static_cast<double>(c.sizes.tokens()) / kKeyBlock + 2 + spans;
    const double n_k =
        kQueryBlock + static_cast<double>(group * (c.sizes.tokens() / kQueryBlock + 1)) + 2 + spans;
    std::vector<double> bq(dq.size()), bk(dk.size()), bv(dv.size());
    for_each_query([&](const Segment&, std::int64_t t, std::int64_t row, std::int64_t base) {
      const double* g = &dout[static_cast<std::size_t>(row * d)];
      const double* o = &out[static_cast<std::size_t>(row * d)];
      const double delta = dot(g, o, d), delta_abs = dot_abs(g, o, d), l = lse[static_cast<std::size_t>(row)];
      for (std::int64_t j = c.sizes.first_key(t); j <= t; ++j) {
        const std::int64_t at = base + j * stride;
        const double* value = &v[static_cast<std::size_t>(at)];
        const Score of_pair = score(row, at);
        const double s = of_pair.value, p = std::exp(s - l), x = dot(g, value, d) - delta;
        const double p_error = p * (of_pair.error + (std::abs(s - l) + std::abs(s) + kExpUlps) * u);
        const double x_error =
            static_cast<double>(d + 1) * u * (dot_abs(g, value, d) + delta_abs) + u * std::abs(x);
        const double ds = p * x * of_pair.slope * scale();
        const double ds_error = scale() * ((p_error * std::abs(x) + p * x_error) * of_pair.slope +
                                           p * std::abs(x) * of_pair.slope_error) +
                                (c.sizes.soft_cap > 0 ? 4 : 3) * u * std::abs(ds);
        const double p_total = p_error + rounding_of(c.formats.operand, p + p_error) + n_k * u * p;
        const double ds_rounding = ds_error + rounding_of(c.formats.operand, std::abs(ds) + ds_error);
        for (std::int64_t i = 0; i < d; ++i) {
          const auto qi = static_cast<std::size_t>(row * d + i), ki = static_cast<std::size_t>(at + i);
          bv[ki] += p_total * std::abs(dout[qi]);
          bk[ki] += (ds_rounding + n_k * u * std::abs(ds)) * std::abs(q[qi]);
          bq[qi] += (ds_rounding + n_q * u * std::abs(ds)) * std::abs(k[ki]);
        }
      }
    });
    const auto finish = [&](std::vector<double>& exact_then_bound, const std::vector<double>& bound) {
      for (std::size_t i = 0; i < bound.size(); ++i) {
        const double before = 1.01 * bound[i];
        exact_then_bound[i] =
            before + rounding_of(c.formats.gradient, std::abs(exact_then_bound[i]) + before);
      }
    };
    finish(dq, bq);
    finish(dk, bk);
    finish(dv, bv);
  }
};

inline void expect_within(const char* what, const Tensor& tensor, const std::vector<double>& exact,
                          const std::vector<double>& bound) {
  const std::vector<double> actual = tensor.values();
  const auto columns = static_cast<std::size_t>(tensor.columns);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    ASSERT_LE(std::abs(actual[i] - exact[i]), bound[i])
        << what << " at row " << i / columns << ", column " << i % columns << ": " << actual[i]
        << ", expected " << exact[i];
  }
}

}  // namespace mantissa::kernels::attention_test
