// Parts that large and small histograms share.
#pragma once

#include <string>

#include "mantissa/report/binade_chart.h"

namespace mantissa::report::binade {

/// Returns the place of a magnitude on the axis of a window in binades, clamped to the window.
double place(const BinadeWindow& window, double log2_magnitude);

/// Returns rectangles for the magnitudes that become zero, are subnormal, and overflow, in a box of
/// `window` × `height` units.
std::string zones_svg(const BinadeWindow& window, const FormatRange& range, int height);

/// Returns the labels of the axis: the limits of the format, and powers of two between them.
std::string axis_html(const BinadeWindow& window, const FormatRange& range);

/// Returns the height of a share of all values in [0, 1], on a logarithmic scale that begins at 10^-8.
double height_of(double share);

/// Returns an outline of the histogram, closed at the bottom, one unit for each binade and `height` units
/// high, below `top`. Empty binades have no part in it.
std::string outline(const Binades& binades, const BinadeWindow& window, int height, int top);

/// Returns true if there are values that `range` does not hold.
bool leaves(const Binades& binades, const FormatRange& range);

}  // namespace mantissa::report::binade
