#include "mantissa/files/io/state_weights.h"

#include <algorithm>
#include <map>
#include <memory>

#include "mantissa/files/io/renamed_tensors.h"
#include "mantissa/files/io/state.h"

namespace mantissa::io {

std::vector<StateWeight> state_weights(const std::vector<TensorInfo>& tensors) {
  std::map<std::string_view, const TensorInfo*> averages;
  for (const TensorInfo& t : tensors) {
    if (t.name.starts_with(kStateAverages))
      averages.emplace(std::string_view(t.name).substr(kStateAverages.size()), &t);
  }
  std::vector<StateWeight> weights;
  for (const TensorInfo& t : tensors) {
    if (!t.name.starts_with(kMasterPrefix)) continue;
    std::string name = t.name.substr(kMasterPrefix.size());
    const auto average = averages.find(name);
    const bool replaced = average != averages.end() && average->second->shape == t.shape;
    weights.push_back({std::move(name), replaced ? *average->second : t});
  }
  return weights;
}

std::string_view kind_of_weights(const std::vector<StateWeight>& weights) {
  const bool averages = std::ranges::any_of(
      weights, [](const StateWeight& w) { return w.tensor.name.starts_with(kStateAverages); });
  return averages ? "averages" : "masters";
}

WeightFiles open_state_weights(const std::filesystem::path& state) {
  const auto source = std::make_shared<const SafetensorsReader>(state);
  const std::vector<StateWeight> weights = state_weights(source->tensors());
  if (kind_of_weights(weights) == "masters") return WeightFiles(state, std::string(kMasterPrefix));
  auto renamed = std::make_shared<RenamedTensors>(source);
  for (const StateWeight& w : weights) renamed->add(w.name, w.tensor);
  return WeightFiles(std::shared_ptr<const TensorSource>(std::move(renamed)));
}

}  // namespace mantissa::io
