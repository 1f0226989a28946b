// The place of a module in a model: its layer, and its name without the layer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa::lab {

/// "model.layers.3.mlp.down_proj" is layer 3 of "model.layers", and the module "mlp.down_proj". Without a
/// number, `layer` is −1 and `module` is the whole name.
struct ModulePlace {
  explicit ModulePlace(std::string_view scope);
  std::string stack, module;
  int layer = -1;

  /// Returns what identifies a row of a map of layers: "model.layers.3", or the name without ".weight" and
  /// ".bias".
  std::string row() const;
  /// Returns the label of that row: "3", or the last part of the name.
  std::string label() const;
};

/// The rows of all names, in the order of the model: `scopes` are in the order of the forward pass. Layers of
/// a stack stay together, in ascending order.
std::vector<ModulePlace> rows_in_order(const std::vector<std::string>& scopes);

}  // namespace mantissa::lab
