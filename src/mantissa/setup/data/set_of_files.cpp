#include "mantissa/setup/data/set_of_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace mantissa::data {

text::Dataset set_of_files(const config::RunConfig& config,
                           const std::function<std::shared_ptr<const text::RowStore>(
                               const std::vector<std::string>& files, bool held_out)>& store) {
  const config::DataSection& data = config.data;
  std::vector<text::Dataset::WeightedRows> parts;
  if (data.weights.empty()) parts.push_back({store(data.source, false)});
  for (std::size_t s = 0; s < data.weights.size(); ++s)
    parts.push_back({store({data.source[s]}, false), data.weights[s], data.source[s]});
  text::Dataset::Options options;
  options.sequence_length = data.sequence_length;
  options.shuffle = data.shuffle;
  options.validation = data.validation.files.empty() ? data.validation.share : 0;
  options.seed = config.run.seed;
  text::Dataset set(std::move(parts), options, fmt::format("{}", fmt::join(data.source, ", ")));
  if (!data.validation.files.empty()) set.hold_out(store(data.validation.files, true));
  return set;
}

}  // namespace mantissa::data
