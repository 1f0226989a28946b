#include "mantissa/precision/policy/fields.h"

#include <fmt/format.h>

#include <charconv>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/precision/policy/accumulate.h"
#include "mantissa/precision/policy/loss_scale.h"

namespace mantissa::precision {
namespace {

constexpr std::string_view kThroughCompute = "compute>";

struct RoundingName {
  std::string_view name;
  Rounding value;
};
// A value prints as the first of its names.
constexpr RoundingName kRoundings[] = {{"nearest", Rounding::nearest},
                                       {"toward-zero", Rounding::toward_zero},
                                       {"stochastic", Rounding::stochastic},
                                       {"nearest-even", Rounding::nearest},
                                       {"toward_zero", Rounding::toward_zero}};

constexpr std::pair<std::string_view, Scaling> kScalings[] = {{"auto", Scaling::automatic},
                                                              {"delayed", Scaling::delayed},
                                                              {"current", Scaling::current},
                                                              {"none", Scaling::none}};

constexpr std::pair<std::string_view, ScaleRounding> kScaleRoundings[] = {{"floor", ScaleRounding::floor},
                                                                          {"ceil", ScaleRounding::ceil},
                                                                          {"even", ScaleRounding::even},
                                                                          {"rceil", ScaleRounding::rceil},
                                                                          {"none", ScaleRounding::none}};

constexpr std::pair<std::string_view, WeightBlock> kWeightBlocks[] = {{"auto", WeightBlock::automatic},
                                                                      {"16x16", WeightBlock::square_16},
                                                                      {"32x32", WeightBlock::square_32},
                                                                      {"128x128", WeightBlock::square_128},
                                                                      {"row", WeightBlock::whole}};

constexpr std::pair<std::string_view, ActivationBlock> kActivationBlocks[] = {
    {"auto", ActivationBlock::automatic},
    {"1x128", ActivationBlock::row_128},
    {"row", ActivationBlock::whole}};

constexpr std::pair<std::string_view, Hadamard> kHadamards[] = {{"none", Hadamard::none},
                                                                {"16", Hadamard::tokens_16}};

constexpr std::pair<std::string_view, NormCast> kNormCasts[] = {{"after-gain", NormCast::after_gain},
                                                                {"before-gain", NormCast::before_gain}};

constexpr std::pair<std::string_view, AccumulateOrder> kOrders[] = {{"auto", AccumulateOrder::by_factors},
                                                                    {"chain", AccumulateOrder::chain},
                                                                    {"tile", AccumulateOrder::tile}};

std::string printed(Scalar value) {
  return std::string(mantissa::name(value));
}
std::string printed(const Compute& value) {
  return std::string(value->name);
}
std::string printed(Scaling value) {
  return std::string(kScalings[static_cast<std::size_t>(value)].first);
}
std::string printed(AccumulateOrder value) {
  return std::string(kOrders[static_cast<std::size_t>(value)].first);
}
std::string printed(const Accumulator& value) {
  return accumulator_text(value);
}
std::string printed(ScaleRounding value) {
  return std::string(kScaleRoundings[static_cast<std::size_t>(value)].first);
}
std::string printed(WeightBlock value) {
  return std::string(kWeightBlocks[static_cast<std::size_t>(value)].first);
}
std::string printed(ActivationBlock value) {
  return std::string(kActivationBlocks[static_cast<std::size_t>(value)].first);
}
std::string printed(Hadamard value) {
  return std::string(kHadamards[static_cast<std::size_t>(value)].first);
}
std::string printed(NormCast value) {
  return std::string(kNormCasts[static_cast<std::size_t>(value)].first);
}
std::string printed(const StateFormat& value) {
  return std::string(mantissa::name(value));
}
std::string printed(WeightFormat value) {
  return std::string(mantissa::name(value));
}
std::string printed(std::int64_t value) {
  return std::to_string(value);
}
std::string printed(bool value) {
  return value ? "true" : "false";
}
std::string printed(const LossScale& value) {
  return value.str();
}
std::string printed(Rounding value) {
  for (const RoundingName& row : kRoundings) {
    if (row.value == value) return std::string(row.name);
  }
  return {};
}

/// Returns the end of the error message for an unknown format: a suggestion, or "".
std::string meant_format(std::string_view text, std::span<const std::string> names) {
  const std::string_view several = formats_of_width(lowered(text));
  return several.empty() ? did_you_mean(text, names) : fmt::format("; did you mean {}?", several);
}

/// Throws the error for a word that names no number format; `names` are those that the field has.
[[noreturn]] void throw_no_format(std::string_view field, std::string_view text,
                                  const std::vector<std::string>& names) {
  if (const std::string_view several = formats_of_width(lowered(text)); several.starts_with("nvfp4")) {
    throw ConfigError(
        "{}={}: 4-bit formats are for product operands only; write compute=nvfp4 or "
        "compute=mxfp4, and for {} a number format such as bf16",
        field, text, field);
  }
  if (Compute::parse(text)) {
    throw ConfigError(
        "{}={}: {} is a format of product operands only; write compute={}, and "
        "for {} a number format such as bf16",
        field, text, text, text, field);
  }
  throw ConfigError("{}={}: unknown number format{} (formats: {})", field, in_quotes(text),
                    meant_format(text, names), list_of(names));
}

std::vector<std::string> scalar_names() {
  return names_of(kScalars, [](Scalar s) { return mantissa::name(s); });
}

void read(std::string_view field, std::string_view text, std::optional<Scalar>& out) {
  out = parse_scalar(text);
  if (!out) throw_no_format(field, text, scalar_names());
}

std::vector<std::string> state_format_names() {
  std::vector<std::string> names = scalar_names();
  for (const StateFormat& f : kBlockedStates) names.emplace_back(mantissa::name(f));
  return names;
}

void read(std::string_view field, std::string_view text, std::optional<StateFormat>& out) {
  out = parse_state_format(text);
  if (!out) throw_no_format(field, text, state_format_names());
}

void read(std::string_view, std::string_view text, std::optional<Accumulator>& out) {
  out = parse_accumulator(text);
}

void read(std::string_view field, std::string_view text, std::optional<Compute>& out) {
  out = Compute::parse(text);
  if (out) return;
  const std::vector<std::string> names = names_of(Compute::all(), &ComputeTraits::name);
  throw ConfigError("{}={}: unknown number format{} (formats: {})", field, in_quotes(text),
                    meant_format(text, names), list_of(names));
}

/// Reads one of `values`, each with a name. `what` names their kind in the message.
template <class T>
void read_named(std::string_view field, std::string_view text, std::string_view what,
                std::span<const std::pair<std::string_view, T>> values, std::optional<T>& out) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values) {
    if (name == text) {
      out = value;
      return;
    }
    names.emplace_back(name);
  }
  throw ConfigError("{}={}: unknown {}{} ({})", field, in_quotes(text), what, did_you_mean(text, names),
                    list_of(names));
}

