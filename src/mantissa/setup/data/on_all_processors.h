// Work on all processors.
#pragma once

#include <cstddef>
#include <functional>

namespace mantissa::data {

/// Calls body(i) for i in [0, count) on all processors. Rethrows the exception of the smallest i.
void on_all_processors(std::size_t count, const std::function<void(std::size_t)>& body);

}  // namespace mantissa::data
