#include "mantissa/generate/rollout/states_origin.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <variant>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/op.h"
#include "mantissa/engine/model/adapter.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/hash.h"
#include "mantissa/files/io/state.h"
#include "mantissa/setup/weights/stored_names.h"
#include "mantissa/setup/weights/weights_hash.h"

namespace mantissa::rollout {
namespace {

void add_text(io::Hash64& hash, const std::string& text) {
  hash.update(std::as_bytes(std::span(text)));
}

/// Returns the text of a setting. GGUF files keep numbers, such as the ε of a norm, in f32.
std::string text_of(const graph::Attribute& setting) {
  struct Text {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t size) const { return std::to_string(size); }
    std::string operator()(double number) const { return fmt::format("{}f", static_cast<float>(number)); }
    std::string operator()(const std::vector<std::int64_t>& sizes) const {
      return fmt::format("{}", fmt::join(sizes, ","));
    }
  };
  return std::visit(Text(), setting);
}

/// Rounds all numbers to f32, for the same reason.
void round_numbers(nlohmann::json& value) {
  if (value.is_number_float()) value = static_cast<float>(value.get<double>());
  if (!value.is_structured()) return;
  for (nlohmann::json& part : value) round_numbers(part);
}

/// Adds what the model computes: the ops with their settings, and the fields of its family, which determine
/// the tables of positions. The texts of two config.json may differ and mean the same.
void add_network(io::Hash64& hash, const model::ModelConfig& config) {
  const graph::Graph graph = model::build_forward(config);
  for (const graph::Node& node : graph.nodes()) {
    add_text(hash, fmt::format("{} {} {}", node.op->id, node.scope, fmt::join(node.inputs, ",")));
    for (const auto& [name, setting] : node.attributes.items())
      add_text(hash, fmt::format(" {}={}", name, text_of(setting)));
    add_text(hash, "\n");
  }
  nlohmann::json fields = nlohmann::json::object();
  config.network->write(fields);
  round_numbers(fields);
  add_text(hash, fields.dump());
}

/// Adds what an adapter does to the model.
void add_adapter(io::Hash64& hash, const weights::ModelSource& source) {
  const model::Adapter& adapter = *source.config.adapter;
  add_text(hash,
           fmt::format("adapter {} {}{}", adapter.rslora, adapter.dora, adapter.states ? " states" : ""));
  for (const auto& [scope, layer] : adapter.layers)
    add_text(hash, fmt::format(" {} {} {}", scope, layer.rank, layer.alpha));
  if (source.adapter == nullptr) return;
  std::vector<std::byte> bytes;
  for (const io::TensorInfo& t : source.adapter->tensors()) {
    bytes.resize(t.end - t.begin);
    source.adapter->read(t, bytes, 0);
    add_text(hash, t.name);
    hash.update(bytes);
  }
}

bool scales_factors(const precision::Policy& policy) {
  const auto scales = [](const precision::Fields& f) {
    return f.compute && (*f.compute)->scaled != precision::Scaled::none;
  };
  return scales(policy.fields()) ||
         std::ranges::any_of(policy.rules(), [&](const precision::Rule& r) { return scales(r.fields); });
}

/// Adds the largest magnitudes that the model's files keep of its tensors, from which their scales begin.
void add_scales(io::Hash64& hash, const weights::ModelSource& source) {
  const io::WeightFiles files = weights::files_of(source);
  if (source.state) return add_text(hash, io::amax_of_state(io::SafetensorsReader(source.weights)));
  const std::map<std::string, std::string>& metadata = files.metadata();
  if (const auto kept = metadata.find(io::kAmaxKey); kept != metadata.end()) add_text(hash, kept->second);
}

}  // namespace

std::string name_of(const precision::Policy& policy) {
  return policy.rules().empty() ? policy.short_line() : policy.line();
}

StatesOrigin origin_of(const weights::ModelSource& source, const precision::Policy& policy,
                       const runtime::Device& device) {
  const std::string weights = weights::hash_of_weights(source, device);
  if (weights.empty()) {
    throw ConfigError(
        "states are kept with the hash of the model's weights, and this model has none. Fix: use a model with "
        "weights, such as one that a run wrote");
  }
  io::Hash64 rest;  // everything else that determines values
  add_network(rest, source.config);
  if (source.config.base) add_text(rest, fmt::format("base {}", static_cast<int>(*source.config.base)));
  if (source.config.base_plain) add_text(rest, fmt::format("base {}", name(*source.config.base_plain)));
  if (source.config.adapter != nullptr) add_adapter(rest, source);
  if (scales_factors(policy)) add_scales(rest, source);
  return {fmt::format("{}-{}", weights, io::hex(rest.digest())), name_of(policy)};
}

}  // namespace mantissa::rollout
