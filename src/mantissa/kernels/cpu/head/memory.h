// The head's scratch memory: the tokens of one pass, and the location of their logits and sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/cpu/head/rows.h"

namespace mantissa::kernels::head_memory {

/// Tokens whose chunk of logits is held at once in the forward pass: 2 MB in f32.
inline constexpr std::int64_t kForwardTokens = 512;
/// The backward pass holds whole leaves, as many as fit into this many tokens, or a part of a longer leaf.
inline constexpr std::int64_t kBackwardTokens = 2048;

/// Row `row` of a matrix.
const void* row_of(ConstMatrix m, std::int64_t row);
void* row_of(Matrix m, std::int64_t row);

/// Memory for the logits of one chunk, or of all chunks one after the other.
struct Logits {
  Matrix memory;
  bool all_chunks = false;

  /// Returns the logits of `count` tokens in the chunk that starts at entry `v`.
  Matrix chunk(std::int64_t v, std::int64_t count) const;
};

struct ForwardScratch {
  Logits logits;
  head_rows::Running* running = nullptr;  // for each token of a group
};

struct BackwardScratch {
  Logits logits;
  Matrix dx;       // for all tokens, in the arithmetic; unused if dx is stored in it
  Matrix dweight;  // for one chunk, in the arithmetic, if several groups add to it
  Matrix leaf;     // for one chunk, in the arithmetic: the sum of a leaf in parts
};

/// Splits a context's workspace into pieces from the front; the rest belongs to the product.
class Scratch {
 public:
  explicit Scratch(const Context& ctx) : ctx_(ctx) {}
  Matrix take_matrix(std::int64_t rows, std::int64_t columns, Scalar type);
  head_rows::Running* take_running(std::int64_t tokens);
  /// Allocates the logits of `tokens` tokens, for one chunk or for all.
  Logits take_logits(std::int64_t tokens, std::int64_t vocabulary, Scalar arithmetic, bool all_chunks);
  const Context& rest() const { return ctx_; }

 private:
  void* take(std::size_t bytes);

  Context ctx_;
};

/// Returns the number of entries of the largest chunk.
std::int64_t chunk_of(std::int64_t vocabulary);

/// Returns the number of tokens of a group whose logits are all kept.
std::int64_t kept_tokens(std::int64_t vocabulary);

/// Returns the bytes of one pass over `tokens` tokens that keeps the logits of `group` tokens.
std::size_t kept_workspace(const Context& ctx, std::int64_t tokens, std::int64_t group, std::int64_t channels,
                           std::int64_t vocabulary, Scalar arithmetic, Scalar dx_type, int parts);

/// Returns true if a leaf can be summed in parts: products of parts have sums of their own over a row, and
/// sums that round do so after a number of terms of the leaf.
bool splits_leaves(int parts, bool rounds_sums);

/// Returns the bytes of a backward pass over `tokens` tokens in groups of at most `group`, some of which are
/// parts of a leaf if `in_parts`.
std::size_t backward_workspace(const Context& ctx, std::int64_t tokens, std::int64_t group, bool in_parts,
                               std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                               Scalar dx_type, Scalar dweight_type, int parts);

/// Element i of numbers of the arithmetic, f32 or f64.
inline double read_number(const void* data, Scalar type, std::int64_t i) {
  return type == Scalar::f64 ? static_cast<const double*>(data)[i]
                             : static_cast<double>(static_cast<const float*>(data)[i]);
}
inline void write_number(Matrix m, std::int64_t i, double value) {
  if (m.type == Scalar::f64) {
    static_cast<double*>(m.data)[i] = value;
  } else {
    static_cast<float*>(m.data)[i] = static_cast<float>(value);
  }
}

}  // namespace mantissa::kernels::head_memory
