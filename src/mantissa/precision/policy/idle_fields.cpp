#include "mantissa/precision/policy/idle_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "mantissa/core/base/words.h"
#include "mantissa/precision/policy/accumulate.h"
#include "mantissa/precision/policy/fields.h"

namespace mantissa::precision {
namespace {

/// True if `is` holds for the policy's own fields or for those of a rule.
template <class Is>
bool any(const Policy& policy, const Is& is) {
  return is(policy.fields()) ||
         std::ranges::any_of(policy.rules(), [&](const Rule& rule) { return is(rule.fields); });
}

bool rounds_sums(const Fields& f) {
  return f.accumulate && f.accumulate->rounds();
}
bool is_nvfp4(const Compute& c) {
  return c->scaled == Scaled::block && c->block == BlockFormat::nvfp4;
}
bool scales_tensors(const Fields& f) {
  return f.compute && (*f.compute)->scaled == Scaled::tensor;
}
bool has_scales(const Fields& f) {
  return scales_tensors(f) || (f.compute && is_nvfp4(*f.compute));
}
bool has_blocks(const Fields& f) {
  return f.compute && (*f.compute)->scaled == Scaled::block;
}
bool has_mx_blocks(const Fields& f) {
  return has_blocks(f) && !is_nvfp4(*f.compute);
}

/// True if a norm may have an input below f32.
bool stores_below_f32(const Fields& f) {
  const auto is_narrow = [](Scalar s) { return !holds(s, Scalar::f32); };
  return (f.residual && is_narrow(*f.residual)) || (f.compute && is_narrow((*f.compute)->stored));
}

/// True if a product of factors in this format is summed in tile order: in Linear ops, and elsewhere, where
/// factors under a format with scales have that of stored results (docs/numerics.md, "Policy").
bool tiles_in_linear(const Compute& c) {
  return c->scaled != Scaled::none || exact_in_bf16(c->factor.format);
}
bool tiles_elsewhere(const Compute& c) {
  return c->scaled != Scaled::none ? exact_in_bf16(c->stored) : tiles_in_linear(c);
}
bool has_tiles(const Fields& f) {
  return f.compute && (tiles_in_linear(*f.compute) || tiles_elsewhere(*f.compute));
}
bool has_chains(const Fields& f) {
  return f.compute && !(tiles_in_linear(*f.compute) && tiles_elsewhere(*f.compute));
}

/// Returns why every sum has the order that the policy sets, or "" if some would have another.
std::string_view why_order_is_idle(const Policy& policy) {
  const AccumulateOrder order = *policy.fields().accumulate_order;
  if (order != AccumulateOrder::by_factors && policy.fields().accumulate->card != Card::none)
    return "a card has an order of its own";
  if (order == AccumulateOrder::chain && !any(policy, has_tiles))
    return "no format of factors is exact in bf16, so all products are summed in chain order";
  const bool scales_rounded_sums = any(policy, has_scales) && any(policy, rounds_sums);
  if (order == AccumulateOrder::tile && !any(policy, has_chains) && !scales_rounded_sums)
    return "all factors are exact in bf16, so all products are summed in tile order";
  return {};
}

}  // namespace

std::vector<std::string> idle_fields(const Policy& policy) {
  std::vector<std::string> idle;
  const auto say = [&](std::string_view field, std::string_view why) {
    idle.push_back(
        fmt::format("{}={} has no effect: {}", field, field_text(policy.fields(), *find_field(field)), why));
  };
  const Fields& fields = policy.fields();
  if (!any(policy, rounds_sums)) {
    const std::string why =
        fmt::format("no sum is rounded under accumulate={}", accumulator_text(*fields.accumulate));
    if (*fields.accumulate_block != 0) say("accumulate_block", why);
    for (const Rule& rule : policy.rules()) {
      if (rule.fields.accumulate_block.value_or(0) == 0) continue;
      idle.push_back(fmt::format("rule {} ({}): accumulate_block={} has no effect: {}", in_quotes(rule.str()),
                                 rule.origin, *rule.fields.accumulate_block, why));
    }
  }
  if (const std::string_view why = why_order_is_idle(policy); !why.empty()) say("accumulate_order", why);
  const bool scales = any(policy, has_scales), blocks = any(policy, has_blocks);
  const std::string_view none =
      blocks ? "blocks of mx formats derive their own scales" : "no format in the policy has scales";
  const bool tensors = any(policy, scales_tensors);
  const auto is_delayed = [&](const Fields& f) {
    return f.scaling == Scaling::delayed || (f.scaling == Scaling::automatic && tensors);
  };
  const auto is_scaled = [](const Fields& f) { return f.scaling && f.scaling != Scaling::none; };
  if (*fields.scaling != Scaling::automatic && !scales) say("scaling", none);
  if (*fields.scale_margin != 0 && !any(policy, scales_tensors)) {
    say("scale_margin", scales ? "the tensor scale of nvfp4 has no margin" : none);
  } else if (*fields.scale_margin != 0 && !any(policy, is_scaled)) {
    say("scale_margin", "scaling=none has no scales");
  }
  const Fields usual = Policy().fields();
  if (fields.amax_history != usual.amax_history && !scales) {
    say("amax_history", none);
  } else if (fields.amax_history != usual.amax_history && !any(policy, is_delayed)) {
    say("amax_history", "only scaling=delayed has a history");
  }
  const auto changed = [&](std::string_view field) {
    const Field& row = *find_field(field);
    return field_text(fields, row) != row.usual;
  };
  if (changed("scale_rounding") && !any(policy, has_mx_blocks))
    say("scale_rounding", "no format in the policy has scales that are powers of two, as mx formats have");
  if (changed("gradient_rounding") && !scales && !blocks)
    say("gradient_rounding", "no format in the policy has scales");
  if (changed("norm_cast") && !any(policy, stores_below_f32))
    say("norm_cast",
        "inputs of norms are in f32, to which nothing rounds; residual=bf16 rounds the residual stream");
  for (const std::string_view field : {"weight_block", "activation_block", "hadamard"}) {
    if (changed(field) && !blocks)
      say(field, "no format in the policy has blocks, as mx formats and nvfp4 have");
  }
  return idle;
}

}  // namespace mantissa::precision
