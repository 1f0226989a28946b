// The head, chunk by chunk of the vocabulary: a product into a small buffer, then one pass over its rows.
#include "mantissa/kernels/head.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "mantissa/kernels/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/head.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h, which sets the target that these are compiled for.
#include "mantissa/numeric/convert-inl.h"
#include "mantissa/numeric/lanes-inl.h"
#include "mantissa/numeric/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace inl = mantissa::HWY_NAMESPACE;

/// What is known of one token's logits so far: their maximum, Σ exp(l − max), and Σ exp(l − max)·l.
template <class T>
struct Running {
  T max = -std::numeric_limits<T>::infinity();
  T sum = 0;
  T weighted = 0;
};

template <class T>
T ExpOne(T x) {
  const hn::CappedTag<T, 1> d;
  return hn::GetLane(inl::Exp(d, hn::Set(d, x)));
}

template <class T>
T LogOne(T x) {
  const hn::CappedTag<T, 1> d;
  return hn::GetLane(inl::Log(d, hn::Set(d, x)));
}

/// Merges one chunk of `n` logits into `r`.
template <class T>
void MergeChunk(const T* logits, std::size_t n, bool entropy, Running<T>& r) {
  const T max = std::max(r.max, inl::MaxRow(logits, n));
  const T rescale = ExpOne<T>(r.max - max);
  const auto exp_of = [logits, max](auto d, std::size_t i, std::size_t count) HWY_ATTR {
    const auto mask = hn::FirstN(d, count);
    const auto e = inl::Exp(d, hn::Sub(hn::MaskedLoad(mask, d, logits + i), hn::Set(d, max)));
    return hn::IfThenElseZero(mask, e);
  };
  r.sum = r.sum * rescale + inl::SumRow<T>(n, exp_of);
  if (entropy) {
    const auto weighted = [logits, exp_of](auto d, std::size_t i, std::size_t count) HWY_ATTR {
      return hn::Mul(exp_of(d, i, count), hn::MaskedLoad(hn::FirstN(d, count), d, logits + i));
    };
    r.weighted = r.weighted * rescale + inl::SumRow<T>(n, weighted);
  }
  r.max = max;
}

template <class T>
T LogSumExpOf(const Running<T>& r) {
  return r.max + LogOne<T>(r.sum);
}

/// logits → d · (onehot(id) − exp(logits − lse)), in place. `id` counts from the chunk's first entry;
/// outside: not here.
template <class T>
void LogitGradient(T* logits, std::size_t n, T lse, T d_log_prob, std::int64_t id) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto minus = hn::Set(d, -d_log_prob);
  const auto shift = hn::Set(d, lse);
  const T hit = id >= 0 && id < static_cast<std::int64_t>(n)
                    ? d_log_prob * (T{1} - ExpOne<T>(logits[static_cast<std::size_t>(id)] - lse))
                    : T{0};
  for (std::size_t i = 0; i < n; i += lanes) {
    const auto mask = hn::FirstN(d, n - i);
    const auto p = inl::Exp(d, hn::Sub(hn::MaskedLoad(mask, d, logits + i), shift));
    hn::BlendedStore(hn::Mul(minus, p), mask, d, logits + i);
  }
  if (id >= 0 && id < static_cast<std::int64_t>(n)) logits[static_cast<std::size_t>(id)] = hit;
}

void MergeChunkImpl(Scalar type, const void* logits, std::size_t n, bool entropy, void* running) {
  if (type == Scalar::f64) {
    MergeChunk(static_cast<const double*>(logits), n, entropy, *static_cast<Running<double>*>(running));
  } else {
    MergeChunk(static_cast<const float*>(logits), n, entropy, *static_cast<Running<float>*>(running));
  }
}

double LogSumExpImpl(Scalar type, const void* running) {
  return type == Scalar::f64 ? LogSumExpOf(*static_cast<const Running<double>*>(running))
                             : static_cast<double>(LogSumExpOf(*static_cast<const Running<float>*>(running)));
}

