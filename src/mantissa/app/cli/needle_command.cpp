// mantissa eval --needle
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/together.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

std::vector<double> numbers_of(const Arguments& a, const char* option) {
  std::vector<double> numbers;
  const std::string text = a.text(option);
  for (const std::string_view word : split_words(text, ", ")) {
    const auto number = number_in<double>(word);
    if (!number)
      throw ConfigError(fmt::format("{}: {} is not a number; write 1,2,3", option, in_quotes(word)));
    numbers.push_back(*number);
  }
  return numbers;
}

api::NeedleOptions needle_options(const Arguments& a) {
  refuse_given(a, {"--data", "--last-word", "--multiple-choice", "--window", "--set"},
               "{0}: --needle is measured alone; remove one of them");
  if (a.texts("--precision").size() > 1)
    throw ConfigError("--needle: takes one policy; give --precision once");
  api::NeedleOptions o;
  constexpr double kMost = 1 << 24;
  o.lengths.clear();
  for (const double length : numbers_of(a, "--lengths")) {
    if (!(length >= 1 && length <= kMost && length == std::floor(length)))
      throw ConfigError(fmt::format("--lengths {}: expected whole numbers of tokens up to {}, got {}",
                                    a.text("--lengths"), kMost, length));
    o.lengths.push_back(static_cast<std::int64_t>(length));
  }
  o.depths = numbers_of(a, "--depths");
  o.trials = a.integer("--trials", 1, 1000);
  o.haystack = a.text("--haystack");
  return o;
}

std::string text_of(const api::Needle& needle, const api::NeedleOptions& o) {
  std::string text = fmt::format("{:>8}", "depth");
  const std::size_t depths = o.depths.size(), lengths = needle.cells.size() / depths;
  for (std::size_t l = 0; l < lengths; ++l) text += fmt::format("{:>9}", needle.cells[l * depths].length);
  for (std::size_t d = 0; d < depths; ++d) {
    text += fmt::format("\n{:>6.0f} %", 100 * o.depths[d]);
    for (std::size_t l = 0; l < lengths; ++l) {
      const api::NeedleCell& cell = needle.cells[l * depths + d];
      text += fmt::format("{:>9}", fmt::format("{}/{}", cell.right, cell.trials));
    }
  }
  return text + fmt::format("\nright    {:.1f} %\n", 100 * needle.accuracy);
}

std::string json_of(const api::Needle& needle) {
  nlohmann::ordered_json cells = nlohmann::ordered_json::array();
  for (const api::NeedleCell& c : needle.cells)
    cells.push_back({{"length", c.length}, {"depth", c.depth}, {"trials", c.trials}, {"right", c.right}});
  nlohmann::ordered_json out = {{"needle", {{"accuracy", needle.accuracy}, {"cells", cells}}}};
  if (needle.interrupted) out["interrupted"] = true;
  return out.dump(1) + "\n";
}

}  // namespace

int eval_needle(const Arguments& a) {
  const api::NeedleOptions options = needle_options(a);
  const std::string page = a.text("--page");
  tell_policy(a);
  tell_model(a);
  if (!page.empty()) api::check_page(page, model_of(a), options);
  const SignalStop signals;
  const api::Needle needle =
      api::find_needles(model_of(a), options, precision_of(a), hardware_of(a), signals.token(), ranks());
  if (!page.empty() && ranks().leads()) api::write_page(page, needle.page);
  if (!needle.cells.empty()) fmt::print("{}", a.has("--json") ? json_of(needle) : text_of(needle, options));
  return needle.interrupted ? report_interrupt(signals, "the figures are those of the complete lengths") : 0;
}

}  // namespace mantissa::cli
