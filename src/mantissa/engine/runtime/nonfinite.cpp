// A non-finite value as text, and its cures.
#include "mantissa/engine/runtime/nonfinite.h"

#include <fmt/format.h>

#include <cmath>

namespace mantissa::runtime {

double unsigned_nan(double value) {
  return std::isnan(value) ? std::abs(value) : value;
}

std::string NonFinite::text() const {
  std::string text = fmt::format("{} {} {} ", scope, op, pass);
  if (beyond) {
    const std::string place = weight_vector ? fmt::format("element {}", beyond->column)
                                            : fmt::format("row {} column {}", beyond->row, beyond->column);
    text += fmt::format("reads a weight beyond the range of {}: {}, {}: ", name(format), weight, place);
  }
  if (std::isfinite(value)) {
    text += fmt::format("{:.2g} {} {} ({})", value, value > 0 ? ">" : "<",
                        std::copysign(traits(format).max_finite, value), name(format));
  } else {
    text += fmt::format("{} ({})", unsigned_nan(value), name(format));
  }
  if (beyond) {
    if (beyond->count > 1) text += fmt::format(", the largest of {} such elements", beyond->count);
  } else if (weight_vector) {
    text += fmt::format(": element {} of {} has magnitude {:.2g}, {:.0f} times the median element's", channel,
                        weight, line.rms, line.ratio);
  } else if (!weight.empty()) {
    text += fmt::format(" in channel {}: {} {} of {} has rms {:.2g}, {:.0f} times the median {}'s", channel,
                        weight_column ? "column" : "row", channel, weight, line.rms, line.ratio,
                        weight_column ? "column" : "row");
  }
  return text;
}

std::vector<std::string> NonFinite::cure() const {
  if (!interior.empty()) return interior_cure(scope, interior);
  if (field.empty()) return {};
  // The residual stream is one value from the embedding to the head.
  return {"--rule", fmt::format("{}: {}=f32", field == "residual" ? "*" : scope, field)};
}

std::vector<std::string> interior_cure(const std::string& scope, const std::string& interior) {
  if (interior == "state") return {"--rule", fmt::format("{}: state=f32", scope)};
  return {"--rule", fmt::format(R"({{match = "{}", op = "{}", compute = "f32"}})", scope, interior)};
}

void stop_non_finite(const std::string& what, const std::optional<NonFinite>& first,
                     const plan::Program& program) {
  std::vector<Cure> cures;
  if (first && !first->cure().empty()) cures.push_back({first->cure()});
  const bool f32 = program.policy.preset() == "32-true" && cures.empty();
  if (program.arithmetic != Scalar::f64) cures.push_back({{"--precision", f32 ? "64-true" : "32-true"}});
  throw RunStopped(first ? fmt::format("{}; the first non-finite value is {}", what, first->text()) : what,
                   std::move(cures));
}

}  // namespace mantissa::runtime
