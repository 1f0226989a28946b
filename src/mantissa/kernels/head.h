// The language-model head fused with log-softmax: [tokens × vocabulary] never exists. Chunked over
// vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/kernels/context.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/tensor/extent.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels {

/// Vocabulary entries of one chunk. The log-sum-exp is merged chunk by chunk in ascending order, so this is
/// semantics.
inline constexpr std::int64_t kVocabularyChunk = 1024;

/// For each token: logits z = x·Wᵀ (f32, rounded to `rounded`, k order of gemm()), l = z, or with a
/// `soft_cap` l = soft_cap · tanh(z / soft_cap), each of the three operations rounded to f32; lse = log Σ exp
/// l, log_prob = l[id] − lse, entropy = lse − Σ p·l. Per chunk: m' = max(m, chunk), s = s·exp(m − m') + Σ
/// exp(l − m') over 16 virtual lanes. x: [tokens, channels]; weight: [vocabulary, channels]; ids: [tokens],
/// −1 where no id is asked (log_prob 0); log_prob, lse, entropy: [tokens], f32 (f64 in f64); entropy.data may
/// be null. With a `softmax` below the arithmetic l, the exponentials, their sum after each chunk, lse and
/// log_prob are rounded to it.
struct LogProb {
  std::int64_t channels = 0;
  std::int64_t vocabulary = 0;
  GemmOperand x;       // not transposed
  GemmOperand weight;  // [vocabulary, channels], as stored
  const std::int32_t* ids = nullptr;
  Matrix log_prob, lse, entropy;
  Accumulator accumulator = {};  // of the logits
  Scalar rounded = Scalar::f32;  // what logits are rounded to; f32: not at all
  Scalar softmax = Scalar::f64;  // f64: in the arithmetic
  double soft_cap = 0;           // 0: none
};
std::size_t log_prob_workspace(const Context& ctx, std::int64_t tokens, std::int64_t longest_leaf,
                               std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                               int parts = 1);
void log_prob(const Context& ctx, const Extent& extent, const LogProb& h);

/// Gradients from per-token upstream d = dL/dlog_prob [tokens]: dlogits = d · (onehot(id) − p), with a
/// `soft_cap` times 1 − (l / soft_cap)² (a quotient r, fma(−r, r, 1), a product), rounded to `operand` as a
/// matmul operand; dx = dlogits·W (k = vocabulary, blocks of 256 in order), rounded once to
/// dx.type; dweight += dlogitsᵀ·x over leaves, and where dweight has fewer bits than the arithmetic, rounded
/// once after all leaves. The logits are recomputed chunk by chunk. Tokens with id −1
/// contribute exact zeros.
struct LogProbBackward {
  std::int64_t channels = 0;
  std::int64_t vocabulary = 0;
  GemmOperand x;
  GemmOperand weight;
  const std::int32_t* ids = nullptr;
  ConstMatrix lse;
  ConstMatrix dlog_prob;
  Factor operand = Scalar::f32;
  Accumulator accumulator = {};  // of all three products; dx begins its blocks anew with every chunk
  Scalar rounded = Scalar::f32;  // of the logits
  Scalar softmax = Scalar::f64;  // l and p are rounded to it
  double soft_cap = 0;           // 0: none
  Matrix dx;                     // [tokens, channels]; data == nullptr: not computed
  Matrix dweight;                // [vocabulary, channels], rows side by side; the same
  bool accumulate = false;
};
std::size_t log_prob_backward_workspace(const Context& ctx, std::int64_t tokens, std::int64_t longest_leaf,
                                        std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                                        Scalar dx_type, Scalar dweight_type, int parts = 1);
void log_prob_backward(const Context& ctx, const Extent& extent, const LogProbBackward& h);

/// Both: log_prob(forward), then log_prob_backward(backward) from its lse, with the same bits. The logits of
/// a few leaves at a time, 128 MB in f32 at most, are kept between the two and made once; where one leaf has
/// more than that (keeps_logits() is false), or the workspace is too small for it, they are made twice.
bool keeps_logits(std::int64_t longest_leaf, std::int64_t vocabulary);
std::size_t log_prob_training_workspace(const Context& ctx, std::int64_t tokens, std::int64_t longest_leaf,
                                        std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                                        Scalar dx_type, Scalar dweight_type, int parts = 1);
void log_prob_training(const Context& ctx, const Extent& extent, const LogProb& forward,
                       const LogProbBackward& backward);

/// lse[i], and the same reduction as log_prob, of rows of logits l that exist: [count, vocabulary] f32 (f64
/// in f64), capped where they are to be. Gives the bits that log_prob gives for the same logits.
void log_sum_exp(const Context& ctx, std::int64_t count, std::int64_t vocabulary, ConstMatrix logits,
                 Matrix lse, Scalar softmax = Scalar::f64);

}  // namespace mantissa::kernels
