// The head's scratch memory: how many tokens it works on at once, and where their logits and sums lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/kernels/context.h"
#include "mantissa/kernels/cpu/head_rows.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels::head_memory {

/// Tokens whose chunk of logits is held at once in the forward pass: 2 MB in f32.
inline constexpr std::int64_t kForwardTokens = 512;
/// The backward pass holds whole leaves, as many as fit into this many tokens, at least one.
inline constexpr std::int64_t kBackwardTokens = 2048;

/// Row `row` of a matrix.
const void* row_of(ConstMatrix m, std::int64_t row);
void* row_of(Matrix m, std::int64_t row);

/// Memory for the logits of one chunk, or of all chunks one after the other.
struct Logits {
  Matrix memory;
  bool all_chunks = false;

  /// Those of `count` tokens and the chunk that begins with entry `v`.
  Matrix chunk(std::int64_t v, std::int64_t count) const;
};

struct ForwardScratch {
  Logits logits;
  head_rows::Running* running = nullptr;  // of each token of a group
};

struct BackwardScratch {
  Logits logits;
  Matrix dx;       // of all tokens in arithmetic precision; unused where dx is stored so
  Matrix dweight;  // of one chunk likewise, where several groups add to it
};

/// A context's workspace, cut in pieces from the front; what is left is the product's.
class Scratch {
 public:
  explicit Scratch(const Context& ctx) : ctx_(ctx) {}
  Matrix take_matrix(std::int64_t rows, std::int64_t columns, Scalar type);
  head_rows::Running* take_running(std::int64_t tokens);
  /// Memory for the logits of `tokens` tokens, of one chunk or of all.
  Logits take_logits(std::int64_t tokens, std::int64_t vocabulary, Scalar arithmetic, bool all_chunks);
  const Context& rest() const { return ctx_; }

 private:
  void* take(std::size_t bytes);

  Context ctx_;
};

/// Entries of the largest chunk.
std::int64_t chunk_of(std::int64_t vocabulary);

/// Tokens of a group whose logits are all kept.
std::int64_t kept_tokens(std::int64_t vocabulary);

/// Bytes for one pass over `tokens` tokens that keeps the logits of `group` tokens.
std::size_t kept_workspace(const Context& ctx, std::int64_t tokens, std::int64_t group, std::int64_t channels,
                           std::int64_t vocabulary, Scalar arithmetic, Scalar dx_type, int parts);

/// Bytes for a backward pass over `tokens` tokens in groups of at most `group`.
std::size_t backward_workspace(const Context& ctx, std::int64_t tokens, std::int64_t group,
                               std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                               Scalar dx_type, Scalar dweight_type, int parts);

}  // namespace mantissa::kernels::head_memory
