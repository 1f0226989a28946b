// The axis of a chart: from a value to its place, and the ticks.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace mantissa::report {

enum class Spacing { linear, log2, log10 };

struct Tick {
  double at;         // in [0, 1]
  std::string html;  // its label
};

/// What values can be at least and at most.
struct Bounds {
  std::optional<double> least{}, most{};
};

/// Maps values to [0, 1]. A logarithmic axis draws zero at its lower end, and has no place for negative
/// values.
class Axis {
 public:
  /// Covers the finite values, which may be unsorted or none, and rounds the ends outwards to ticks if
  /// `rounded`. Values that a logarithmic axis cannot hold are ignored.
  /// The axis does not leave `bounds`, which the values keep: those of a share are 0 and 1.
  Axis(Spacing spacing, const std::vector<double>& values, bool rounded = true, const Bounds& bounds = {});

  /// Returns the place of a value, clamped to [0, 1], or null if it is not finite or has none.
  std::optional<double> at(double value) const;

  /// Returns at most `most` (at least 2) labelled places. `whole` leaves out fractions on a linear axis.
  std::vector<Tick> ticks(int most, bool whole = false) const;

 private:
  double scaled(double value) const;  // the value, or its logarithm
  Spacing spacing_;
  double low_ = 0, high_ = 1;  // scaled
  double step_ = 0;            // between rounded ends, or 0
};

/// Returns a coordinate in thousandths of the width or height of a chart, with one digit after the point.
std::string coordinate(double place);

}  // namespace mantissa::report
