// The linear layers that an adapter decorates, selected by patterns.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/engine/model/adapter.h"
#include "mantissa/engine/model/config.h"

namespace mantissa::peft {

using Layers = std::map<std::string, model::AdapterLayer, std::less<>>;

/// Returns `layer` for each linear layer of `config` that one of `targets` matches: scope globs, as in rules,
/// which also match everything below a scope. Those of experts match under their names in files too, with any
/// number ("*.experts.*.up_proj"); all experts of a layer are adapted, or none. Throws ConfigError beginning
/// with `where` if a pattern matches no linear layer, with the nearest one, and as check_rank() does.
Layers select_layers(const model::ModelConfig& config, std::span<const std::string> targets,
                     const model::AdapterLayer& layer, std::string_view where);

/// Returns layers as the modules of peft: those of experts once for each, "….experts.0.up_proj".
std::vector<model::LinearLayer> modules_of(std::span<const model::LinearLayer> layers);
/// Returns all layers of `config` that an adapter may decorate, as modules of peft.
std::vector<model::LinearLayer> modules_of(const model::ModelConfig& config);
/// Does the same for the layers of an adapter of `config`.
Layers modules_of(const Layers& layers, const model::ModelConfig& config);

/// Throws ConfigError beginning with `where` if the rank is larger than the smaller side of the linear layer.
void check_rank(const model::LinearLayer& linear, const model::AdapterLayer& layer, std::string_view where);

/// Returns a sentence part that helps to find the layer meant by `scope`: "; did you mean …?", or the last
/// names of the model's linear layers.
std::string nearest_layer(std::string_view scope, std::span<const model::LinearLayer> layers);

}  // namespace mantissa::peft
