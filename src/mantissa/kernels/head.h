// The language-model head fused with log-softmax, in chunks of the vocabulary: the [tokens × vocabulary]
// matrix is never stored.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/gemm.h"

namespace mantissa::kernels {

/// Vocabulary entries per chunk. The log-sum-exp merges chunks in ascending order, so this value affects the
/// result.
inline constexpr std::int64_t kVocabularyChunk = 1024;

/// For each token: logits z = x·Wᵀ (f32, rounded to `rounded`, k order of gemm()); l = z, or with a
/// `soft_cap` l = soft_cap · tanh(z / soft_cap), where each of the three operations rounds to f32; lse = log
/// Σ exp l, log_prob = l[id] − lse, entropy = lse − Σ p·l. Per chunk: m' = max(m, chunk), s = s·exp(m − m') +
/// Σ exp(l − m') over 16 virtual lanes. x: [tokens, channels]; weight: [vocabulary, channels]; ids: [tokens],
/// −1 for tokens without an id (log_prob 0); log_prob, lse, entropy: [tokens], f32 (f64 in f64); entropy.data
/// may be null. With a `softmax` below the arithmetic l, the exponentials, their sum after each chunk, lse
/// and log_prob round to it. `top` [tokens], if its data are not null: the first entry with the largest l, as
/// a number, or −1 if none is a number above −inf.
struct LogProb {
  std::int64_t channels = 0;
  std::int64_t vocabulary = 0;
  GemmOperand x;       // not transposed
  GemmOperand weight;  // [vocabulary, channels], as stored, or rows of quantized blocks
  const std::int32_t* ids = nullptr;
  Matrix log_prob, lse, entropy, top = {};
  Accumulator accumulator = {};  // of the logits
  Scalar rounded = Scalar::f32;  // the format of the logits; f32: no rounding
  Scalar softmax = Scalar::f64;  // f64: in the arithmetic
  double soft_cap = 0;           // 0: none
};
std::size_t log_prob_workspace(const Context& ctx, std::int64_t tokens, std::int64_t longest_leaf,
                               std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                               int parts = 1);
void log_prob(const Context& ctx, const Extent& extent, const LogProb& h);

/// Gradients for the upstream gradients d = dL/dlog_prob [tokens] and, if `dentropy` is given, e =
/// dL/dentropy [tokens]: dlogits = d · (onehot(id) − p). Tokens with e ≠ 0 get −e · p · (log p + H) in
/// addition, with log p = l − lse and H of `entropy` [tokens]: p · fma(−e, log p + H, −d), and for the id
/// fma(−e · (log p + H), p, d · (1 − p)). With a `soft_cap` times 1 − (l / soft_cap)² (a quotient r,
/// fma(−r, r, 1), a product). With `l2wrap` ≠ 0 the entry of `top` [tokens] gets (−d · l2wrap) · l in
/// addition, times the same slope: the gradient of −d · l2wrap · l² / 2, RWKV-LM's regularizer. With `z_loss`
/// z ≠ 0, and without `dentropy`, the gradient of −d · z · lse² is added: with w = d · (1 + 2 · z · lse),
/// products from the left, an entry gets −w · p and the id fma(−w, p, d). Rounded to `operand` as a matmul
/// operand. dx = dlogits·W (k = vocabulary, blocks in order, through the chunks; with operands in several
/// parts in tile order each chunk is a row), rounded once to dx.type; dweight += dlogitsᵀ·x over leaves,
/// rounded once after all leaves if dweight is narrower than the arithmetic. The logits are recomputed in
/// chunks, for at most 2048 tokens at a time: whole leaves, or a part of a longer one. Only longer leaves of
/// operands in several parts, or of an accumulator that rounds (`rounds_sums`), are held whole. Tokens with
/// id −1 contribute exact zeros.
struct LogProbBackward {
  std::int64_t channels = 0;
  std::int64_t vocabulary = 0;
  GemmOperand x;
  GemmOperand weight;
  const std::int32_t* ids = nullptr;
  ConstMatrix lse;
  ConstMatrix dlog_prob;
  ConstMatrix entropy = {}, dentropy = {};  // dentropy.data == nullptr: none
  ConstMatrix top = {};                     // of log_prob(); only read if l2wrap is not 0
  Factor operand = Scalar::f32;
  Accumulator accumulator = {};  // of all three products; for dx, every chunk starts a new block
  Scalar rounded = Scalar::f32;  // of the logits
  Scalar softmax = Scalar::f64;  // the format of l and p
  double soft_cap = 0;           // 0: none
  double l2wrap = 0;             // 0: none
  double z_loss = 0;             // 0: none
  Matrix dx;                     // [tokens, channels]; data == nullptr: not computed
  Matrix dweight;                // [vocabulary, channels], dense rows; data == nullptr: not computed
  bool accumulate = false;
  RangeCounter* losses = nullptr;  // if set, counts what the rounding to dweight's format loses
};
std::size_t log_prob_backward_workspace(const Context& ctx, std::int64_t tokens, std::int64_t longest_leaf,
                                        std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                                        Scalar dx_type, Scalar dweight_type, int parts = 1,
                                        bool rounds_sums = false);
void log_prob_backward(const Context& ctx, const Extent& extent, const LogProbBackward& h);

/// Runs log_prob(forward), then log_prob_backward(backward) with its lse and entropy, with the same bits. The
/// logits of a few leaves at a time, at most 128 MB in f32, are computed once and kept between the two. They
/// are computed twice if a leaf has more than 8192 tokens or needs more memory (keeps_logits() is false), if
/// the workspace is too small, or if dweight is narrower than the arithmetic and there are several groups of
/// leaves.
bool keeps_logits(std::int64_t longest_leaf, std::int64_t vocabulary);
std::size_t log_prob_training_workspace(const Context& ctx, std::int64_t tokens, std::int64_t longest_leaf,
                                        std::int64_t channels, std::int64_t vocabulary, Scalar arithmetic,
                                        Scalar dx_type, Scalar dweight_type, int parts = 1,
                                        bool rounds_sums = false);
void log_prob_training(const Context& ctx, const Extent& extent, const LogProb& forward,
                       const LogProbBackward& backward);

/// Computes lse[i] of rows of stored logits l by the reduction of log_prob. logits: [count, vocabulary], f32
/// (f64 in f64), after any soft cap. Has the bits that log_prob gives for the same logits.
void log_sum_exp(const Context& ctx, std::int64_t count, std::int64_t vocabulary, ConstMatrix logits,
                 Matrix lse, Scalar softmax = Scalar::f64);

}  // namespace mantissa::kernels
