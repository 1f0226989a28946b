// Tells if this processor multiplies pairs of bf16 numbers (VDPBF16PS), and if that pays.
#pragma once

#include <cstdint>

namespace mantissa::kernels {

/// Returns true if the processor has AVX512_BF16 and the system saves its registers.
bool has_bf16_pairs();

/// Returns true if VDPBF16PS does more multiply-adds per second than fused multiply-adds of f32, measured
/// once for 0.1 ms: it issues at the same rate on Zen 4, and at half of it on Sapphire Rapids, where both are
/// equal. Requires has_bf16_pairs().
bool bf16_pairs_are_fast();

/// Runs `rounds` rounds of twelve independent VDPBF16PS of 512 bits, enough to hide their latency. Returns
/// the number of flops; `sink` keeps the results alive. Requires has_bf16_pairs().
double bf16_pair_rounds(std::int64_t rounds, double* sink);

}  // namespace mantissa::kernels
