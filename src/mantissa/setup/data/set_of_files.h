// The rows of a config's files as a data set.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/setup/config/run_config.h"
#include "mantissa/text/rows/dataset.h"
#include "mantissa/text/rows/row_store.h"

namespace mantissa::data {

/// Returns the rows of data.source, one part or one for each of data.weights, without those held out.
/// `store` reads files: those of the source in its order, then with `held_out` those of data.validation.
text::Dataset set_of_files(const config::RunConfig& config,
                           const std::function<std::shared_ptr<const text::RowStore>(
                               const std::vector<std::string>& files, bool held_out)>& store);

}  // namespace mantissa::data
