// One value at a time, in integer arithmetic: the definition of every conversion between formats. The vector
// code of convert-inl.h gives the same bits, and the tests hold both against MPFR.
#pragma once

#include <cstdint>

#include "mantissa/numeric/format.h"

namespace mantissa {

/// The value of the code `bits` of format `s` (its low 8 × bytes_of(s) bits). Exact. A nan keeps its sign and
/// payload, and is quiet; e4m3's is without payload.
double decode(std::uint64_t bits, Scalar s);

/// The code of `value` in format `s`, rounded once as `mode` says:
/// - nearest: to the nearest value, ties to the one whose last place is even;
/// - toward_zero: to the next value that is not larger in magnitude;
/// - stochastic: of the two neighbours, away from zero where the first 32 bits of the discarded fraction of
/// the last place exceed
///   `random`. With uniform `random` the expectation is `value`, up to 2^-32 of the last place where more
///   bits are discarded.
/// Subnormals of `s` are kept. A result beyond the largest finite value is inf (e4m3: nan), under toward_zero
/// or `saturate` the largest finite value; infinities stay (e4m3: nan), but `saturate` makes them finite too,
/// as the OCP specification has it. `flush_subnormals` acts on the rounded result and keeps its sign. A nan
/// is made quiet and keeps its sign and the leading bits of its payload; e4m3 has one nan per sign. A code of
/// tf32 is that of f32, with 13 zeros at its end.
std::uint64_t encode(double value, Scalar s, RoundingMode mode = {}, std::uint32_t random = 0);

/// decode(encode(…)): `value` on the grid of `s`.
double round_to(double value, Scalar s, RoundingMode mode = {}, std::uint32_t random = 0);

/// The distance between neighbouring values of `s` at `value` (finite), at least the smallest subnormal. Just
/// below a power of two it is the smaller one; beyond the largest finite value it goes on as if the exponents
/// did.
double ulp(double value, Scalar s);

}  // namespace mantissa
