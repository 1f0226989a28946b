// The head, chunk by chunk of the vocabulary: a product into a small buffer, then one pass over its rows.
#include "mantissa/kernels/head.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <span>
#include <vector>

#include "mantissa/kernels/cpu/head_rows.h"
#include "mantissa/kernels/update.h"
#include "mantissa/numeric/round.h"

namespace mantissa::kernels {
namespace {

using head_rows::Running;

/// Tokens whose chunk of logits is held at once in the forward pass: 2 MB in f32.
constexpr std::int64_t kForwardTokens = 512;
/// The backward pass holds whole leaves, as many as fit into this many tokens, at least one.
constexpr std::int64_t kBackwardTokens = 2048;
/// Where one pass does both, it keeps the logits of whole leaves: as many as fit into this many tokens and
/// logits (128 MB in f32).
constexpr std::int64_t kKeptTokens = 512;
constexpr std::int64_t kKeptLogits = std::int64_t{1} << 25;
/// Rows of one task: about 10 µs at the chunk's width.
constexpr std::int64_t kRowsPerTask = 8;

Scalar arithmetic_of(const GemmOperand& x) {
  return x.operand.format == Scalar::f64 ? Scalar::f64 : Scalar::f32;
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
               std::int64_t first_entry, std::int64_t entries, std::int64_t channels, Accumulator accumulator,
               Scalar rounded, Matrix logits) {
  Gemm g;
  g.rounded = rounded;
  g.accumulator = accumulator;
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

/// Memory for the logits of one chunk, or of all chunks one after the other.
struct Logits {
  Matrix memory;
  bool all_chunks = false;

  /// Those of `count` tokens and the chunk that begins with entry `v`.
  Matrix chunk(std::int64_t v, std::int64_t count) const {
    if (!all_chunks) return memory;
    return {row_of(Matrix{memory.data, memory.type, 1}, v * count), memory.type, memory.ld};
  }
};

struct ForwardScratch {
  Logits logits;
  Running* running = nullptr;  // of each token of a group
};

/// Log-probabilities of tokens [begin, begin + count).
void forward_group(const Context& ctx, const LogProb& h, const ForwardScratch& s, std::int64_t begin,
                   std::int64_t count) {
  const Scalar arithmetic = s.logits.memory.type;
  const bool entropy = h.entropy.data != nullptr;
  std::fill_n(s.running, count, Running());
  for (std::int64_t v = 0; v < h.vocabulary; v += kVocabularyChunk) {
    const std::int64_t n = std::min(kVocabularyChunk, h.vocabulary - v);
    const Matrix chunk = s.logits.chunk(v, count);
    logits_of(ctx, rows_from(h.x, begin), h.weight, count, v, n, h.channels, h.accumulator, h.rounded, chunk);
    for_rows(ctx, count, [&](std::int64_t i) {
      void* logits = row_of(chunk, i);
      head_rows::merge(ctx, arithmetic, logits, static_cast<std::size_t>(n), entropy, h.softmax,
                       s.running[i]);
      const std::int64_t id = h.ids[begin + i] - v;
      if (id >= 0 && id < n) write_number(h.log_prob, begin + i, read_number(logits, arithmetic, id));
    });
  }
  for_rows(ctx, count, [&](std::int64_t i) {
    const std::int64_t t = begin + i;
    const Running& r = s.running[i];
    const double lse = head_rows::log_sum_exp(ctx, arithmetic, r, h.softmax);
    write_number(h.lse, t, lse);
    // A difference and a quotient of two f32 taken in double and rounded once are the f32 operations'
    // results.
    const double logit = h.ids[t] < 0 ? lse : read_number(h.log_prob.data, h.log_prob.type, t);
    write_number(h.log_prob, t, round_to(logit - lse, h.softmax));
    if (entropy) {
      write_number(h.entropy, t, round_to(lse - r.weighted / r.sum, h.softmax));
    }
  });
}

/// Whole leaves [first, last) of the extent's rows, and the tokens they cover.
struct LeafGroup {
  std::size_t first_row = 0, last_row = 0;
  std::int64_t begin = 0, count = 0;
};

/// As many leaves a group as have `tokens` tokens in all, at least one.
std::vector<LeafGroup> leaf_groups(const Extent& extent, std::int64_t tokens) {
  std::vector<LeafGroup> groups;
  const auto step = static_cast<std::size_t>(std::max<std::int64_t>(1, extent.rows_per_leaf));
  for (std::size_t r = 0; r < extent.rows.size(); r += step) {
    const std::size_t end = std::min(extent.rows.size(), r + step);
    const std::int64_t begin = extent.rows[r].begin;
    const std::int64_t count = extent.rows[end - 1].begin + extent.rows[end - 1].length - begin;
    if (!groups.empty() && groups.back().count + count <= tokens) {
      groups.back().last_row = end;
      groups.back().count += count;
    } else {
      groups.push_back({r, end, begin, count});
    }
  }
  return groups;
}

struct BackwardScratch {
  Logits logits;
  Matrix dx;       // of all tokens in arithmetic precision; unused where dx is stored so
  Matrix dweight;  // of one chunk likewise, where several groups add to it
};

/// Entries [v, v + n) of the vocabulary for one group of tokens, whose logits are made again, or `kept` in s.
/// `collects`: the group's sums are added to what is in `dweight`.
void backward_part(const Context& ctx, const LogProbBackward& h, const BackwardScratch& s,
                   const LeafGroup& group, const Extent& extent, std::int64_t v, std::int64_t n,
                   Matrix dweight, bool collects, bool kept) {
  const Scalar arithmetic = s.logits.memory.type;
  std::vector<Row> rows(extent.rows.begin() + static_cast<std::ptrdiff_t>(group.first_row),
                        extent.rows.begin() + static_cast<std::ptrdiff_t>(group.last_row));
  for (Row& r : rows) r.begin -= group.begin;
  const Matrix chunk = s.logits.chunk(v, group.count);
  if (!kept)
    logits_of(ctx, rows_from(h.x, group.begin), h.weight, group.count, v, n, h.channels, h.accumulator,
              h.rounded, chunk);
  for_rows(ctx, group.count, [&](std::int64_t i) {
    const std::int64_t t = group.begin + i;
    const std::int32_t id = h.ids[t];
    const double d = id < 0 ? 0.0 : read_number(h.dlog_prob.data, h.dlog_prob.type, t);
    if (id < 0) {
      std::fill_n(static_cast<std::byte*>(row_of(chunk, i)),
                  static_cast<std::size_t>(n) * bytes_of(arithmetic), std::byte{0});
      return;
    }
    head_rows::gradient(ctx, arithmetic, row_of(chunk, i), static_cast<std::size_t>(n),
                        read_number(h.lse.data, h.lse.type, t), d, id - v, h.softmax);
  });
  const Matrix dx = h.dx.type == arithmetic ? h.dx : s.dx;
  Gemm to_x;
  to_x.accumulator = h.accumulator;
  to_x.m = group.count;
  to_x.n = h.channels;
  to_x.k = n;
  to_x.a = GemmOperand{chunk, h.operand, false};
  to_x.b = rows_from(h.weight, v);
  to_x.b.transposed = false;
  to_x.c = {row_of(dx, group.begin), dx.type, dx.ld};
  to_x.accumulate = to_x.continue_blocks = v > 0;
  gemm(ctx, to_x);
  Gemm to_weight;
  to_weight.accumulator = h.accumulator;
  to_weight.m = n;
  to_weight.n = h.channels;
  to_weight.k = group.count;
  to_weight.a = GemmOperand{chunk, h.operand, true};
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

/// Gradients of some groups, chunk by chunk. `collects`: dweight is added to.
void backward_groups(const Context& ctx, const LogProbBackward& h, const BackwardScratch& s,
                     std::span<const LeafGroup> groups, const Extent& extent, bool collects, bool kept) {
  for (std::int64_t v = 0; v < h.vocabulary; v += kVocabularyChunk) {
    const std::int64_t n = std::min(kVocabularyChunk, h.vocabulary - v);
    const Matrix dweight{row_of(h.dweight, v), h.dweight.type, h.dweight.ld};
    const bool apart = s.dweight.data != nullptr;
    bool adds = collects && !apart;
    for (const LeafGroup& g : groups) {
      backward_part(ctx, h, s, g, extent, v, n, apart ? s.dweight : dweight, adds, kept);
      adds = true;
    }
    if (apart) {
      collect_gradient(ctx, n * h.channels, s.dweight.data, s.dweight.type, dweight.data, dweight.type,
                       collects);
    }
  }
}

std::int64_t chunk_of(std::int64_t vocabulary) {
  return std::min(kVocabularyChunk, vocabulary);
}
/// Logits of a token in whole chunks.
std::int64_t whole_chunks(std::int64_t vocabulary) {
  const std::int64_t chunk = chunk_of(vocabulary);
  return (vocabulary + chunk - 1) / chunk * chunk;
}

std::size_t matrix_bytes(std::int64_t rows, std::int64_t columns, Scalar type) {
  return aligned(static_cast<std::size_t>(rows * columns) * bytes_of(type));
}
Matrix take_matrix(Scratch& scratch, std::int64_t rows, std::int64_t columns, Scalar type) {
  return {scratch.take(matrix_bytes(rows, columns, type)), type, columns};
}

/// Memory for the logits of `tokens` tokens, of one chunk or of all.
Logits take_logits(Scratch& scratch, std::int64_t tokens, std::int64_t vocabulary, Scalar arithmetic,
                   bool all_chunks) {
  const std::int64_t chunk = chunk_of(vocabulary);
  const std::int64_t chunks = all_chunks ? whole_chunks(vocabulary) / chunk : 1;
  return {take_matrix(scratch, chunks * tokens, chunk, arithmetic), all_chunks};
}

std::size_t running_bytes(std::int64_t tokens) {
  return aligned(static_cast<std::size_t>(tokens) * sizeof(Running));
}

/// Of the three products of a group of `tokens` tokens.
std::size_t products_bytes(const Context& ctx, std::int64_t tokens, std::int64_t channels,
                           std::int64_t vocabulary, Scalar arithmetic, int parts) {
  const std::int64_t chunk = chunk_of(vocabulary);
  return std::max({gemm_workspace(ctx, tokens, chunk, channels, arithmetic, parts),
                   gemm_workspace(ctx, tokens, channels, chunk, arithmetic, parts),
                   gemm_workspace(ctx, chunk, channels, tokens, arithmetic, parts)});
}

/// For dx of all tokens where it is not stored in the arithmetic.
std::size_t dx_bytes(std::int64_t tokens, std::int64_t channels, Scalar arithmetic, Scalar dx_type) {
  return dx_type == arithmetic ? 0 : matrix_bytes(tokens, channels, arithmetic);
}

std::int64_t largest_of(const std::vector<LeafGroup>& groups) {
  std::int64_t largest = 0;
  for (const LeafGroup& g : groups) largest = std::max(largest, g.count);
  return largest;
}

/// dx as it is stored.
void store_dx(const Context& ctx, std::int64_t tokens, const LogProbBackward& h, Matrix dx) {
  if (dx.data != nullptr) cast(ctx, tokens * h.channels, dx.data, dx.type, h.dx.data, h.dx.type);
}

/// Tokens of the largest group of leaves of `leaf` tokens each, as many as fit into `most`, at least one.
std::int64_t whole_leaves(std::int64_t tokens, std::int64_t most, std::int64_t leaf) {
  if (tokens <= most) return tokens;
  return std::min(tokens, std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, leaf)) * leaf);
}

/// Groups of at most `most` tokens, smaller ones where the workspace that `bytes` says of a group's tokens is
/// not there: shorter leaves than the workspace was made for may fill a group further.
template <class Bytes>
std::vector<LeafGroup> groups_within(const Context& ctx, const Extent& extent, std::int64_t most,
                                     const Bytes& bytes) {
  std::vector<LeafGroup> groups = leaf_groups(extent, most);
  for (std::int64_t largest = largest_of(groups); bytes(largest) > ctx.workspace_bytes && most > 1;) {
    most = largest - 1;
    groups = leaf_groups(extent, most);
    if (largest_of(groups) == largest) break;  // one leaf
    largest = largest_of(groups);
  }
  return groups;
}

/// Tokens of a group whose logits are all kept.
std::int64_t kept_tokens(std::int64_t vocabulary) {
  return std::min(kKeptTokens, kKeptLogits / whole_chunks(vocabulary));
}

/// Scratch of one pass over `tokens` tokens that keeps the logits of `group` tokens.
std::size_t kept_workspace(const Context& ctx, std::int64_t tokens, std::int64_t group, std::int64_t channels,
                           std::int64_t vocabulary, Scalar arithmetic, Scalar dx_type, int parts) {
  return matrix_bytes(group, whole_chunks(vocabulary), arithmetic) + running_bytes(group) +
         dx_bytes(tokens, channels, arithmetic, dx_type) +
         products_bytes(ctx, group, channels, vocabulary, arithmetic, parts);
}

/// Scratch of a backward pass over `tokens` tokens in groups of at most `group`.
std::size_t backward_workspace(const Context& ctx, std::int64_t tokens, std::int64_t group,
                               std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                               Scalar dx_type, Scalar dweight_type, int parts) {
  const std::int64_t chunk = chunk_of(vocabulary);
  const bool may_be_apart = dweight_type != arithmetic && tokens > kBackwardTokens;
  return matrix_bytes(group, chunk, arithmetic) + dx_bytes(tokens, channels, arithmetic, dx_type) +
         (may_be_apart ? matrix_bytes(chunk, channels, arithmetic) : 0) +
         products_bytes(ctx, group, channels, vocabulary, arithmetic, parts);
}

}  // namespace

std::size_t log_prob_workspace(const Context& ctx, std::int64_t tokens, std::int64_t, std::int64_t channels,
                               std::int64_t vocabulary, Scalar arithmetic, int parts) {
  const std::int64_t group = std::min(tokens, kForwardTokens);
  const std::int64_t chunk = chunk_of(vocabulary);
  return matrix_bytes(group, chunk, arithmetic) + running_bytes(group) +
         gemm_workspace(ctx, group, chunk, channels, arithmetic, parts);
}

void log_prob(const Context& ctx, const Extent& extent, const LogProb& h) {
  const std::int64_t group = std::min(extent.tokens, kForwardTokens);
  Scratch scratch(ctx);
  ForwardScratch s;
  s.logits = take_logits(scratch, group, h.vocabulary, arithmetic_of(h.x), false);
  s.running = static_cast<Running*>(scratch.take(running_bytes(group)));
  for (std::int64_t t = 0; t < extent.tokens; t += group) {
    forward_group(scratch.rest(), h, s, t, std::min(group, extent.tokens - t));
  }
}

std::size_t log_prob_backward_workspace(const Context& ctx, std::int64_t tokens, std::int64_t longest_leaf,
                                        std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                                        Scalar dx_type, Scalar dweight_type, int parts) {
  const std::int64_t group = whole_leaves(tokens, kBackwardTokens, longest_leaf);
  return backward_workspace(ctx, tokens, group, channels, vocabulary, arithmetic, dx_type, dweight_type,
                            parts);
}

void log_prob_backward(const Context& ctx, const Extent& extent, const LogProbBackward& h) {
  const Scalar arithmetic = arithmetic_of(h.x);
  const std::vector<LeafGroup> groups = groups_within(ctx, extent, kBackwardTokens, [&](std::int64_t group) {
    return backward_workspace(ctx, extent.tokens, group, h.channels, h.vocabulary, arithmetic, h.dx.type,
                              h.dweight.type, h.x.operand.parts);
  });
  Scratch scratch(ctx);
  BackwardScratch s;
  s.logits = take_logits(scratch, largest_of(groups), h.vocabulary, arithmetic, false);
  if (h.dx.type != arithmetic) s.dx = take_matrix(scratch, extent.tokens, h.channels, arithmetic);
  // What has to be rounded once is collected first where it has several parts.
  if (h.dweight.type != arithmetic && groups.size() > 1)
    s.dweight = take_matrix(scratch, chunk_of(h.vocabulary), h.channels, arithmetic);
  backward_groups(scratch.rest(), h, s, groups, extent, h.accumulate, false);
  store_dx(ctx, extent.tokens, h, s.dx);
}

bool keeps_logits(std::int64_t longest_leaf, std::int64_t vocabulary) {
  return longest_leaf <= kKeptLogits / whole_chunks(vocabulary);
}

std::size_t log_prob_training_workspace(const Context& ctx, std::int64_t tokens, std::int64_t longest_leaf,
                                        std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                                        Scalar dx_type, Scalar dweight_type, int parts) {
  const std::int64_t group = whole_leaves(tokens, kept_tokens(vocabulary), longest_leaf);
  const bool rounds_parts = dweight_type != arithmetic && group < tokens;
  if (!rounds_parts && keeps_logits(longest_leaf, vocabulary))
    return kept_workspace(ctx, tokens, group, channels, vocabulary, arithmetic, dx_type, parts);
  return std::max(log_prob_workspace(ctx, tokens, longest_leaf, channels, vocabulary, arithmetic, parts),
                  log_prob_backward_workspace(ctx, tokens, longest_leaf, channels, vocabulary, arithmetic,
                                              dx_type, dweight_type, parts));
}

void log_prob_training(const Context& ctx, const Extent& extent, const LogProb& forward,
                       const LogProbBackward& backward) {
  const Scalar arithmetic = arithmetic_of(forward.x);
  const auto workspace = [&](std::int64_t group) {
    return kept_workspace(ctx, extent.tokens, group, forward.channels, forward.vocabulary, arithmetic,
                          backward.dx.type, forward.x.operand.parts);
  };
  const std::vector<LeafGroup> groups =
      groups_within(ctx, extent, kept_tokens(forward.vocabulary), workspace);
  const std::int64_t largest = largest_of(groups);
  // What has to be rounded once cannot be added to group by group.
  const bool rounds_parts = backward.dweight.type != arithmetic && groups.size() > 1;
  if (rounds_parts || !keeps_logits(largest, forward.vocabulary) ||
      workspace(largest) > ctx.workspace_bytes) {
    log_prob(ctx, extent, forward);
    return log_prob_backward(ctx, extent, backward);
  }
  Scratch scratch(ctx);
  BackwardScratch back;
  back.logits = take_logits(scratch, largest, forward.vocabulary, arithmetic, true);
  const ForwardScratch front{back.logits, static_cast<Running*>(scratch.take(running_bytes(largest)))};
  if (backward.dx.type != arithmetic)
    back.dx = take_matrix(scratch, extent.tokens, backward.channels, arithmetic);
  bool collects = backward.accumulate;
  for (const LeafGroup& g : groups) {
    forward_group(scratch.rest(), forward, front, g.begin, g.count);
    backward_groups(scratch.rest(), backward, back, {&g, 1}, extent, collects, true);
    collects = true;
  }
  store_dx(ctx, extent.tokens, backward, back.dx);
}

void log_sum_exp(const Context& ctx, std::int64_t count, std::int64_t vocabulary, ConstMatrix logits,
                 Matrix lse, Scalar softmax) {
  for_rows(ctx, count, [&](std::int64_t i) {
    Running running;
    alignas(64) std::byte chunk[kVocabularyChunk * sizeof(double)];
    for (std::int64_t v = 0; v < vocabulary; v += kVocabularyChunk) {
      const std::int64_t n = std::min(kVocabularyChunk, vocabulary - v);
      const std::size_t size = bytes_of(logits.type);
      std::memcpy(chunk,
                  static_cast<const std::byte*>(row_of(logits, i)) + static_cast<std::size_t>(v) * size,
                  static_cast<std::size_t>(n) * size);
      head_rows::merge(ctx, logits.type, chunk, static_cast<std::size_t>(n), false, softmax, running);
    }
    write_number(lse, i, head_rows::log_sum_exp(ctx, logits.type, running, softmax));
  });
}

}  // namespace mantissa::kernels
