// A linear recurrence over a matrix, with a correction of rank one in each step: the time mixing of RWKV-7
// (Peng et al., arXiv 2503.14456) and of Gated DeltaNet (Yang et al., arXiv 2412.06464).
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

struct RecurrenceShape {
  std::int64_t heads = 0;
  std::int64_t key_dim = 0;    // of each head
  std::int64_t value_dim = 0;  // of each head

  std::int64_t keys() const { return heads * key_dim; }
  std::int64_t values() const { return heads * value_dim; }
  std::int64_t state() const { return heads * key_dim * value_dim; }  // elements of the state of a sequence
};

/// The backward pass recomputes the states of a segment twice: those before every token whose place in the
/// segment is a multiple of this, and from them the others.
inline constexpr std::int64_t kStateInterval = 16;

struct StateRounding {
  Rounding rounding = Rounding::nearest;
  std::uint64_t name = 0;  // hash_name() of the state
};

/// For each head and each token of a segment in turn, with the state S [key_dim, value_dim]:
///   s = Σ_j α_j S_j,  S_j ← w_j S_j + β_j s + k_j v,  y = Σ_j r_j S_j,  w = exp(decay),
/// where S_j is the row of key component j. In the notation of the papers, S ← S·diag(w) + (S·α)βᵀ + v·kᵀ and
/// y = S·r for the transposed S. RWKV-7: α = −κ̂, β = κ̂∘a. Gated DeltaNet: α = k, β = −b·g·k, v scaled by b,
/// one decay for each head.
///
/// r, k, alpha, beta: [tokens, heads · key_dim]; decay: the same, or [tokens, heads] if `head_decay`; v, y:
/// [tokens, heads · value_dim]. All may be of any format. The arithmetic is f64 if the state is, else f32.
///
/// Order and rounding: s and y are FMA chains over j from zero; S_j = fma(w_j, S_j, fma(β_j, s, k_j·v)), with
/// w = Exp(decay) of core/numeric/math-inl.h. With `kept` below the arithmetic the new S_j rounds to it
/// before anything reads it: to nearest, or by `rounding`, whose random bits are those of (seed, name,
/// sequence) at position · state() + the element's index in [heads, key_dim, value_dim]. y rounds once, to
/// y.type. Nothing depends on how tokens are divided into calls, chunks or rows.
///
/// A segment at position 0 begins with `initial` [1, heads · key_dim · value_dim], or zeros without it; one
/// at a later position with its slot's row of `before` [slots, heads · key_dim · value_dim], or of `state` if
/// that is null. The state after a segment is written to its slot of `state` unless state.data is null.
struct Recurrence {
  RecurrenceShape shape;
  bool head_decay = false;
  ConstMatrix r, decay, k, v, alpha, beta;
  Matrix y;
  Matrix state = {};         // null: no segment continues another
  ConstMatrix initial = {};  // null: zeros
  Scalar arithmetic = Scalar::f32;
  Scalar kept = Scalar::f64;    // f64: in the arithmetic
  StateRounding rounding = {};  // in f64 arithmetic to nearest
  ConstMatrix before = {};      // null: `state`
};

std::size_t recurrence_workspace(const Context& ctx, const RecurrenceShape& shape, Scalar arithmetic);
/// Throws ShapeError for a segment that continues another without `state` or `before`.
void recurrence(const Context& ctx, const Extent& extent, const Recurrence& c);

/// Gradients of `recurrence`, in the same arithmetic. States are recomputed from those that the segments
/// begin with, with the same bits; a rounding of the state counts as the identity. For each token from the
/// last one, with G the gradient of the state after it:
///   G_j += r_j dy,  dv = Σ_j k_j G_j,  ds = Σ_j β_j G_j  (FMA chains over j),
///   dr_j = S_j·dy,  dk_j = G_j·v,  dβ_j = G_j·s,  ddecay_j = w_j (G_j·S'_j),  dα_j = S'_j·ds,
///   G_j ← fma(w_j, G_j, α_j ds),
/// where S' is the state before the token. Products of rows are sums over 16 virtual lanes (lane = value
/// component mod 16), an FMA chain in each, joined within groups of four lanes as (0 + 2) + (1 + 3), and the
/// four groups in the same way; in f64 by the tree 8, 4, 2, 1. With `head_decay`, ddecay is their chain of
/// additions over j. `dinitial` is the sum of the gradients of the first states of segments at position 0,
/// added to it in the order of the segments. The states of `before` are constants without `dbefore`, which
/// receives their gradients by slot, [slots, heads · key_dim · value_dim], for segments at a later position.
/// `dafter` are the gradients of the states after the segments, by slot, zeros without it. Both are in the
/// arithmetic, so that a sequence in several calls, from the last one on, has the bits of one call.
struct RecurrenceBackward {
  RecurrenceShape shape;
  bool head_decay = false;
  ConstMatrix r, decay, k, v, alpha, beta;
  ConstMatrix initial = {};
  ConstMatrix dy;
  Matrix dr, ddecay, dk, dv, dalpha, dbeta;
  Matrix dinitial = {};  // [1, heads · key_dim · value_dim]; null: not needed
  Scalar arithmetic = Scalar::f32;
  Scalar kept = Scalar::f64;
  StateRounding rounding = {};
  ConstMatrix before = {};  // null: no segment continues another
  ConstMatrix dafter = {};
  Matrix dbefore = {};
};

/// `longest`: tokens of the longest segment.
std::size_t recurrence_backward_workspace(const Context& ctx, const RecurrenceShape& shape,
                                          std::int64_t longest, Scalar arithmetic);
void recurrence_backward(const Context& ctx, const Extent& extent, const RecurrenceBackward& c);

}  // namespace mantissa::kernels
