#include "mantissa/setup/programs/narrow_layers.h"

#include "mantissa/core/tensor/narrow_rows.h"
#include "mantissa/engine/model/adapter.h"
#include "mantissa/engine/optim/groups.h"

namespace mantissa::programs {
namespace {

/// `held_in` returns the format of the blocks that are to hold a weight, or null.
template <class HeldIn>
std::vector<std::string> notes_on(const model::ModelConfig& model, const HeldIn& held_in) {
  NarrowRows narrow;
  for (const model::LinearLayer& layer : model::linear_layers(model)) {
    const std::string weight = layer.scope + ".weight";
    const std::optional<QuantFormat> format = held_in(weight);
    if (format && !takes_width(*format, static_cast<std::size_t>(layer.in)))
      narrow[*format].push_back(weight);
  }
  return narrow_rows_notes(narrow);
}

}  // namespace

std::vector<std::string> narrow_layers_notes(const model::ModelConfig& model) {
  return notes_on(model, [&](const std::string& /*weight*/) { return model.base; });
}

std::vector<std::string> narrow_layers_notes(const config::RunConfig& config,
                                             const model::ModelConfig& model) {
  if (model.adapter != nullptr) return narrow_layers_notes(model);
  return notes_on(model, [&](const std::string& weight) {
    return optim::settings_of(config.optimizer.groups, weight).held_in();
  });
}

}  // namespace mantissa::programs