void LogitGradientImpl(Scalar type, void* logits, std::size_t n, double lse, double d_log_prob,
                       std::int64_t id) {
  if (type == Scalar::f64) {
    LogitGradient(static_cast<double*>(logits), n, lse, d_log_prob, id);
  } else {
    LogitGradient(static_cast<float*>(logits), n, static_cast<float>(lse), static_cast<float>(d_log_prob),
                  id);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {
namespace {

HWY_EXPORT(MergeChunkImpl);
HWY_EXPORT(LogSumExpImpl);
HWY_EXPORT(LogitGradientImpl);

/// Tokens whose chunk of logits is held at once in the forward pass: 2 MB in f32.
constexpr std::int64_t kForwardTokens = 512;
/// The backward pass holds whole leaves, as many as fit into this many tokens, at least one.
constexpr std::int64_t kBackwardTokens = 2048;
/// Rows of one task: about 10 µs at the chunk's width.
constexpr std::int64_t kRowsPerTask = 8;

/// Room for Running<double>, whatever the arithmetic.
constexpr std::size_t kRunningBytes = 3 * sizeof(double);

Scalar arithmetic_of(const GemmOperand& x) {
  return x.operand == Scalar::f64 ? Scalar::f64 : Scalar::f32;
}

/// Row `row` of a matrix.
const void* row_of(ConstMatrix m, std::int64_t row) {
  return static_cast<const std::byte*>(m.data) + static_cast<std::size_t>(row * m.ld) * bytes_of(m.type);
}
void* row_of(Matrix m, std::int64_t row) {
  return static_cast<std::byte*>(m.data) + static_cast<std::size_t>(row * m.ld) * bytes_of(m.type);
}
GemmOperand rows_from(GemmOperand o, std::int64_t row) {
  o.matrix.data = row_of(o.matrix, row);
  return o;
}

double read_number(const void* data, Scalar type, std::int64_t i) {
  return type == Scalar::f64 ? static_cast<const double*>(data)[i]
                             : static_cast<double>(static_cast<const float*>(data)[i]);
}
void write_number(Matrix m, std::int64_t i, double value) {
  if (m.type == Scalar::f64) {
    static_cast<double*>(m.data)[i] = value;
  } else {
    static_cast<float*>(m.data)[i] = static_cast<float>(value);
  }
}

/// Scratch cut in pieces from the front; what is left is the product's.
class Scratch {
 public:
  explicit Scratch(const Context& ctx) : ctx_(ctx) {}
  void* take(std::size_t bytes) {
    const std::size_t whole = aligned(bytes);
    assert(whole <= ctx_.workspace_bytes && "the workspace is smaller than the kernel's stated need");
    void* p = ctx_.workspace;
    ctx_.workspace += whole;
    ctx_.workspace_bytes -= whole;
    return p;
  }
  const Context& rest() const { return ctx_; }

 private:
  Context ctx_;
};

void logits_of(const Context& ctx, const GemmOperand& x, const GemmOperand& weight, std::int64_t tokens,
               std::int64_t first_entry, std::int64_t entries, std::int64_t channels, Matrix logits) {
  Gemm g;
  g.m = tokens;
  g.n = entries;
  g.k = channels;
  g.a = x;
  g.b = rows_from(weight, first_entry);
  g.b.transposed = true;
  g.c = logits;
  gemm(ctx, g);
}

void for_rows(const Context& ctx, std::int64_t rows, const std::function<void(std::int64_t)>& body) {
  parallel_for(ctx, (rows + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task, int) {
    for (std::int64_t r = task * kRowsPerTask; r < std::min(rows, (task + 1) * kRowsPerTask); ++r) body(r);
  });
}

struct ForwardScratch {
  Matrix logits;
  std::byte* running;
  std::byte* running_of(std::int64_t i) const {
    return running + static_cast<std::size_t>(i) * kRunningBytes;
  }
};

void reset_running(Scalar arithmetic, std::byte* at) {
  // The layout of Running<T>: maximum, sum, weighted sum.
  if (arithmetic == Scalar::f64) {
    auto* r = reinterpret_cast<double*>(at);
    r[0] = -std::numeric_limits<double>::infinity();
    r[1] = r[2] = 0;
  } else {
    auto* r = reinterpret_cast<float*>(at);
    r[0] = -std::numeric_limits<float>::infinity();
    r[1] = r[2] = 0;
  }
}

double running_field(Scalar arithmetic, const std::byte* at, std::int64_t field) {
  return read_number(at, arithmetic, field);
}

/// Log-probabilities of tokens [begin, begin + count).
void forward_group(const Context& ctx, const LogProb& h, const ForwardScratch& s, std::int64_t begin,
                   std::int64_t count) {
  const Scalar arithmetic = s.logits.type;
  const bool entropy = h.entropy.data != nullptr;
  for (std::int64_t i = 0; i < count; ++i) reset_running(arithmetic, s.running_of(i));
  for (std::int64_t v = 0; v < h.vocabulary; v += kVocabularyChunk) {
    const std::int64_t n = std::min(kVocabularyChunk, h.vocabulary - v);
    logits_of(ctx, rows_from(h.x, begin), h.weight, count, v, n, h.channels, s.logits);
    for_rows(ctx, count, [&](std::int64_t i) {
      const void* logits = row_of(s.logits, i);
      HWY_DISPATCH_TABLE(MergeChunkImpl)
      [ctx.target()](arithmetic, logits, static_cast<std::size_t>(n), entropy, s.running_of(i));
      const std::int64_t id = h.ids[begin + i] - v;
      if (id >= 0 && id < n) write_number(h.log_prob, begin + i, read_number(logits, arithmetic, id));
    });
  }
  for_rows(ctx, count, [&](std::int64_t i) {
    const std::int64_t t = begin + i;
    const double lse = HWY_DISPATCH_TABLE(LogSumExpImpl)[ctx.target()](arithmetic, s.running_of(i));
    write_number(h.lse, t, lse);
    // A difference and a quotient of two f32 taken in double and rounded once are the f32 operations'
    // results.
    const double logit = h.ids[t] < 0 ? lse : read_number(h.log_prob.data, h.log_prob.type, t);
    write_number(h.log_prob, t, logit - lse);
    if (entropy) {
      const double sum = running_field(arithmetic, s.running_of(i), 1);
      const double weighted = running_field(arithmetic, s.running_of(i), 2);
      write_number(h.entropy, t, lse - weighted / sum);
    }
  });
}

/// Whole leaves [first, last) of the extent's rows, and the tokens they cover.
struct LeafGroup {
  std::size_t first_row = 0, last_row = 0;
  std::int64_t begin = 0, count = 0;
};

std::vector<LeafGroup> leaf_groups(const Extent& extent) {
  std::vector<LeafGroup> groups;
  const auto step = static_cast<std::size_t>(std::max<std::int64_t>(1, extent.rows_per_leaf));
  for (std::size_t r = 0; r < extent.rows.size(); r += step) {
    const std::size_t end = std::min(extent.rows.size(), r + step);
    const std::int64_t begin = extent.rows[r].begin;
    const std::int64_t count = extent.rows[end - 1].begin + extent.rows[end - 1].length - begin;
    if (!groups.empty() && groups.back().count + count <= kBackwardTokens) {
      groups.back().last_row = end;
      groups.back().count += count;
    } else {
      groups.push_back({r, end, begin, count});
    }
  }
  return groups;
}

struct BackwardScratch {
  Matrix logits;
  Matrix dx;       // of all tokens in arithmetic precision; unused where dx is stored so
  Matrix dweight;  // of one chunk likewise, where several groups add to it
};

/// Entries [v, v + n) of the vocabulary for one group of tokens. `collects`: the group's sums are added to
/// what is in `dweight`.
void backward_part(const Context& ctx, const LogProbBackward& h, const BackwardScratch& s,
                   const LeafGroup& group, const Extent& extent, std::int64_t v, std::int64_t n,
                   Matrix dweight, bool collects) {
  const Scalar arithmetic = s.logits.type;
  std::vector<Row> rows(extent.rows.begin() + static_cast<std::ptrdiff_t>(group.first_row),
                        extent.rows.begin() + static_cast<std::ptrdiff_t>(group.last_row));
  for (Row& r : rows) r.begin -= group.begin;
  logits_of(ctx, rows_from(h.x, group.begin), h.weight, group.count, v, n, h.channels, s.logits);
  for_rows(ctx, group.count, [&](std::int64_t i) {
    const std::int64_t t = group.begin + i;
    const std::int32_t id = h.ids[t];
    const double d = id < 0 ? 0.0 : read_number(h.dlog_prob.data, h.dlog_prob.type, t);
    if (id < 0) {
      std::fill_n(static_cast<std::byte*>(row_of(s.logits, i)),
                  static_cast<std::size_t>(n) * bytes_of(arithmetic), std::byte{0});
      return;
    }
    HWY_DISPATCH_TABLE(LogitGradientImpl)
    [ctx.target()](arithmetic, row_of(s.logits, i), static_cast<std::size_t>(n),
                   read_number(h.lse.data, h.lse.type, t), d, id - v);
  });
  const Matrix dx = h.dx.type == arithmetic ? h.dx : s.dx;
  Gemm to_x;
  to_x.m = group.count;
  to_x.n = h.channels;
  to_x.k = n;
  to_x.a = GemmOperand{s.logits, h.operand, false};
  to_x.b = rows_from(h.weight, v);
  to_x.b.transposed = false;
  to_x.c = {row_of(dx, group.begin), dx.type, dx.ld};
  to_x.accumulate = to_x.continue_blocks = v > 0;
  gemm(ctx, to_x);
  Gemm to_weight;
  to_weight.m = n;
  to_weight.n = h.channels;
  to_weight.k = group.count;
  to_weight.a = GemmOperand{s.logits, h.operand, true};
  to_weight.b = rows_from(h.x, group.begin);
  to_weight.c = dweight;
  if (dweight.type == arithmetic) {
    to_weight.accumulate = collects;
  } else if (collects) {
    to_weight.addend = dweight;
  }
  to_weight.rows = rows;
  to_weight.rows_per_leaf = extent.rows_per_leaf;
  gemm(ctx, to_weight);
}

std::int64_t chunk_of(std::int64_t vocabulary) {
  return std::min(kVocabularyChunk, vocabulary);
}

}  // namespace

std::size_t log_prob_workspace(const Context& ctx, std::int64_t tokens, std::int64_t, std::int64_t channels,
                               std::int64_t vocabulary, Scalar arithmetic) {
  const std::int64_t group = std::min(tokens, kForwardTokens);
  const std::int64_t chunk = chunk_of(vocabulary);
  return aligned(static_cast<std::size_t>(group * chunk) * bytes_of(arithmetic)) +
         aligned(static_cast<std::size_t>(group) * kRunningBytes) +
         gemm_workspace(ctx, group, chunk, channels, arithmetic);
}

void log_prob(const Context& ctx, const Extent& extent, const LogProb& h) {
  const Scalar arithmetic = arithmetic_of(h.x);
  const std::int64_t group = std::min(extent.tokens, kForwardTokens);
  const std::int64_t chunk = chunk_of(h.vocabulary);
  Scratch scratch(ctx);
  ForwardScratch s;
  s.logits = {scratch.take(static_cast<std::size_t>(group * chunk) * bytes_of(arithmetic)), arithmetic,
              chunk};
  s.running = static_cast<std::byte*>(scratch.take(static_cast<std::size_t>(group) * kRunningBytes));
  for (std::int64_t t = 0; t < extent.tokens; t += group) {
    forward_group(scratch.rest(), h, s, t, std::min(group, extent.tokens - t));
  }
}

std::size_t log_prob_backward_workspace(const Context& ctx, std::int64_t tokens, std::int64_t longest_leaf,
                                        std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                                        Scalar dx_type, Scalar dweight_type) {
  const std::int64_t group = std::min(tokens, std::max(kBackwardTokens, longest_leaf));
  const std::int64_t chunk = chunk_of(vocabulary);
  const auto numbers = [&](std::int64_t rows, std::int64_t columns) {
    return aligned(static_cast<std::size_t>(rows * columns) * bytes_of(arithmetic));
  };
  const std::size_t products = std::max({gemm_workspace(ctx, group, chunk, channels, arithmetic),
                                         gemm_workspace(ctx, group, channels, chunk, arithmetic),
                                         gemm_workspace(ctx, chunk, channels, group, arithmetic)});
  return numbers(group, chunk) + (dx_type == arithmetic ? 0 : numbers(tokens, channels)) +
         (dweight_type == arithmetic || tokens <= kBackwardTokens ? 0 : numbers(chunk, channels)) + products;
}

void log_prob_backward(const Context& ctx, const Extent& extent, const LogProbBackward& h) {
  const Scalar arithmetic = arithmetic_of(h.x);
  const std::vector<LeafGroup> groups = leaf_groups(extent);
  std::int64_t largest = 0;
  for (const LeafGroup& g : groups) largest = std::max(largest, g.count);
  const std::int64_t chunk = chunk_of(h.vocabulary);
  Scratch scratch(ctx);
  const auto numbers = [&](std::int64_t rows, std::int64_t columns) -> Matrix {
    return {scratch.take(static_cast<std::size_t>(rows * columns) * bytes_of(arithmetic)), arithmetic,
            columns};
  };
  BackwardScratch s;
  s.logits = numbers(largest, chunk);
  if (h.dx.type != arithmetic) s.dx = numbers(extent.tokens, h.channels);
  // What has to be rounded once is collected first where it has several parts.
  const bool apart = h.dweight.type != arithmetic && groups.size() > 1;
  if (apart) s.dweight = numbers(chunk, h.channels);
  for (std::int64_t v = 0; v < h.vocabulary; v += kVocabularyChunk) {
    const std::int64_t n = std::min(kVocabularyChunk, h.vocabulary - v);
    const Matrix dweight{row_of(h.dweight, v), h.dweight.type, h.dweight.ld};
    bool collects = h.accumulate && !apart;
    for (const LeafGroup& g : groups) {
      backward_part(scratch.rest(), h, s, g, extent, v, n, apart ? s.dweight : dweight, collects);
      collects = true;
    }
    if (apart) {
      collect_gradient(ctx, n * h.channels, s.dweight.data, arithmetic, dweight.data, dweight.type,
                       h.accumulate);
    }
  }
  if (h.dx.type != arithmetic) {
    cast(ctx, extent.tokens * h.channels, s.dx.data, arithmetic, h.dx.data, h.dx.type);
  }
}

void log_sum_exp(const Context& ctx, std::int64_t count, std::int64_t vocabulary, ConstMatrix logits,
                 Matrix lse) {
  for_rows(ctx, count, [&](std::int64_t i) {
    alignas(double) std::byte running[kRunningBytes];
    reset_running(logits.type, running);
    for (std::int64_t v = 0; v < vocabulary; v += kVocabularyChunk) {
      const std::int64_t n = std::min(kVocabularyChunk, vocabulary - v);
      const void* chunk = static_cast<const std::byte*>(row_of(logits, i)) +
                          static_cast<std::size_t>(v) * bytes_of(logits.type);
      HWY_DISPATCH_TABLE(MergeChunkImpl)
      [ctx.target()](logits.type, chunk, static_cast<std::size_t>(n), false, running);
    }
    write_number(lse, i, HWY_DISPATCH_TABLE(LogSumExpImpl)[ctx.target()](logits.type, running));
  });
}

}  // namespace mantissa::kernels
#endif  // HWY_ONCE
