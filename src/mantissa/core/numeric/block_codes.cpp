#include "mantissa/core/numeric/block_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/core/numeric/block_codes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/decode_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {

void DecodeBlocksImpl(const CodedRow& row, std::size_t begin, std::size_t n, float* values) {
  DecodeRow(row, begin, n, values);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa {

HWY_EXPORT(DecodeBlocksImpl);

void decode_blocks(const CodedRow& row, std::size_t begin, std::size_t n, float* values, SimdTarget target) {
  HWY_DISPATCH_TABLE(DecodeBlocksImpl)[simd_index(target)](row, begin, n, values);
}

}  // namespace mantissa
#endif
