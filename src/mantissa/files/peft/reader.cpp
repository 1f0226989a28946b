#include "mantissa/files/peft/reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/numeric/frozen_formats.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/files/io/dtype.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/io/pth/torch_file.h"
#include "mantissa/files/io/renamed_tensors.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/files/io/state_weights.h"
#include "mantissa/files/peft/config.h"
#include "mantissa/files/peft/states.h"
#include "mantissa/files/peft/targets.h"

namespace mantissa::peft {
namespace {

namespace fs = std::filesystem;
using model::LinearLayer;

std::shared_ptr<const io::TensorSource> open_tensors(const fs::path& directory) {
  if (disk::exists(directory / kWeightsFile))
    return std::make_shared<const io::SafetensorsReader>(directory / kWeightsFile);
  if (const fs::path torch = directory / "adapter_model.bin"; disk::exists(torch))
    return std::make_shared<const io::pth::TorchFile>(torch);
  throw FileError(
      "{}: has no {}, so it is not an adapter of peft; give the directory that peft's "
      "save_pretrained, or a run, has written",
      directory.string(), kWeightsFile);
}

/// A tensor's place in an adapter.
struct Place {
  std::string module;     // without kPrefix
  std::string_view part;  // kLoraA, kLoraB or kMagnitude
};

std::optional<Place> place_of(std::string_view name) {
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  for (const std::string_view part : {model::kLoraA, model::kLoraB, model::kMagnitude}) {
    const bool bare = part == model::kMagnitude && name.ends_with(part);
    const std::string end = std::string(part) + (bare ? "" : ".weight");
    if (name.ends_with(end)) return Place{std::string(name.substr(0, name.size() - end.size())), part};
  }
  return std::nullopt;
}

/// Reads the tensors of one directory.
class Reading {
 public:
  Reading(const fs::path& directory, const model::ModelConfig& base)
      : config_(
            parse_config(io::read_json_file(directory / io::kAdapterConfig), directory / io::kAdapterConfig)),
        source_(open_tensors(directory)),
        base_(base),
        linear_(modules_of(base)),
        tensors_(std::make_shared<io::RenamedTensors>(source_)),
        adapter_(std::make_shared<model::Adapter>()) {
    for (const LinearLayer& layer : linear_) by_scope_.emplace(layer.scope, &layer);
  }

  PeftAdapter operator()() {
    adapter_->states = config_.states;
    if (config_.states) find_recurrences();
    adapter_->rslora = config_.rslora;
    adapter_->dora = config_.dora;
    if (config_.scores) adapter_->heads = {std::string(model::kScoreHead)};
    for (const io::TensorInfo& tensor : source_->tensors()) add(tensor);
    if (config_.states) check_states();
    if (parts_.empty() && !config_.states)
      fail("contains no adapter; train one with [adapter] kind = \"lora\", or in peft");
    for (const auto& [scope, parts] : parts_) check(scope, parts);
    for (const LinearLayer& layer : model::expert_layers(base_)) join(layer);
    const auto found = source_->metadata().find(kBaseKey);
    const std::string base = found == source_->metadata().end() ? "" : found->second;
    return {adapter_,
            tensors_,
            config_.base,
            config_.scores,
            parse_frozen_format(base),
            parse_plain_base(base),
            std::move(config_.notes)};
  }

 private:
  using Parts = std::map<std::string_view, io::TensorInfo>;

  [[noreturn]] void fail(const std::string& what) const {
    throw FileError("{}: {}", source_->path().string(), what);
  }
  [[noreturn]] void fail_shape(const io::TensorInfo& tensor, const std::string& why) const {
    throw ShapeError("{}: tensor {} is [{}], but {}; use the base model of this adapter{}",
                     source_->path().string(), name_in_quotes(tensor.name), fmt::join(tensor.shape, ", "),
                     why, config_.base.empty() ? "" : ", " + name_in_quotes(config_.base));
  }

  const LinearLayer* find(std::string_view scope) const {
    const auto found = by_scope_.find(scope);
    return found == by_scope_.end() ? nullptr : found->second;
  }

