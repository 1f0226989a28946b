// The stored codes of block formats: elements of 8 or 4 bits, and one byte for each block's scale.
//
// Sources: OCP Microscaling Formats (MX) Specification 1.0 (2023) for the codes of e8m0, e4m3, e5m2 and e2m1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/scaled.h"
#include "mantissa/core/numeric/simd_target.h"

namespace mantissa {

/// One row of a matrix in packed blocks. Elements of 4 bits lie two to a byte, the even one in the low half.
struct CodedRow {
  const std::uint8_t* elements = nullptr;  // of column 0
  const std::uint8_t* scales = nullptr;    // of column 0
  BlockFormat format = BlockFormat::mxfp8;
  bool scale_per_element = false;  // blocks lie along columns: every element has a scale; else every block
};

/// Writes elements [begin, begin + n) times their scales, rounded to bf16: the values of round_blocks, with
/// the signs of zeros, unless a block's scale is below 2^-124 (2^-117 for e5m2 elements). NaN has no payload.
/// Reads only those elements and their scales.
void decode_blocks(const CodedRow& row, std::size_t begin, std::size_t n, float* values,
                   SimdTarget target = kBestTarget);

}  // namespace mantissa
