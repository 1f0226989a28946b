#include "mantissa/lab/compare/held_out.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mantissa/core/base/words.h"
#include "mantissa/setup/data/generated.h"

namespace mantissa::lab {

std::string held_out_of(const config::RunConfig& config) {
  const config::DataSection& data = config.data;
  const auto names = [](const std::vector<std::string>& files) {
    std::vector<std::string> all;
    for (const std::string& file : files) all.push_back(last_name(file));
    return fmt::format("{}", fmt::join(all, ", "));
  };
  if (!data.validation.files.empty()) return names(data.validation.files);
  if (data.validation.share == 0) return "no rows";
  std::string text = fmt::format("{:.4g} of {}", data.validation.share, names(data.source));
  // Generated rows depend on the seed.
  if (data::has_generated(data.source))
    text += fmt::format(" ({} to {} people, seed {})", data.people_min, data.people_max, config.run.seed);
  return text;
}

}  // namespace mantissa::lab