  /// Returns the linear layer of a module. Adapters of the bare trunk omit its prefix.
  const LinearLayer& layer_of(const std::string& module, const io::TensorInfo& tensor) const {
    if (const LinearLayer* layer = find(module)) return *layer;
    if (const LinearLayer* layer = find(std::string(base_.family->trunk_prefix) + module)) return *layer;
    fail(fmt::format("tensor {} belongs to {}, which is not a linear layer of this {} model{}",
                     name_in_quotes(tensor.name), name_in_quotes(module), base_.model_type,
                     nearest_layer(module, linear_)));
  }

  /// Adds a head that was trained as a whole. Returns false for other tensors.
  bool add_head(const io::TensorInfo& tensor) {
    const std::string name = std::string(model::kScoreHead) + ".weight";
    if (!config_.scores || !tensor.name.ends_with(name)) return false;
    if (tensor.shape != std::vector<std::int64_t>{1, base_.hidden_size})
      fail_shape(tensor, fmt::format("a score is one product with {} numbers", base_.hidden_size));
    tensors_->add(name, tensor);
    return true;
  }

  /// Adds the initial state of a recurrence.
  void add_state(const io::TensorInfo& tensor) {
    std::string_view name = tensor.name;
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    const auto layer = std::ranges::find_if(recurrent_, [&](const model::RecurrentLayer& l) {
      return name == l.scope + std::string(model::kInitialState);
    });
    if (layer == recurrent_.end())
      fail(fmt::format(
          "tensor {} is not the initial state of a recurrence of this {} model; use the base model of "
          "this adapter",
          name_in_quotes(tensor.name), base_.model_type));
    check_state(tensor, *layer, false, source_->path());
    tensors_->add(std::string(name), tensor);
  }

  void find_recurrences() {
    recurrent_ = model::recurrent_layers(base_);
    if (recurrent_.empty())
      fail(fmt::format(
          "holds the initial states of recurrences, and this {} model has none; use the base model of "
          "this adapter",
          base_.model_type));
  }

  /// Throws unless there is a state for every recurrence.
  void check_states() const {
    for (const model::RecurrentLayer& layer : recurrent_) {
      const std::string name = layer.scope + std::string(model::kInitialState);
      if (std::ranges::find(tensors_->tensors(), name, &io::TensorInfo::name) == tensors_->tensors().end())
        fail(fmt::format("has no tensor {}; the file is incomplete: save the adapter again",
                         name_in_quotes(name)));
    }
  }

  void add(const io::TensorInfo& tensor) {
    if (add_head(tensor)) return;
    if (config_.states) return add_state(tensor);
    const std::optional<Place> place = place_of(tensor.name);
    if (!place) {
      fail(
          fmt::format("tensor {} is not supported: an adapter here has lora_A, lora_B and "
                      "lora_magnitude_vector of linear layers; merge other adapters into their base in peft "
                      "(merge_and_unload)",
                      name_in_quotes(tensor.name)));
    }
    if (!io::scalar_of(tensor.dtype)) {
      fail(fmt::format("tensor {} is {}, but must be a floating-point tensor", name_in_quotes(tensor.name),
                       io::safetensors_name(tensor.dtype)));
    }
    const LinearLayer& layer = layer_of(place->module, tensor);
    modules_[layer.scope] = place->module;
    if (!parts_[layer.scope].emplace(place->part, tensor).second)
      fail(fmt::format("{} of {} is there twice", place->part.substr(1), layer.scope));
    tensors_->add(layer.scope + std::string(place->part) + ".weight", tensor);
  }

