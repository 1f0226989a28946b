// Numbers as text for people: few digits, and powers of two as such.
#pragma once

#include <cstdint>
#include <string>

namespace mantissa::report {

/// Stands for a value that does not exist or is not a number.
inline constexpr const char* kNoNumber = "–";

/// Returns the number with its digits in groups of three, separated by narrow no-break spaces: "65 504".
std::string count_text(std::int64_t value);

/// Returns about three significant digits: "0", "3.14", "65 504", "1.3e-5", "−∞", or kNoNumber for NaN. Whole
/// numbers below 10 million keep all digits.
std::string number_text(double value);

/// Returns a share of 1 in percent: "97 %", "0.013 %", or "1.3e-7" if it is tiny. Only 1 gives "100 %", and
/// only 0 gives "0 %". The space is a narrow no-break space.
std::string share_text(double share);

/// Returns "2^-14" if the magnitude is a power of two of at least 32, or at most 1/32, else number_text().
std::string power_text(double value);

/// Returns the same text with exponents raised, in HTML: "2<sup>−14</sup>" for "2^-14" and
/// "1.3·10<sup>−5</sup>" for "1.3e-5". Takes results of the functions above.
std::string raised_html(const std::string& text);

}  // namespace mantissa::report
