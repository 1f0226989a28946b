// An attention problem with tensors in given formats, shared by the tests of attention.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/sanitized.h"
#include "core/numeric/element.h"
#include "kernels/workspace.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/kernels/attention.h"

namespace mantissa::kernels::attention_test {

inline constexpr unsigned kSeed = 20260301;

/// A dense matrix in some format.
struct Tensor {
  Scalar type = Scalar::f32;
  std::int64_t rows = 0, columns = 0;
  Storage storage;

  Tensor(Scalar format, std::int64_t r, std::int64_t c)
      : type(format), rows(r), columns(c), storage(static_cast<std::size_t>(r * c) * bytes_of(format)) {}

  std::size_t count() const { return static_cast<std::size_t>(rows * columns); }
  std::size_t row_bytes() const { return static_cast<std::size_t>(columns) * bytes_of(type); }
  std::byte* row(std::int64_t i) const { return storage.data() + static_cast<std::size_t>(i) * row_bytes(); }
  Matrix view() const { return {storage.data(), type, columns}; }

  void set(std::size_t i, double x) { mantissa::testing::set_element(storage.data(), type, i, x); }
  double get(std::size_t i) const { return mantissa::testing::element(storage.data(), type, i); }
  std::vector<double> values() const {
    std::vector<double> all(count());
    load_row(storage.data(), type, 0, all.size(), all.data());
    return all;
  }
  void assign(const std::vector<double>& all) { store_row(all.data(), all.size(), storage.data(), type, 0); }
  void fill_normal(std::mt19937& random) {
    std::normal_distribution<double> normal;
    std::vector<double> all(count());
    for (double& x : all) x = normal(random);
    assign(all);
  }
  void copy_rows(std::int64_t to, const Tensor& from, std::int64_t begin, std::int64_t n) {
    std::memcpy(row(to), from.row(begin), static_cast<std::size_t>(n) * row_bytes());
  }
};

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.count() == b.count() && a.type == b.type &&
         std::memcmp(a.storage.data(), b.storage.data(), a.count() * bytes_of(a.type)) == 0;
}

/// The formats and the order of sums of one use of attention.
struct Formats {
  Scalar q, k, v, out, gradient, operand;
  Accumulator order = SumOrder::chain;
  Scalar arithmetic() const { return q == Scalar::f64 ? Scalar::f64 : Scalar::f32; }
};

constexpr Formats all_of(Scalar s, Accumulator order = SumOrder::chain) {
  return {s, s, s, s, s, s, order};
}

inline std::ostream& operator<<(std::ostream& to, const Formats& f) {
  for (const Scalar x : {f.q, f.k, f.v, f.out, f.gradient, f.operand}) to << name(x) << '_';
  if (f.order.order == SumOrder::tile) to << "tile_";
  return to;
}

struct Sizes {
  std::int64_t heads, kv_heads, head_dim;
  std::vector<std::int64_t> lengths;  // of the segments
  std::int64_t window = 0;
  double soft_cap = 0;

  AttentionShape shape() const {
    return {heads, kv_heads, head_dim, 1 / std::sqrt(static_cast<double>(head_dim)), window, soft_cap};
  }
  /// The first position that the query at `position` attends to.
  std::int64_t first_key(std::int64_t position) const {
    return window == 0 ? 0 : std::max<std::int64_t>(0, position + 1 - window);
  }
  /// The position after the last query below `end` that attends to `key`.
  std::int64_t end_query(std::int64_t key, std::int64_t end) const {
    return window == 0 ? end : std::min(end, key + window);
  }
  std::int64_t tokens() const {
    std::int64_t sum = 0;
    for (const std::int64_t n : lengths) sum += n;
    return sum;
  }
  std::vector<Segment> segments() const {
    std::vector<Segment> all;
    std::int64_t begin = 0;
    for (const std::int64_t n : lengths) {
      all.push_back({begin, n, 0, 0});
      begin += n;
    }
    return all;
  }
};

inline std::ostream& operator<<(std::ostream& to, const Sizes& s) {
  to << s.heads << 'x' << s.kv_heads << 'x' << s.head_dim;
  for (const std::int64_t n : s.lengths) to << '_' << n;
  if (s.window > 0) to << "_window" << s.window;
  if (s.soft_cap > 0) to << "_cap" << s.soft_cap;
  return to;
}

inline Extent extent_of(const std::vector<Segment>& segments) {
  return {segments.back().begin + segments.back().length, {}, segments, 1};
}

