// The fields of a policy, declared once: their names, types and meanings serve parsing, printing, help and
// checks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "mantissa/precision/policy.h"

namespace mantissa::precision {

/// A row of the table of fields.
struct Field {
  using Member = std::variant<std::optional<Compute> Fields::*, std::optional<Scalar> Fields::*,
                              std::optional<std::int64_t> Fields::*, std::optional<Scaling> Fields::*,
                              std::optional<Rounding> Fields::*, std::optional<bool> Fields::*,
                              std::optional<LossScale> Fields::*>;
  std::string_view name;
  std::vector<std::string_view> aliases;  // foreign spellings that are read and answered with `name`
  Member member;
  bool in_rules = true;  // false: a property of the whole run
  std::string_view meaning = {};
  std::string_view usual = {};  // a value that a policy's line leaves out; empty: none
};

/// Every field, in canonical order.
std::span<const Field> field_table();

/// The field called `name`, also by an alias; null where there is none.
const Field* find_field(std::string_view name);

std::vector<std::string> field_names();

/// Sets the field called `name` from its text ("bf16", "true", "dynamic:2^16", "compute>f32"). Throws
/// ConfigError that names the nearest right spelling of the field or of the value.
void set_field(Fields& fields, std::string_view name, std::string_view value);

/// The value of `field` as set_field reads it; "" where it is not set.
std::string field_text(const Fields& fields, const Field& field);

/// "compute=bf16 kv=bf16": the fields that are set, in canonical order; without those of their usual value
/// where it `omits` them.
std::string fields_text(const Fields& fields, bool omits = false);

/// Sets in `onto` whatever is set in `over`.
void overlay(Fields& onto, const Fields& over);

}  // namespace mantissa::precision
