#include "mantissa/engine/runtime/orthogonal.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/numeric/normal.h"
#include "mantissa/kernels/gemm.h"

namespace mantissa::runtime {
namespace {

/// c [m, n] = a·b, or aᵀ·b.
void multiply(const kernels::Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k,
              const std::vector<double>& a, bool transposed, const std::vector<double>& b,
              std::vector<double>& c) {
  kernels::Gemm g;
  g.m = m;
  g.n = n;
  g.k = k;
  g.a = {.matrix = {a.data(), Scalar::f64, transposed ? m : k},
         .operand = Scalar::f64,
         .transposed = transposed};
  g.b = {.matrix = {b.data(), Scalar::f64, n}, .operand = Scalar::f64};
  g.c = {c.data(), Scalar::f64, n};
  const std::size_t bytes = kernels::gemm_workspace(ctx, m, n, k, Scalar::f64);
  Storage work(bytes);
  kernels::Context own = ctx;
  own.workspace = work.data();
  own.workspace_bytes = bytes;
  kernels::gemm(own, g);
}

/// Returns the inverse of R, for G = RᵀR with R upper triangular and a positive diagonal.
std::vector<double> inverse_root(std::vector<double> g, std::int64_t n) {
  const auto at = [n](std::int64_t i, std::int64_t j) { return static_cast<std::size_t>(i * n + j); };
  std::vector<double>& r = g;  // its upper triangle is overwritten row by row
  for (std::int64_t i = 0; i < n; ++i) {
    if (!(r[at(i, i)] > 0)) throw InternalError("a random matrix has linearly dependent columns");
    const double root = std::sqrt(r[at(i, i)]);
    for (std::int64_t j = i; j < n; ++j) r[at(i, j)] /= root;
    for (std::int64_t p = i + 1; p < n; ++p) {
      const double factor = r[at(i, p)];
      for (std::int64_t j = p; j < n; ++j) r[at(p, j)] -= factor * r[at(i, j)];
    }
  }
  std::vector<double> inverse(static_cast<std::size_t>(n * n), 0.0);
  for (std::int64_t i = n; i-- > 0;) {  // row i of R·X = 1, from the last one on
    double* const row = &inverse[at(i, 0)];
    row[i] = 1;
    for (std::int64_t p = i + 1; p < n; ++p) {
      const double factor = r[at(i, p)];
      for (std::int64_t j = p; j < n; ++j) row[j] -= factor * inverse[at(p, j)];
    }
    for (std::int64_t j = i; j < n; ++j) row[j] /= r[at(i, i)];
  }
  return inverse;
}

}  // namespace

std::vector<double> orthogonal_matrix(const kernels::Context& ctx, const RandomStream& stream,
                                      std::int64_t rows, std::int64_t columns, double gain) {
  const bool wide = rows < columns;
  const std::int64_t m = std::max(rows, columns), n = std::min(rows, columns);
  std::vector<double> a(static_cast<std::size_t>(m * n)), q(a.size()), gram(static_cast<std::size_t>(n * n));
  kernels::parallel_for(ctx, m, [&](std::int64_t i, int) {
    normal_row(stream, static_cast<std::uint64_t>(i * n), static_cast<std::size_t>(n),
               &a[static_cast<std::size_t>(i * n)], kernels::simd_target(ctx.simd));
  });
  // Cholesky QR twice: the second time the columns are orthogonal up to the square of the condition number
  // times the rounding error, which leaves only rounding errors (Yamamoto et al., 2015).
  for (int turn = 0; turn < 2; ++turn) {
    multiply(ctx, n, n, m, a, true, a, gram);
    multiply(ctx, m, n, n, a, false, inverse_root(gram, n), q);
    a.swap(q);
  }
  for (double& x : a) x *= gain;
  if (!wide) return a;
  kernels::parallel_for(ctx, n, [&](std::int64_t i, int) {
    for (std::int64_t j = 0; j < m; ++j)
      q[static_cast<std::size_t>(i * m + j)] = a[static_cast<std::size_t>(j * n + i)];
  });
  return q;
}

}  // namespace mantissa::runtime
