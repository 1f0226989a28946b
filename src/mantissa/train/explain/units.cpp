#include "mantissa/train/explain/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace mantissa::explain {
namespace {

using Formats = std::vector<std::pair<std::string, std::vector<std::string>>>;  // and their ops

/// Returns the reason why `product` is not computed by the unit of large products, or "".
std::string reason(const plan::StepProduct& product, const runtime::Device& device) {
  plan::StepProduct packed = product;
  packed.kernel = kernels::ProductKernel::packed;
  if (forecast::unit_on(device, packed).id == forecast::unit_on(device, product).id) return "";
  const bool attends = product.kernel == kernels::ProductKernel::attention ||
                       product.kernel == kernels::ProductKernel::in_place;
  return attends ? " (operands in place)" : " (few rows)";
}

/// Returns the element whose first member is `key`, appended if it is missing.
template <class All, class Key>
auto& find_or_add(All& all, const Key& key) {
  const auto at = std::ranges::find_if(all, [&](const auto& e) { return e.first == key; });
  return at != all.end() ? *at : all.emplace_back(key, typename All::value_type::second_type());
}

}  // namespace

std::string unit_names(const plan::PlanRow& row, const runtime::Device& device) {
  std::vector<std::string_view> names;
  for (const plan::StepProduct& p : row.products) {
    const std::string_view name = forecast::unit_on(device, p).name;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, "+"));
}

std::vector<UnitUse> unit_uses(const std::vector<plan::PlanRow>& rows, const forecast::Machine& machine,
                               const runtime::Device& device) {
  std::vector<std::pair<const kernels::Unit*, Formats>> found;
  for (const plan::PlanRow& row : rows) {
    for (const plan::StepProduct& p : row.products) {
      Formats& formats = find_or_add(found, &forecast::unit_on(device, p)).second;
      std::vector<std::string>& ops = find_or_add(formats, row.multiplied).second;
      const std::string op = row.op + reason(p, device);
      if (std::ranges::find(ops, op) == ops.end()) ops.push_back(op);
    }
  }
  std::vector<UnitUse> uses;
  for (const auto& [unit, formats] : found) {
    const double peak = machine.peak_of(unit->id);
    UnitUse& use = uses.emplace_back(UnitUse{unit, peak, peak / machine.flops_per_second, {}});
    for (const auto& [format, ops] : formats)
      use.uses.push_back(fmt::format("{} in {}", format, fmt::join(ops, ", ")));
  }
  std::ranges::stable_sort(uses, std::ranges::greater(), &UnitUse::peak);
  return uses;
}

}  // namespace mantissa::explain
