#include "mantissa/lab/diff/metrics_differences.h"

#include <algorithm>
#include <array>

#include "mantissa/lab/metrics_file.h"

namespace mantissa::lab {
namespace {

/// Metrics that depend on the clock or the machine.
constexpr std::array<std::string_view, 4> kOfMachine = {"tokens_per_second", "seconds", "peak_share",
                                                        "fallback_share"};

void compare_values(const std::string& name, const nlohmann::json& a, const nlohmann::json& b,
                    std::vector<MetricDifference>& all) {
  if (!a.is_object() || !b.is_object()) {
    if (a != b) all.push_back({name, a, b});
    return;
  }
  for (const auto& [key, value] : a.items()) {
    const bool of_machine = name.empty() && std::ranges::find(kOfMachine, key) != kOfMachine.end();
    if (of_machine || !b.contains(key)) continue;
    compare_values(name.empty() ? key : name + "." + key, value, b[key], all);
  }
}

/// Puts the metrics that people look at first in front of the others.
int display_rank(const MetricDifference& d) {
  constexpr std::array<std::string_view, 6> kFirst = {"loss",       "grad_norm", "skipped",
                                                      "loss_scale", "lr",        "validation_loss"};
  const auto found = std::ranges::find(kFirst, d.metric);
  return static_cast<int>(found - kFirst.begin());
}

}  // namespace

MetricsDifferences compare_metrics(const std::filesystem::path& a, const std::filesystem::path& b) {
  MetricsFile file_a(a, Health::join), file_b(b, Health::join);
  MetricsDifferences result;
  std::optional<StepLine> line_a = file_a.next(), line_b = file_b.next();
  while (line_a || line_b) {
    const bool take_a = line_a && (!line_b || line_a->step <= line_b->step);
    const bool take_b = line_b && (!line_a || line_b->step <= line_a->step);
    if (take_a) result.last_a = line_a->step;
    if (take_b) result.last_b = line_b->step;
    if (take_a && take_b) {
      ++result.compared;
      std::vector<MetricDifference> found;
      compare_values("", line_a->metrics, line_b->metrics, found);
      if (!found.empty()) ++result.different;
      if (!found.empty() && !result.first_different) {
        std::ranges::stable_sort(found, {}, display_rank);
        result.first_different = line_a->step;
        result.first = std::move(found);
      }
      if (!result.first_different) result.last_equal = line_a->step;
    }
    if (take_a) line_a = file_a.next();
    if (take_b) line_b = file_b.next();
  }
  return result;
}

}  // namespace mantissa::lab
