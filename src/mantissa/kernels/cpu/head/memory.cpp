#include "mantissa/kernels/cpu/head/memory.h"

#include <algorithm>
#include <cassert>

#include "mantissa/kernels/gemm.h"
#include "mantissa/kernels/head.h"

namespace mantissa::kernels {
namespace head_memory {
namespace {

using head_rows::Running;

/// The single pass keeps the logits of whole leaves: as many leaves as fit into this many tokens and logits
/// (128 MB in f32), and none longer than kLongestKept.
constexpr std::int64_t kKeptTokens = 512;
constexpr std::int64_t kLongestKept = 8192;
constexpr std::int64_t kKeptLogits = std::int64_t{1} << 25;

/// Logits of a token, rounded up to whole chunks.
std::int64_t whole_chunks(std::int64_t vocabulary) {
  const std::int64_t chunk = chunk_of(vocabulary);
  return (vocabulary + chunk - 1) / chunk * chunk;
}

std::size_t matrix_bytes(std::int64_t rows, std::int64_t columns, Scalar type) {
  return aligned(static_cast<std::size_t>(rows * columns) * bytes_of(type));
}

std::size_t running_bytes(std::int64_t tokens) {
  return aligned(static_cast<std::size_t>(tokens) * sizeof(Running));
}

/// Workspace of the three products of a group of `tokens` tokens.
std::size_t products_bytes(const Context& ctx, std::int64_t tokens, std::int64_t channels,
                           std::int64_t vocabulary, Scalar arithmetic, int parts) {
  const std::int64_t chunk = chunk_of(vocabulary);
  return std::max({gemm_workspace(ctx, tokens, chunk, channels, arithmetic, parts),
                   gemm_workspace(ctx, tokens, channels, chunk, arithmetic, parts),
                   gemm_workspace(ctx, chunk, channels, tokens, arithmetic, parts)});
}

/// Memory for dx of all tokens unless it is stored in the arithmetic's format.
std::size_t dx_bytes(std::int64_t tokens, std::int64_t channels, Scalar arithmetic, Scalar dx_type) {
  return dx_type == arithmetic ? 0 : matrix_bytes(tokens, channels, arithmetic);
}

/// Tokens of the largest group of leaves of `leaf` tokens each: as many leaves as fit into `most`, at least
/// one.
std::int64_t whole_leaves(std::int64_t tokens, std::int64_t most, std::int64_t leaf) {
  if (tokens <= most) return tokens;
  return std::min(tokens, std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, leaf)) * leaf);
}

}  // namespace

const void* row_of(ConstMatrix m, std::int64_t row) {
  return static_cast<const std::byte*>(m.data) + static_cast<std::size_t>(row * m.ld) * bytes_of(m.type);
}
void* row_of(Matrix m, std::int64_t row) {
  return static_cast<std::byte*>(m.data) + static_cast<std::size_t>(row * m.ld) * bytes_of(m.type);
}

Matrix Logits::chunk(std::int64_t v, std::int64_t count) const {
  if (!all_chunks) return memory;
  return {row_of(Matrix{memory.data, memory.type, 1}, v * count), memory.type, memory.ld};
}

void* Scratch::take(std::size_t bytes) {
  const std::size_t whole = aligned(bytes);
  assert(whole <= ctx_.workspace_bytes && "the workspace is smaller than the kernel's stated need");
  void* p = ctx_.workspace;
  ctx_.workspace += whole;
  ctx_.workspace_bytes -= whole;
  return p;
}

Matrix Scratch::take_matrix(std::int64_t rows, std::int64_t columns, Scalar type) {
  return {take(matrix_bytes(rows, columns, type)), type, columns};
}

Running* Scratch::take_running(std::int64_t tokens) {
  return static_cast<Running*>(take(running_bytes(tokens)));
}

Logits Scratch::take_logits(std::int64_t tokens, std::int64_t vocabulary, Scalar arithmetic,
                            bool all_chunks) {
  const std::int64_t chunk = chunk_of(vocabulary);
  const std::int64_t chunks = all_chunks ? whole_chunks(vocabulary) / chunk : 1;
  return {take_matrix(chunks * tokens, chunk, arithmetic), all_chunks};
}

