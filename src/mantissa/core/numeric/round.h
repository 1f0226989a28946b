// Conversion of single values in integer arithmetic: the definition of every conversion between formats. The
// vector code of convert-inl.h gives the same bits; the tests compare both with MPFR.
#pragma once

#include <cstdint>

#include "mantissa/core/numeric/format.h"

namespace mantissa {

/// Returns the value of the code `bits` of format `s` (its low 8 × bytes_of(s) bits). Exact. A NaN keeps its
/// sign and payload and becomes quiet; the NaN of e4m3 has no payload.
double decode(std::uint64_t bits, Scalar s);

/// Returns the code of `value` in format `s`, rounded once according to `mode`:
/// - nearest: to the nearest value, ties to the one with an even last place;
/// - toward_zero: to the nearest value that is not larger in magnitude;
/// - stochastic: to the neighbour farther from zero if the first 32 bits of the discarded fraction of the
/// last place exceed `random`, else to the nearer one. With uniform `random` the expectation is `value`, up
/// to 2^-32 of the last place if more bits are discarded.
///
/// Subnormals of `s` are kept. A result beyond the largest finite value becomes inf (e4m3: NaN), or the
/// largest finite value under toward_zero or `saturate`. Infinities stay infinite (e4m3: NaN), except that
/// `saturate` makes them finite too, as the OCP specification requires. `flush_subnormals` acts on the
/// rounded result and keeps its sign. A NaN becomes quiet and keeps its sign and the leading bits of its
/// payload; e4m3 has one NaN per sign. A tf32 code is an f32 code whose last 13 bits are zero.
std::uint64_t encode(double value, Scalar s, RoundingMode mode = {}, std::uint32_t random = 0);

/// Returns decode(encode(…)): `value` rounded to the grid of `s`.
double round_to(double value, Scalar s, RoundingMode mode = {}, std::uint32_t random = 0);

/// Returns the distance between neighbouring values of `s` at `value` (finite), at least the smallest
/// subnormal. At a power of two it is the distance to the next larger value. Beyond the largest finite value
/// the exponents continue as if unbounded.
double ulp(double value, Scalar s);

/// Returns the largest finite value of `s` plus half of its last place. Rounding to nearest changes
/// magnitudes up to it by half a last place at most; larger ones overflow or saturate. It is infinite for
/// f64.
double overflow_bound(Scalar s);

}  // namespace mantissa
