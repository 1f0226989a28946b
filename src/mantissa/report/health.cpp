#include "mantissa/report/health.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/report/json_number.h"

namespace mantissa::report {
namespace {

using runtime::ParameterHealth;

/// How a measurement of several parameters becomes one number.
enum class Of { share, least, most };

struct Measurement {
  std::string_view name;
  Of of;
  std::optional<double> (*value)(const ParameterHealth&);
};

constexpr Measurement kMeasurements[] = {
    {"updates_lost", Of::share, [](const ParameterHealth& p) { return std::optional(p.updates_lost); }},
    {"compensation_stayed", Of::share, [](const ParameterHealth& p) { return p.compensation_stayed; }},
    {"never_moved", Of::share, [](const ParameterHealth& p) { return p.never_moved; }},
    {"grads_flushed", Of::share, [](const ParameterHealth& p) { return std::optional(p.grads_flushed); }},
    {"grads_saturated", Of::share, [](const ParameterHealth& p) { return std::optional(p.grads_saturated); }},
    {"reduce_flushed", Of::share, [](const ParameterHealth& p) { return p.reduce_flushed; }},
    {"reduce_saturated", Of::share, [](const ParameterHealth& p) { return p.reduce_saturated; }},
    {"grad_absmax", Of::most, [](const ParameterHealth& p) { return std::optional(p.grad_absmax); }},
    {"weight_absmax", Of::most, [](const ParameterHealth& p) { return std::optional(p.weight_absmax); }},
    {"saturated", Of::share, [](const ParameterHealth& p) { return p.saturated; }},
    {"scale", Of::most, [](const ParameterHealth& p) { return p.scale; }},
    {"vanished", Of::share, [](const ParameterHealth& p) { return p.vanished; }},
    {"least_scale", Of::least, [](const ParameterHealth& p) { return p.least_scale; }},
    {"most_scale", Of::most, [](const ParameterHealth& p) { return p.most_scale; }},
};

/// Returns "model.layers.*.mlp.up_proj.weight" for layer 3's: numbers between dots become "*".
std::string kind_of(const std::string& name) {
  std::string kind;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool number =
        !part.empty() && std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c); });
    kind += (begin == 0 ? "" : ".") + (number ? "*" : part);
    begin = end + 1;
  }
  return kind;
}

/// Joins a measurement of parameters.
class Joined {
 public:
  void add(Of of, double value, double elements) {
    const bool first = elements_ == 0;
    worst_ = first ? value : of == Of::least ? std::min(worst_, value) : std::max(worst_, value);
    sum_ += value * elements;
    elements_ += elements;
  }
  double worst() const { return worst_; }
  double mean() const { return sum_ / elements_; }

 private:
  double worst_ = 0, sum_ = 0, elements_ = 0;
};

}  // namespace

std::vector<std::pair<std::string_view, double>> health_values(const ParameterHealth& health) {
  std::vector<std::pair<std::string_view, double>> values;
  for (const Measurement& m : kMeasurements) {
    if (const std::optional<double> value = m.value(health)) values.emplace_back(m.name, *value);
  }
  return values;
}

std::string health_line(std::int64_t step, std::span<const ParameterHealth> health) {
  std::string parameters;
  for (const ParameterHealth& p : health) {
    std::string values;
    for (const auto& [name, value] : health_values(p))
      values += fmt::format("{}\"{}\":{}", values.empty() ? "" : ",", name, json_number(value, 9));
    parameters +=
        fmt::format("{}{}:{{{}}}", parameters.empty() ? "" : ",", nlohmann::json(p.name).dump(), values);
  }
  return fmt::format(R"({{"step":{},"health":{{{}}}}})", step, parameters);
}

std::vector<std::pair<std::string, double>> health_scalars(std::span<const ParameterHealth> health) {
  std::vector<std::pair<std::string, double>> scalars, kinds;
  for (const Measurement& m : kMeasurements) {
    Joined all;
    bool known = false;
    std::map<std::string, Joined> by_kind;
    for (const ParameterHealth& p : health) {
      const std::optional<double> value = m.value(p);
      if (!value) continue;
      known = true;
      const auto elements = static_cast<double>(std::max<std::int64_t>(1, p.elements));
      all.add(m.of, *value, elements);
      by_kind[kind_of(p.name)].add(m.of, *value, elements);
    }
    if (known)
      scalars.emplace_back(fmt::format("health/{}", m.name), m.of == Of::share ? all.mean() : all.worst());
    for (const auto& [kind, joined] : by_kind)
      kinds.emplace_back(fmt::format("{}/{}", m.name, kind), joined.worst());
  }
  scalars.insert(scalars.end(), kinds.begin(), kinds.end());
  return scalars;
}

HealthWriter::HealthWriter(std::filesystem::path path, std::int64_t resumed_step) : path_(std::move(path)) {
  if (!disk::has_name(path_)) return;
  log_ = append_after(path_, resumed_step);
  if (resumed_step > 0) return;
  log_.reset();
  disk::remove_file(path_);
}

void HealthWriter::write(std::int64_t step, std::span<const ParameterHealth> health) {
  if (health.empty()) return;
  if (!log_) log_ = append_after(path_, 0);
  log_->file.write(health_line(step, health) + '\n');
}

void HealthWriter::sync() {
  if (log_) log_->file.sync();
}

}  // namespace mantissa::report