void read(std::string_view field, std::string_view text, std::optional<Scaling>& out) {
  read_named<Scaling>(field, text, "scaling", kScalings, out);
}

void read(std::string_view field, std::string_view text, std::optional<ScaleRounding>& out) {
  read_named<ScaleRounding>(field, text, "rounding of scales", kScaleRoundings, out);
}

void read(std::string_view field, std::string_view text, std::optional<WeightBlock>& out) {
  read_named<WeightBlock>(field, text, "block", kWeightBlocks, out);
}

void read(std::string_view field, std::string_view text, std::optional<ActivationBlock>& out) {
  read_named<ActivationBlock>(field, text, "block", kActivationBlocks, out);
}

void read(std::string_view field, std::string_view text, std::optional<Hadamard>& out) {
  read_named<Hadamard>(field, text, "transform", kHadamards, out);
}

void read(std::string_view field, std::string_view text, std::optional<NormCast>& out) {
  read_named<NormCast>(field, text, "place", kNormCasts, out);
}

void read(std::string_view field, std::string_view text, std::optional<AccumulateOrder>& out) {
  read_named<AccumulateOrder>(field, text, "order", kOrders, out);
}

std::vector<std::string> weight_format_names() {
  return names_of(kWeightFormats, [](WeightFormat f) { return mantissa::name(f); });
}

void read(std::string_view field, std::string_view text, std::optional<WeightFormat>& out) {
  out = parse_weight_format(text);
  if (out) return;
  const std::vector<std::string> names = weight_format_names();
  throw ConfigError("{}={}: unknown format of weights{} ({}); params sets the format of the masters", field,
                    in_quotes(text), did_you_mean(text, names), list_of(names));
}

void read(std::string_view field, std::string_view text, std::optional<std::int64_t>& out) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw ConfigError("{}={}: must be a whole number, 0 or more", field, in_quotes(text));
  }
  out = value;
}

void read(std::string_view field, std::string_view text, std::optional<Rounding>& out) {
  std::vector<std::string> names;
  for (const RoundingName& row : kRoundings) {
    if (row.name == text) {
      out = row.value;
      return;
    }
    names.emplace_back(row.name);
  }
  throw ConfigError("{}={}: unknown rounding{} (nearest, toward-zero, stochastic)", field, in_quotes(text),
                    did_you_mean(text, names));
}