  void check(const std::string& scope, const Parts& parts) {
    for (const std::string_view part : {model::kLoraA, model::kLoraB, model::kMagnitude}) {
      const bool wanted = part != model::kMagnitude || config_.dora;
      if (wanted == parts.contains(part)) continue;
      fail(fmt::format("{} {} {}; {}", scope, wanted ? "has no" : "has", part.substr(1),
                       part == model::kMagnitude ? "use_dora in adapter_config.json must agree with it"
                                                 : "the file is incomplete: save the adapter again"));
    }
    const LinearLayer& linear = *find(scope);
    const io::TensorInfo &a = parts.at(model::kLoraA), &b = parts.at(model::kLoraB);
    if (a.shape.size() != 2 || a.shape[0] < 1 || a.shape[1] != linear.in)
      fail_shape(a, fmt::format("{} has {} inputs", scope, linear.in));
    const std::int64_t rank = a.shape[0];
    if (b.shape != std::vector<std::int64_t>{linear.out, rank}) {
      fail_shape(b, fmt::format("{} has {} outputs and its lora_A has rank {}", scope, linear.out, rank));
    }
    if (config_.dora && parts.at(model::kMagnitude).shape != std::vector<std::int64_t>{linear.out})
      fail_shape(parts.at(model::kMagnitude), fmt::format("{} has {} outputs", scope, linear.out));
    const model::AdapterLayer layer{rank, config_.alpha_of(modules_.at(scope))};
    check_rank(linear, layer, source_->path().string());
    adapter_->layers.emplace(scope, layer);
  }

  /// Replaces the adapters of the experts of a layer by that of all of them.
  void join(const LinearLayer& of_experts) {
    model::Adapter& adapter = *adapter_;
    const std::vector<LinearLayer> modules = modules_of({&of_experts, 1});
    const auto is_adapted = [&](const LinearLayer& m) { return adapter.find(m.scope) != nullptr; };
    if (std::ranges::none_of(modules, is_adapted)) return;
    if (config_.dora)
      fail(fmt::format(
          "{} has DoRA, which is not supported for experts. Fix: merge the adapter into its base in "
          "peft (merge_and_unload)",
          of_experts.scope));
    const model::AdapterLayer* first = adapter.find(modules.front().scope);
    for (const LinearLayer& m : modules) {
      const model::AdapterLayer* layer = adapter.find(m.scope);
      if (first != nullptr && layer != nullptr && *layer == *first) continue;
      fail(fmt::format(
          "{} has another adapter than other experts of its layer, or none; here all have one of the "
          "same rank and alpha. Fix: merge the adapter into its base in peft (merge_and_unload)",
          (first == nullptr ? modules.front() : m).scope));
    }
    adapter.layers.emplace(of_experts.scope, *first);
    for (const LinearLayer& m : modules) adapter.layers.erase(m.scope);
  }

  PeftConfig config_;
  std::shared_ptr<const io::TensorSource> source_;
  const model::ModelConfig& base_;
  std::vector<LinearLayer> linear_;  // as modules of peft
  std::map<std::string_view, const LinearLayer*> by_scope_;
  std::vector<model::RecurrentLayer> recurrent_;  // of an adapter of states
  std::shared_ptr<io::RenamedTensors> tensors_;
  std::shared_ptr<model::Adapter> adapter_;
  std::map<std::string, Parts> parts_;          // by scope
  std::map<std::string, std::string> modules_;  // scope → module name in the file
};

}  // namespace

PeftAdapter read_adapter(const fs::path& directory, const model::ModelConfig& base) {
  if (disk::is_file(directory)) return read_time_states(directory, base);
  const fs::path folder = io::adapter_folder(directory);
  if (folder.empty()) {
    throw FileError(
        "{}: has no {}, so it is not an adapter; give the directory that a run, or "
        "peft's save_pretrained, has written",
        directory.string(), io::kAdapterConfig);
  }
  return Reading(folder, base)();
}

std::shared_ptr<const io::TensorSource> state_tensors(const fs::path& state, const model::Adapter& adapter) {
  const auto source = std::make_shared<const io::SafetensorsReader>(state);
  auto tensors = std::make_shared<io::RenamedTensors>(source);
  for (const io::StateWeight& weight : io::state_weights(source->tensors())) {
    if (adapter.owns(weight.name)) tensors->add(weight.name, weight.tensor);
  }
  return tensors;
}

}  // namespace mantissa::peft
