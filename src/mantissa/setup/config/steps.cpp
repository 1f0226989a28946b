#include "mantissa/setup/config/steps.h"

#include <algorithm>
#include <charconv>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::config {
namespace {

std::int64_t parse_step(std::string_view text, std::string_view part) {
  std::int64_t step = 0;
  const std::string_view digits = trimmed(text);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 1)
    throw ConfigError("{} is not a step or a range of steps; write them as \"7,9-12\"", in_quotes(part));
  return step;
}

}  // namespace

std::vector<StepRange> parse_steps(std::string_view text) {
  std::vector<StepRange> ranges;
  for (const std::string_view part : split_words(text, ",")) {
    const std::size_t dash = part.find('-');
    const std::int64_t first = parse_step(part.substr(0, dash), part);
    const std::int64_t last =
        dash == std::string_view::npos ? first : parse_step(part.substr(dash + 1), part);
    if (last < first)
      throw ConfigError("{} ends before it begins; write the smaller step first", in_quotes(part));
    ranges.push_back({first, last});
  }
  return ranges;
}

bool has_step(const std::vector<StepRange>& ranges, std::int64_t step) {
  return std::ranges::any_of(ranges, [&](const StepRange& r) { return r.first <= step && step <= r.last; });
}

}  // namespace mantissa::config
