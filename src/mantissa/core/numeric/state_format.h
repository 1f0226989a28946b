// How optimizers store their states: in a number format, or in blocks of codes that share a scale.
//
// Sources: Dettmers and others, 8-bit Optimizers via Block-wise Quantization (arXiv:2110.02861) and
// bitsandbytes for dynamic8; torchao's OptimStateFp8 for e4m3-256.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/simd_target.h"

namespace mantissa {

/// The codes of states in blocks. `dynamic8` is the signed map of 256 numbers, `dynamic8_positive` the map
/// for states that are never negative.
enum class StateCodes : std::uint8_t { none, dynamic8, dynamic8_positive, e4m3, f16 };

/// Elements of a tensor that share a scale, in the order of its memory; the last block may be shorter.
inline constexpr std::size_t kStateBlock = 256;
/// Tensors with fewer elements keep their states in f32, as in bitsandbytes.
inline constexpr std::int64_t kLeastBlockedState = 4096;

/// Bytes of one code; 0 for `none`.
constexpr std::size_t bytes_of(StateCodes codes) {
  return codes == StateCodes::none ? 0 : codes == StateCodes::f16 ? 2 : 1;
}

/// The format of states: `type`, or with codes the values of these codes times their scales, in f32.
struct StateFormat {
  Scalar type = Scalar::f32;
  StateCodes codes = StateCodes::none;

  constexpr StateFormat() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a number format is a format of states
  constexpr StateFormat(Scalar s) : type(s) {}
  constexpr explicit StateFormat(StateCodes c) : codes(c) {}
  constexpr bool in_blocks() const { return codes != StateCodes::none; }
  friend bool operator==(const StateFormat&, const StateFormat&) = default;
};

/// The formats with codes, as a policy names them.
inline constexpr StateFormat kBlockedStates[] = {StateFormat(StateCodes::dynamic8),
                                                 StateFormat(StateCodes::e4m3), StateFormat(StateCodes::f16)};

/// Returns "dynamic8-256", "e4m3-256", "f16-256"; both maps of dynamic8 have one name. "" for `none`.
std::string_view name(StateCodes codes);
/// Returns the name of the codes, or of the number format.
std::string_view name(const StateFormat& format);
/// Returns the format with the name `text`, in any letter case; see also parse_scalar(). Null if unknown.
std::optional<StateFormat> parse_state_format(std::string_view text);

/// A tensor of `count` elements in blocks: one f32 scale for each block, then the codes.
struct BlockedState {
  StateCodes codes = StateCodes::dynamic8;
  std::byte* data = nullptr;
  std::size_t count = 0;

  std::size_t blocks() const { return (count + kStateBlock - 1) / kStateBlock; }
  std::size_t codes_begin() const { return blocks() * sizeof(float); }
  std::size_t bytes() const { return codes_begin() + count * bytes_of(codes); }
};

/// Stores values[0, n) as elements [first, first + n), where `first` is a multiple of kStateBlock, and so is
/// n unless it reaches the end. With m the largest magnitude of a block, in f32, each operation rounded:
/// - dynamic8: scale m, and the code with the number nearest to x · (1 / max(m, 10^-38)), limited to [−1, 1];
///   between two numbers, the lower one. The numbers are those of kDynamicCodes and kPositiveDynamicCodes.
/// - e4m3, f16: scale m / (largest finite value), code x / scale, rounded to nearest even, saturated; codes
///   are zero if the scale is.
/// A block with a value that is not finite has the scale NaN.
void encode_states(const BlockedState& to, std::size_t first, const float* values, std::size_t n,
                   SimdTarget target = kBestTarget);

/// Reads elements [first, first + n), with `first` a multiple of kStateBlock: number · scale. In a block with
/// the scale zero all are zero.
void decode_states(const BlockedState& from, std::size_t first, std::size_t n, float* values,
                   SimdTarget target = kBestTarget);

}  // namespace mantissa