inline std::int64_t longest(const std::vector<Segment>& segments) {
  std::int64_t most = 0;
  for (const Segment& s : segments) most = std::max(most, s.position + s.length);
  return most;
}

struct Machine {
  Simd simd = best_simd();
  int threads = 1;
};

/// Returns the instruction sets that this machine can run.
inline std::vector<Simd> supported_sets() {
  std::vector<Simd> sets;
  for (const Simd simd : kSimds) {
    if (is_supported(simd)) sets.push_back(simd);
  }
  return sets;
}

inline void run_forward(const Machine& machine, const std::vector<Segment>& segments, const Attention& a) {
  Context ctx{machine.simd, machine.threads, nullptr, 0};
  const Extent extent = extent_of(segments);
  ctx.workspace_bytes =
      attention_workspace(ctx, a.shape, extent.tokens, longest(segments),
                          a.q.type == Scalar::f64 ? Scalar::f64 : Scalar::f32, a.operand.parts);
  ctx.workspace = filled_workspace(ctx.workspace_bytes);
  attention(ctx, extent, a);
}

inline void run_backward(const Machine& machine, const std::vector<Segment>& segments,
                         const AttentionBackward& a) {
  Context ctx{machine.simd, machine.threads, nullptr, 0};
  const Extent extent = extent_of(segments);
  ctx.workspace_bytes =
      attention_backward_workspace(ctx, a.shape, extent.tokens, longest(segments),
                                   a.q.type == Scalar::f64 ? Scalar::f64 : Scalar::f32, a.operand.parts);
  ctx.workspace = filled_workspace(ctx.workspace_bytes);
  attention_backward(ctx, extent, a);
}

/// All tensors of one attention and its gradient.
struct Case {
  Sizes sizes;
  Formats formats;
  std::vector<Segment> segments;
  Tensor q, k, v, out, lse, dout, dq, dk, dv;
  Factor factor;  // the formats' operand, in one part
  Scalar softmax = Scalar::f64;

  Case(const Sizes& s, const Formats& f)
      : sizes(s),
        formats(f),
        segments(s.segments()),
        q(f.q, s.tokens(), s.heads * s.head_dim),
        k(f.k, s.tokens(), s.kv_heads * s.head_dim),
        v(f.v, s.tokens(), s.kv_heads * s.head_dim),
        out(f.out, s.tokens(), s.heads * s.head_dim),
        lse(f.arithmetic(), s.tokens(), s.heads),
        dout(f.gradient, s.tokens(), s.heads * s.head_dim),
        dq(f.gradient, s.tokens(), s.heads * s.head_dim),
        dk(f.gradient, s.tokens(), s.kv_heads * s.head_dim),
        dv(f.gradient, s.tokens(), s.kv_heads * s.head_dim),
        factor(f.operand) {}

  static Case random(const Sizes& s, const Formats& f) {
    Case c(s, f);
    std::mt19937 random(kSeed);
    for (Tensor* t : {&c.q, &c.k, &c.v, &c.dout}) t->fill_normal(random);
    c.round_factors();
    return c;
  }

  /// Rounds q, k, v and dout to the operand's format, so the kernel does not need to round them.
  void round_factors() {
    for (Tensor* t : {&q, &k, &v, &dout}) {
      std::vector<double> values(t->count());
      load_row(t->storage.data(), t->type, 0, values.size(), values.data());
      round_row(values.data(), values.size(), formats.operand);
      store_row(values.data(), values.size(), t->storage.data(), t->type, 0);
    }
  }

  void forward(const Machine& machine = {}) {
    run_forward(machine, segments,
                {sizes.shape(),
                 q.view(),
                 k.view(),
                 v.view(),
                 out.view(),
                 lse.view(),
                 factor,
                 formats.order,
                 {},
                 softmax});
  }
  void backward(const Machine& machine = {}) {
    run_backward(machine, segments,
                 {sizes.shape(), q.view(), k.view(), v.view(), out.view(), lse.view(), dout.view(), dq.view(),
                  dk.view(), dv.view(), factor, formats.order, softmax});
  }
};

/// The name of a test over orders of sums.
inline std::string name_of_order(const ::testing::TestParamInfo<SumOrder>& info) {
  return info.param == SumOrder::tile ? "TileOrder" : "ChainOrder";
}

/// The name of a test over formats and sizes.
inline std::string name_of(const ::testing::TestParamInfo<std::tuple<Formats, Sizes>>& info) {
  std::ostringstream text;
  text << std::get<0>(info.param) << std::get<1>(info.param);
  return text.str();
}

}  // namespace mantissa::kernels::attention_test
