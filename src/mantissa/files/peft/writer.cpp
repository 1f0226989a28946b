#include "mantissa/files/peft/writer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/files/io/expert_tensors.h"
#include "mantissa/files/io/hash.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/safetensors_stream.h"
#include "mantissa/files/peft/config.h"
#include "mantissa/files/peft/reader.h"
#include "mantissa/files/peft/targets.h"

namespace mantissa::peft {
namespace {

using nlohmann::json;

/// Returns the name of a tensor in the file.
std::string stored_name(std::string_view parameter) {
  const std::string magnitude = std::string(model::kMagnitude) + ".weight";
  if (parameter.ends_with(magnitude)) parameter.remove_suffix(std::string_view(".weight").size());
  return std::string(kPrefix) + std::string(parameter);
}

/// Returns whole numbers as such.
json number(double value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (value == std::floor(value) && std::abs(value) < kExact) return static_cast<std::int64_t>(value);
  return value;
}

/// Returns the value that most layers have.
template <class Value>
Value most_frequent(const std::map<Value, int>& counts) {
  return std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; })->first;
}

bool selects(std::string_view name, std::string_view module) {
  return module == name || (module.size() > name.size() && module.ends_with(name) &&
                            module[module.size() - name.size() - 1] == '.');
}

/// Returns the modules that contain linear layers: "model", "model.layers", "model.layers.0", …
std::set<std::string_view> containers_of(std::span<const model::LinearLayer> all) {
  std::set<std::string_view> modules;
  for (const model::LinearLayer& layer : all) {
    const std::string_view scope = layer.scope;
    for (std::size_t dot = scope.rfind('.'); dot != std::string_view::npos;
         dot = dot > 0 ? scope.rfind('.', dot - 1) : std::string_view::npos)
      modules.insert(scope.substr(0, dot));
  }
  return modules;
}

}  // namespace

std::vector<std::string> target_modules(std::span<const std::string> wanted,
                                        std::span<const model::LinearLayer> all) {
  const std::set<std::string_view> selected(wanted.begin(), wanted.end());
  // peft refuses a name that also selects another module: "0" of w_lora.lora.0 is the first layer too. A
  // number alone says nothing to a reader either.
  const std::set<std::string_view> containers = containers_of(all);
  std::set<std::string> names;
  std::map<std::string_view, bool> tried;
  const auto fits = [&](std::string_view name) {
    const auto [at, is_new] = tried.try_emplace(name, false);
    if (is_new) {
      const bool exact = std::ranges::all_of(all, [&](const model::LinearLayer& layer) {
        return selected.contains(layer.scope) || !selects(name, layer.scope);
      });
      at->second =
          exact && std::ranges::none_of(containers, [&](std::string_view m) { return selects(name, m); });
    }
    return at->second;
  };
  for (const std::string& scope : wanted) {
    std::string_view end = scope;
    for (std::size_t dot = scope.rfind('.'); dot != std::string::npos && dot > 0;
         dot = scope.rfind('.', dot - 1)) {
      const std::string_view shorter = std::string_view(scope).substr(dot + 1);
      if (shorter.find_first_not_of("0123456789") == std::string_view::npos) continue;
      if (!fits(shorter)) continue;
      end = shorter;
      break;
    }
    names.emplace(end);
  }
  return {names.begin(), names.end()};
}

std::string config_text(const model::ModelConfig& config, const std::string& base) {
  const model::Adapter& adapter = *config.adapter;
  if (adapter.states) {
    const json out = {{"peft_type", kStates},
                      {"task_type", config.scores ? "SEQ_CLS" : "CAUSAL_LM"},
                      {"base_model_name_or_path", base},
                      {"inference_mode", true}};
    return out.dump(2) + "\n";
  }
  std::map<std::int64_t, int> ranks;
  std::map<double, int> alphas;
  std::vector<std::string> wanted;
  const Layers layers = modules_of(adapter.layers, config);
  for (const auto& [scope, layer] : layers) {
    ++ranks[layer.rank];
    ++alphas[layer.alpha];
    wanted.push_back(scope);
  }
  const std::int64_t rank = most_frequent(ranks);
  const double alpha = most_frequent(alphas);
  json rank_pattern = json::object(), alpha_pattern = json::object();
  for (const auto& [scope, layer] : layers) {
    if (layer.rank != rank) rank_pattern[scope] = layer.rank;
    if (layer.alpha != alpha) alpha_pattern[scope] = number(layer.alpha);
  }
  const std::vector<model::LinearLayer> all = modules_of(config);
  const bool in_out = std::ranges::any_of(
      all, [&](const model::LinearLayer& l) { return l.in_out && adapter.find(l.scope) != nullptr; });
  json saved = nullptr;
  if (config.scores) saved = json::array({model::kScoreHead});
  const json out = {{"peft_type", "LORA"},
                    {"task_type", config.scores ? "SEQ_CLS" : "CAUSAL_LM"},
                    {"base_model_name_or_path", base},
                    {"inference_mode", true},
                    {"r", rank},
                    {"lora_alpha", number(alpha)},
                    {"lora_dropout", 0.0},
                    {"target_modules", target_modules(wanted, all)},
                    {"rank_pattern", rank_pattern},
                    {"alpha_pattern", alpha_pattern},
                    {"use_rslora", adapter.rslora},
                    {"use_dora", adapter.dora},
                    {"bias", "none"},
                    {"fan_in_fan_out", in_out},
                    {"init_lora_weights", true},
                    {"modules_to_save", saved},
                    {"layers_to_transform", nullptr},
                    {"layers_pattern", nullptr},
                    {"layer_replication", nullptr}};
  return out.dump(2) + "\n";
}

std::uint64_t write_adapter(const std::filesystem::path& directory, const AdapterToWrite& adapter) {
  std::vector<io::TensorToWrite> tensors =
      io::with_split_experts({adapter.tensors.begin(), adapter.tensors.end()});
  for (io::TensorToWrite& t : tensors) t.name = stored_name(t.name);
  std::map<std::string, std::string> metadata = adapter.metadata;
  metadata.emplace("format", "pt");
  if (adapter.config.base) metadata.emplace(kBaseKey, traits(*adapter.config.base).name);
  if (adapter.config.base_plain) metadata.emplace(kBaseKey, traits(*adapter.config.base_plain).name);
  disk::AtomicDirectory target(directory, disk::kAdapter);
  disk::write_file_atomic(target.beside() / io::kAdapterConfig, config_text(adapter.config, adapter.base));
  for (const auto& [name, contents] : adapter.files)
    disk::write_file_atomic(target.beside() / name, contents);
  io::Hash64 hash;
  io::stream_safetensors(target.beside() / kWeightsFile, tensors, metadata, hash);
  target.commit();
  return hash.digest();
}

}  // namespace mantissa::peft
