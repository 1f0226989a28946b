#include "mantissa/core/numeric/state_format.h"

#include <algorithm>

#include "mantissa/core/numeric/same_name.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/core/numeric/state_format.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/state_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {

void EncodeStatesImpl(const BlockedState& to, std::size_t first, const float* values, std::size_t n) {
  EncodeStates(to, first, values, n);
}

void DecodeStatesImpl(const BlockedState& from, std::size_t first, std::size_t n, float* values) {
  DecodeStates(from, first, n, values);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa {
namespace {

HWY_EXPORT(EncodeStatesImpl);
HWY_EXPORT(DecodeStatesImpl);

}  // namespace

std::string_view name(StateCodes codes) {
  switch (codes) {
    case StateCodes::none:
      return "";
    case StateCodes::dynamic8:
    case StateCodes::dynamic8_positive:
      return "dynamic8-256";
    case StateCodes::e4m3:
      return "e4m3-256";
    case StateCodes::f16:
      return "f16-256";
  }
  return "";
}

std::string_view name(const StateFormat& format) {
  return format.in_blocks() ? name(format.codes) : name(format.type);
}

std::optional<StateFormat> parse_state_format(std::string_view text) {
  const auto* found = std::ranges::find_if(
      kBlockedStates, [&](const StateFormat& f) { return is_same_name(text, name(f.codes)); });
  if (found != std::end(kBlockedStates)) return *found;
  const std::optional<Scalar> scalar = parse_scalar(text);
  return scalar ? std::optional(StateFormat(*scalar)) : std::nullopt;
}

void encode_states(const BlockedState& to, std::size_t first, const float* values, std::size_t n,
                   SimdTarget target) {
  HWY_DISPATCH_TABLE(EncodeStatesImpl)[simd_index(target)](to, first, values, n);
}

void decode_states(const BlockedState& from, std::size_t first, std::size_t n, float* values,
                   SimdTarget target) {
  HWY_DISPATCH_TABLE(DecodeStatesImpl)[simd_index(target)](from, first, n, values);
}

}  // namespace mantissa
#endif
