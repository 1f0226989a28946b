#include "mantissa/files/peft/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/suggest.h"
#include "mantissa/core/base/words.h"
#include "mantissa/files/io/expert_tensors.h"
#include "mantissa/precision/policy/glob.h"

namespace mantissa::peft {
namespace {

using model::LinearLayer;

std::string_view last_part(std::string_view scope) {
  return scope.substr(scope.rfind('.') + 1);
}

/// Returns the last parts of the scopes, each once: "q_proj", "k_proj", …
std::vector<std::string> last_parts(std::span<const LinearLayer> layers) {
  std::vector<std::string> parts;
  for (const LinearLayer& layer : layers) {
    std::string part(last_part(layer.scope));
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

std::string nearest_layer(std::string_view scope, std::span<const LinearLayer> layers) {
  const std::vector<std::string> parts = last_parts(layers);
  const std::string_view last = last_part(scope);
  if (const auto near = nearest(last, parts); near && *near != last)
    return fmt::format("; did you mean \"{}{}\"?", scope.substr(0, scope.size() - last.size()), *near);
  return fmt::format("; its linear layers are named {}", list_of(parts));
}

void check_rank(const LinearLayer& linear, const model::AdapterLayer& layer, std::string_view where) {
  const std::int64_t most = std::min(linear.in, linear.out);
  if (layer.rank <= most) return;
  throw ConfigError("{}: rank {} is too large for {}, which has {} inputs and {} outputs; use at most {}",
                    where, layer.rank, linear.scope, linear.in, linear.out, most);
}

Layers select_layers(const model::ModelConfig& config, std::span<const std::string> targets,
                     const model::AdapterLayer& layer, std::string_view where) {
  std::vector<LinearLayer> all = model::linear_layers(config);
  for (LinearLayer& of_experts : model::expert_layers(config)) all.push_back(std::move(of_experts));
  Layers layers;
  for (const std::string& target : targets) {
    precision::check_glob(target);
    const std::optional<io::ExpertTensor> of_one = io::parse_expert_tensor(target);
    bool any = false;
    for (const LinearLayer& linear : all) {
      if (linear.experts > 0 && of_one && precision::scope_match(of_one->parameter, linear.scope)) {
        throw ConfigError(
            "{}: {} selects one expert, but an adapter is for all experts of a layer or none. Fix: {}", where,
            in_quotes(target), in_quotes(of_one->parameter));
      }
      const bool matches =
          precision::scope_match(target, linear.scope) ||
          (linear.experts > 0 && precision::scope_match(target, io::expert_tensor(linear.scope, 0)));
      if (!matches) continue;
      any = true;
      check_rank(linear, layer, where);
      layers.emplace(linear.scope, layer);
    }
    if (any) continue;
    throw ConfigError("{}: {} matches no linear layer of this {} model{}", where, in_quotes(target),
                      config.model_type, nearest_layer(target, all));
  }
  return layers;
}

std::vector<LinearLayer> modules_of(std::span<const LinearLayer> layers) {
  std::vector<LinearLayer> modules;
  for (const LinearLayer& layer : layers) {
    if (layer.experts == 0) modules.push_back(layer);
    for (std::int64_t e = 0; e < layer.experts; ++e)
      modules.push_back({io::expert_tensor(layer.scope, e), layer.in, layer.out});
  }
  return modules;
}

std::vector<LinearLayer> modules_of(const model::ModelConfig& config) {
  std::vector<LinearLayer> modules = model::linear_layers(config);
  for (LinearLayer& module : modules_of(model::expert_layers(config))) modules.push_back(std::move(module));
  return modules;
}

Layers modules_of(const Layers& layers, const model::ModelConfig& config) {
  Layers modules = layers;
  for (const LinearLayer& of_experts : model::expert_layers(config)) {
    const auto found = layers.find(of_experts.scope);
    if (found == layers.end()) continue;
    modules.erase(of_experts.scope);
    for (const LinearLayer& module : modules_of({&of_experts, 1}))
      modules.emplace(module.scope, found->second);
  }
  return modules;
}

}  // namespace mantissa::peft
