#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace mantissa::kernels::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void axpy(double factor, const double* x, double* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

double rounded(const OperandRounding& round, double x) {
  return round ? round(x) : x;
}

/// The score of a query and a key, and its derivative with respect to scale · q·k.
struct Score {
  double value = 0;
  double slope = 1;
};

Score score_of(const AttentionShape& shape, const double* q, const double* k) {
  const double scaled = shape.scale * dot(q, k, shape.head_dim);
  if (shape.soft_cap <= 0) return {scaled, 1};
  const double t = std::tanh(scaled / shape.soft_cap);
  return {shape.soft_cap * t, 1 - t * t};
}

/// Returns the first position that the query at `position` attends to.
std::int64_t first_key(const AttentionShape& shape, std::int64_t position) {
  return shape.window > 0 ? std::max<std::int64_t>(0, position - shape.window + 1) : 0;
}

/// Attends one query to the keys [first, keys), whose rows are `stride` apart. Returns the log-sum-exp;
/// writes out[head_dim].
double attend(const double* q, const double* k, const double* v, std::int64_t first, std::int64_t keys,
              std::int64_t stride, const AttentionShape& shape, double* out, const OperandRounding& round,
              const OperandRounding& softmax) {
  const std::int64_t d = shape.head_dim;
  double maximum = -kInfinity, denominator = 0;
  std::fill_n(out, d, 0.0);
  std::vector<double> scores;
  for (std::int64_t block = first / kKeyBlock * kKeyBlock; block < keys; block += kKeyBlock) {
    const std::int64_t begin = std::max(first, block), end = std::min(keys, block + kKeyBlock);
    scores.clear();
    for (std::int64_t j = begin; j < end; ++j) {
      scores.push_back(rounded(softmax, score_of(shape, q, k + j * stride).value));
    }
    const double previous = maximum;
    maximum = std::max(maximum, *std::max_element(scores.begin(), scores.end()));
    const double rescale = previous == maximum ? 1 : std::exp(previous - maximum);
    denominator *= rescale;
    for (std::int64_t i = 0; i < d; ++i) out[i] *= rescale;
    for (std::int64_t j = begin; j < end; ++j) {
      const double p = rounded(softmax, std::exp(scores[static_cast<std::size_t>(j - begin)] - maximum));
      denominator += p;
      axpy(rounded(round, p), v + j * stride, out, d);
    }
  }
  denominator = rounded(softmax, denominator);
  for (std::int64_t i = 0; i < d; ++i) out[i] /= denominator;
  return maximum + std::log(denominator);
}

}  // namespace

void attention(const Extent& extent, const AttentionShape& shape, const double* q, const double* k,
               const double* v, double* out, double* lse, const KeyCache& cache, const OperandRounding& round,
               const OperandRounding& softmax) {
  const std::int64_t group = shape.heads / shape.kv_heads, d = shape.head_dim, stride = shape.kv_heads * d;
  for (const Segment& segment : extent.segments) {
    const bool cached = cache.slots > 0;
    const std::int64_t base = (cached ? segment.slot * cache.capacity : segment.begin) * stride;
    const std::int64_t position = cached ? segment.position : 0;
    for (std::int64_t t = 0; t < segment.length; ++t) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        const std::int64_t row = (segment.begin + t) * shape.heads + h;
        const std::int64_t at = base + h / group * d;
        lse[row] = attend(q + row * d, k + at, v + at, first_key(shape, position + t), position + t + 1,
                          stride, shape, out + row * d, round, softmax);
      }
    }
  }
}

void attention_backward(const Extent& extent, const AttentionShape& shape, const double* q, const double* k,
                        const double* v, const double* out, const double* lse, const double* dout, double* dq,
                        double* dk, double* dv, const OperandRounding& round,
                        const OperandRounding& softmax) {
  const std::int64_t group = shape.heads / shape.kv_heads, d = shape.head_dim, stride = shape.kv_heads * d;
  std::fill_n(dq, extent.tokens * shape.heads * d, 0.0);
  std::fill_n(dk, extent.tokens * stride, 0.0);
  std::fill_n(dv, extent.tokens * stride, 0.0);
  for (const Segment& segment : extent.segments) {
    for (std::int64_t t = 0; t < segment.length; ++t) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        const std::int64_t row = (segment.begin + t) * shape.heads + h;
        const double delta = dot(dout + row * d, out + row * d, d);
        for (std::int64_t j = first_key(shape, t); j <= t; ++j) {
          const std::int64_t at = (segment.begin + j) * stride + h / group * d;
          const Score score = score_of(shape, q + row * d, k + at);
          const double p = rounded(softmax, std::exp(rounded(softmax, score.value) - lse[row]));
          const double dp = dot(dout + row * d, v + at, d);
          const double ds = rounded(round, rounded(softmax, p * (dp - delta) * score.slope * shape.scale));
          axpy(rounded(round, p), dout + row * d, dv + at, d);
          axpy(ds, k + at, dq + row * d, d);
          axpy(ds, q + row * d, dk + at, d);
        }
      }
    }
  }
}

}  // namespace mantissa::kernels::reference
