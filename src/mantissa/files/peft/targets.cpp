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
  const std::vector<LinearLayer> all = model::linear_layers(config);
  Layers layers;
  for (const std::string& target : targets) {
    precision::check_glob(target);
    bool any = false;
    for (const LinearLayer& linear : all) {
      if (!precision::scope_match(target, linear.scope)) continue;
      any = true;
      check_rank(linear, layer, where);
      layers.emplace(linear.scope, layer);
    }
    if (any) continue;
    if (!targets_of_experts(config, {&target, 1}).empty()) {
      throw ConfigError(
          "{}: {} matches only experts of this {} model, to which adapters are not supported. Fix: select other "
          "layers, such as \"*.self_attn.*\", or train the experts whole without an adapter",
          where, in_quotes(target), config.model_type);
    }
    throw ConfigError("{}: {} matches no linear layer of this {} model{}", where, in_quotes(target),
                      config.model_type, nearest_layer(target, all));
  }
  return layers;
}

std::vector<std::string> targets_of_experts(const model::ModelConfig& config,
                                            std::span<const std::string> targets) {
  const std::vector<std::string> scopes = model::expert_scopes(config);
  std::vector<std::string> matching;
  for (const std::string& target : targets) {
    // peft names a module of each expert: "….experts.0.up_proj".
    const std::optional<io::ExpertTensor> of_one = io::parse_expert_tensor(target);
    const bool matches = std::ranges::any_of(scopes, [&](const std::string& scope) {
      return precision::scope_match(target, scope) ||
             precision::scope_match(target, io::expert_tensor(scope, 0)) ||
             (of_one && precision::scope_match(of_one->parameter, scope));
    });
    if (matches) matching.push_back(target);
  }
  return matching;
}

}  // namespace mantissa::peft