void read(std::string_view field, std::string_view text, std::optional<bool>& out) {
  if (text == "true" || text == "True") {
    out = true;
  } else if (text == "false" || text == "False") {
    out = false;
  } else {
    throw ConfigError("{}={}: must be true or false", field, in_quotes(text));
  }
}

void read(std::string_view, std::string_view text, std::optional<LossScale>& out) {
  out = parse_loss_scale(text);
}

/// The values of a field by its type.
struct ValuesOf {
  using Names = std::vector<std::string>;
  Names operator()(std::optional<Scalar> Fields::*) const { return scalar_names(); }
  Names operator()(std::optional<StateFormat> Fields::*) const { return state_format_names(); }
  Names operator()(std::optional<NormCast> Fields::*) const { return of(kNormCasts); }
  Names operator()(std::optional<Compute> Fields::*) const {
    Names names;
    for (const ComputeTraits& row : Compute::all()) names.emplace_back(row.name);
    return names;
  }
  template <class T, std::size_t N>
  static Names of(const std::pair<std::string_view, T> (&rows)[N]) {
    Names names;
    for (const auto& [name, value] : rows) names.emplace_back(name);
    return names;
  }
  Names operator()(std::optional<Accumulator> Fields::*) const { return accumulator_values(); }
  Names operator()(std::optional<Scaling> Fields::*) const { return of(kScalings); }
  Names operator()(std::optional<AccumulateOrder> Fields::*) const { return of(kOrders); }
  Names operator()(std::optional<ScaleRounding> Fields::*) const { return of(kScaleRoundings); }
  Names operator()(std::optional<WeightBlock> Fields::*) const { return of(kWeightBlocks); }
  Names operator()(std::optional<ActivationBlock> Fields::*) const { return of(kActivationBlocks); }
  Names operator()(std::optional<Hadamard> Fields::*) const { return of(kHadamards); }
  Names operator()(std::optional<WeightFormat> Fields::*) const { return weight_format_names(); }
  Names operator()(std::optional<Rounding> Fields::*) const {
    Names names;
    for (const RoundingName& row : kRoundings) {
      if (printed(row.value) == row.name) names.emplace_back(row.name);
    }
    return names;
  }
  Names operator()(std::optional<std::int64_t> Fields::*) const { return {"whole numbers from 0 on"}; }
  Names operator()(std::optional<bool> Fields::*) const { return {"true", "false"}; }
  Names operator()(std::optional<LossScale> Fields::*) const {
    return {"none", "dynamic:2^P", "a number from 2^-127 to 2^127"};
  }
};

}  // namespace

std::vector<std::string> field_values(const Field& field) {
  if (field.member == Field::Member(&Fields::gradient_rounding)) return {"nearest", "stochastic"};
  return std::visit(ValuesOf{}, field.member);
}

void set_field(Fields& fields, std::string_view name, std::string_view value) {
  const Field* field = find_field(name);
  if (field == nullptr) {
    const std::vector<std::string> names = field_names();
    throw ConfigError("no policy field is called {}{} (fields: {})", in_quotes(name),
                      did_you_mean(name, names), list_of(names));
  }
  if (field->member == Field::Member(&Fields::output)) {
    fields.output_via_compute = value.starts_with(kThroughCompute);
    if (*fields.output_via_compute) value.remove_prefix(kThroughCompute.size());
  }
  std::visit([&](auto member) { read(field->name, value, fields.*member); }, field->member);
}

std::string field_text(const Fields& fields, const Field& field) {
  std::string text = std::visit(
      [&](auto member) {
        const auto& value = fields.*member;
        return value ? printed(*value) : std::string();
      },
      field.member);
  const bool output = field.member == Field::Member(&Fields::output);
  return output && fields.output_via_compute.value_or(false) ? std::string(kThroughCompute) + text : text;
}

std::string fields_text(const Fields& fields, bool omits) {
  std::string text;
  for (const Field& field : field_table()) {
    const std::string value = field_text(fields, field);
    if (value.empty() || (omits && value == field.usual)) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", field.name, value);
  }
  return text;
}

void overlay(Fields& onto, const Fields& over) {
  for (const Field& field : field_table()) {
    std::visit(
        [&](auto member) {
          if (over.*member) onto.*member = over.*member;
        },
        field.member);
  }
  if (over.output) onto.output_via_compute = over.output_via_compute.value_or(false);
}

}  // namespace mantissa::precision
