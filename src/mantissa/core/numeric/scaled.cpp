#include "mantissa/core/numeric/scaled.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/core/numeric/same_name.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/core/numeric/scaled.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/scaled-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {

void RoundBlocksImpl(BlockFormat f, float* row, std::size_t n, float tensor_scale, ScaleRounding rounding) {
  RoundBlocks(f, row, n, tensor_scale, rounding);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa {
namespace {

HWY_EXPORT(RoundBlocksImpl);

}  // namespace

std::optional<BlockFormat> parse_block_format(std::string_view text) {
  const auto* found =
      std::ranges::find_if(kBlockFormats, [&](BlockFormat f) { return is_same_name(text, traits(f).name); });
  return found == std::end(kBlockFormats) ? std::nullopt : std::optional(*found);
}

std::string_view formats_of_width(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"fp4", "nvfp4 or mxfp4"},
      {"f4", "nvfp4 or mxfp4"},
      {"float4", "nvfp4 or mxfp4"},
      {"float4_e2m1fn", "nvfp4 or mxfp4"},
      {"e2m1", "nvfp4 or mxfp4"},
      {"fp8", "e4m3 (float8_e4m3fn, more precise) or e5m2 (wider)"},
      {"f8", "e4m3 (float8_e4m3fn, more precise) or e5m2 (wider)"},
      {"float8", "e4m3 (float8_e4m3fn, more precise) or e5m2 (wider)"},
      {"float8_e4m3", "e4m3 (float8_e4m3fn, more precise) or e5m2 (wider)"}};
  for (const auto& [word, formats] : kWords) {
    if (word == text) return formats;
  }
  return {};
}

void round_blocks(BlockFormat f, float* row, std::size_t n, float tensor_scale, SimdTarget target,
                  ScaleRounding rounding) {
  HWY_DISPATCH_TABLE(RoundBlocksImpl)[simd_index(target)](f, row, n, tensor_scale, rounding);
}

float nvfp4_tensor_scale(float amax) {
  const BlockTraits t = traits(BlockFormat::nvfp4);
  const float scale =
      amax / (static_cast<float>(t.max_finite) * static_cast<float>(traits(Scalar::e4m3).max_finite));
  return std::isfinite(scale) && scale > 0 ? scale : 1.0F;
}

float tensor_scale(Scalar element, float amax, int margin) {
  const float scale = std::ldexp(static_cast<float>(traits(element).max_finite) / amax, -margin);
  return std::isfinite(scale) && scale > 0 ? scale : 1.0F;
}

std::string_view kept_magnitude(std::string_view name) {
  if (name.find(".grad:") != std::string_view::npos) return {};
  const std::size_t end = name.find_last_not_of("0123456789");
  return end + 1 < name.size() && name[end] == ':' ? name.substr(0, end) : name;
}

void set_scale(TensorScale& scale, bool nvfp4, Scalar element, float amax, int margin) {
  scale.scale = nvfp4 ? nvfp4_tensor_scale(amax) : tensor_scale(element, amax, margin);
  scale.unscale = nvfp4 ? scale.scale : 1 / scale.scale;
}

}  // namespace mantissa
#endif
