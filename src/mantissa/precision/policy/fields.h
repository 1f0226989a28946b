// The fields of a policy, declared once: parsing, printing, help and checks use their names, types and
// descriptions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "mantissa/precision/policy/policy.h"

namespace mantissa::precision {

/// A row of the field table.
struct Field {
  using Member = std::variant<std::optional<Compute> Fields::*, std::optional<Scalar> Fields::*,
                              std::optional<std::int64_t> Fields::*, std::optional<Scaling> Fields::*,
                              std::optional<AccumulateOrder> Fields::*, std::optional<Accumulator> Fields::*,
                              std::optional<Rounding> Fields::*, std::optional<bool> Fields::*,
                              std::optional<LossScale> Fields::*, std::optional<ScaleRounding> Fields::*,
                              std::optional<WeightBlock> Fields::*, std::optional<ActivationBlock> Fields::*,
                              std::optional<Hadamard> Fields::*, std::optional<WeightFormat> Fields::*,
                              std::optional<StateFormat> Fields::*, std::optional<NormCast> Fields::*>;
  std::string_view name;
  std::vector<std::string_view> aliases;  // foreign spellings; printing uses `name`
  Member member;
  bool in_rules = true;  // false: a setting of the whole run
  std::string_view meaning = {};
  std::string_view usual = {};  // the value that a policy line omits; empty: always printed
};

/// Returns every field, in canonical order.
std::span<const Field> field_table();

/// Returns the field with the name or alias `name`, or null.
const Field* find_field(std::string_view name);

std::vector<std::string> field_names();

/// Returns the values that set_field reads for the field, without aliases, or a description of them.
std::vector<std::string> field_values(const Field& field);

/// Sets the field `name` from text ("bf16", "true", "dynamic:2^16", "compute>f32"). Throws ConfigError with
/// the nearest known spelling of the field or value.
void set_field(Fields& fields, std::string_view name, std::string_view value);

/// Returns the value of `field` in the form that set_field reads; "" if unset.
std::string field_text(const Fields& fields, const Field& field);

/// Returns the set fields in canonical order, for example "compute=bf16 kv=bf16". With `omits`, leaves out
/// fields with their usual value.
std::string fields_text(const Fields& fields, bool omits = false);

/// Copies every field that is set in `over` to `onto`.
void overlay(Fields& onto, const Fields& over);

}  // namespace mantissa::precision