std::int64_t chunk_of(std::int64_t vocabulary) {
  return std::min(kVocabularyChunk, vocabulary);
}

std::int64_t kept_tokens(std::int64_t vocabulary) {
  return std::min(kKeptTokens, kKeptLogits / whole_chunks(vocabulary));
}

std::size_t kept_workspace(const Context& ctx, std::int64_t tokens, std::int64_t group, std::int64_t channels,
                           std::int64_t vocabulary, Scalar arithmetic, Scalar dx_type, int parts) {
  return matrix_bytes(group, whole_chunks(vocabulary), arithmetic) + running_bytes(group) +
         dx_bytes(tokens, channels, arithmetic, dx_type) +
         products_bytes(ctx, group, channels, vocabulary, arithmetic, parts);
}

bool splits_leaves(int parts, bool rounds_sums) {
  return parts == 1 && !rounds_sums;
}

std::size_t backward_workspace(const Context& ctx, std::int64_t tokens, std::int64_t group, bool in_parts,
                               std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                               Scalar dx_type, Scalar dweight_type, int parts) {
  const std::int64_t chunk = chunk_of(vocabulary);
  const bool may_be_apart = dweight_type != arithmetic && tokens > kBackwardTokens;
  return matrix_bytes(group, chunk, arithmetic) + dx_bytes(tokens, channels, arithmetic, dx_type) +
         ((may_be_apart ? 1 : 0) + (in_parts ? 1 : 0)) * matrix_bytes(chunk, channels, arithmetic) +
         products_bytes(ctx, group, channels, vocabulary, arithmetic, parts);
}

}  // namespace head_memory

using namespace head_memory;  // NOLINT(google-build-using-namespace)

std::size_t log_prob_workspace(const Context& ctx, std::int64_t tokens, std::int64_t, std::int64_t channels,
                               std::int64_t vocabulary, Scalar arithmetic, int parts) {
  const std::int64_t group = std::min(tokens, kForwardTokens);
  const std::int64_t chunk = chunk_of(vocabulary);
  return matrix_bytes(group, chunk, arithmetic) + running_bytes(group) +
         gemm_workspace(ctx, group, chunk, channels, arithmetic, parts);
}

std::size_t log_prob_backward_workspace(const Context& ctx, std::int64_t tokens, std::int64_t longest_leaf,
                                        std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                                        Scalar dx_type, Scalar dweight_type, int parts, bool rounds_sums) {
  const bool in_parts = splits_leaves(parts, rounds_sums) && longest_leaf > kBackwardTokens;
  const std::int64_t group =
      in_parts ? std::min(tokens, kBackwardTokens) : whole_leaves(tokens, kBackwardTokens, longest_leaf);
  return backward_workspace(ctx, tokens, group, in_parts, channels, vocabulary, arithmetic, dx_type,
                            dweight_type, parts);
}

bool keeps_logits(std::int64_t longest_leaf, std::int64_t vocabulary) {
  return longest_leaf <= std::min(kLongestKept, kKeptLogits / whole_chunks(vocabulary));
}

std::size_t log_prob_training_workspace(const Context& ctx, std::int64_t tokens, std::int64_t longest_leaf,
                                        std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                                        Scalar dx_type, Scalar dweight_type, int parts, bool rounds_sums) {
  const std::int64_t group = whole_leaves(tokens, kept_tokens(vocabulary), longest_leaf);
  const bool rounds_parts = dweight_type != arithmetic && group < tokens;
  if (!rounds_parts && keeps_logits(longest_leaf, vocabulary))
    return kept_workspace(ctx, tokens, group, channels, vocabulary, arithmetic, dx_type, parts);
  return std::max(log_prob_workspace(ctx, tokens, longest_leaf, channels, vocabulary, arithmetic, parts),
                  log_prob_backward_workspace(ctx, tokens, longest_leaf, channels, vocabulary, arithmetic,
                                              dx_type, dweight_type, parts, rounds_sums));
}

}  // namespace mantissa::kernels
