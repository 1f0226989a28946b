#include "mantissa/core/tensor/narrow_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/words.h"

namespace mantissa {
namespace {

/// Returns the layer's name with "*" for its number, without ".weight".
std::string layers_of(const std::string& weight) {
  const std::string scope = weight.substr(0, weight.rfind('.'));
  for (std::size_t dot = scope.find('.'); dot != std::string::npos; dot = scope.find('.', dot + 1)) {
    const std::size_t end = std::min(scope.find('.', dot + 1), scope.size());
    const std::string_view part = std::string_view(scope).substr(dot + 1, end - dot - 1);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos)
      return scope.substr(0, dot + 1) + "*" + scope.substr(end);
  }
  return scope;
}

}  // namespace

std::vector<std::string> narrow_rows_notes(const NarrowRows& narrow) {
  std::vector<std::string> notes;
  for (const auto& [format, weights] : narrow) {
    std::vector<std::string> names;
    for (const std::string& weight : weights) {
      std::string name = layers_of(weight);
      if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
    }
    notes.push_back(
        fmt::format("{} the policy's formats, because {} needs rows of a multiple of {} elements: {}",
                    counted(weights.size(), "weight", "keeps", "keep"), traits(format).name,
                    traits(format).per_scale, list_of(names)));
  }
  return notes;
}

}  // namespace mantissa
