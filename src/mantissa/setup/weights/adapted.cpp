#include "mantissa/setup/weights/adapted.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/peft/config.h"
#include "mantissa/files/peft/reader.h"
#include "mantissa/files/peft/targets.h"
#include "mantissa/files/peft/writer.h"
#include "mantissa/kernels/row_norms.h"
#include "mantissa/kernels/update.h"
#include "mantissa/setup/config/adapter.h"
#include "mantissa/setup/config/stages.h"

namespace mantissa::weights {

namespace fs = std::filesystem;

namespace {

/// Adds a note if the adapter was trained on a base in another format than the run's.
void note_other_base(ModelSource& source, const config::AdapterSection& section) {
  const std::optional<QuantFormat> blocks = source.config.base;
  const std::optional<Scalar> plain = source.config.base_plain;
  if (!blocks && !plain) return;
  if (blocks == config::base_blocks(section) && plain == config::base_format(section)) return;
  const std::string_view before = blocks ? traits(*blocks).name : traits(*plain).name;
  source.notes.push_back(fmt::format(
      "{}: was trained on a base in {}, and continues on one in {}; adapter.base = \"{}\" keeps the former",
      section.path, before, section.base, before));
}

/// Sets the format that holds the base by the config.
void set_base(ModelSource& source, const config::AdapterSection& section) {
  source.config.base = config::base_blocks(section);
  source.config.base_plain = config::base_format(section);
}

/// Makes the model a reward model under the objective that trains these, and refuses one under others.
void check_scores(ModelSource& source, const config::RunConfig& config) {
  if (config.train.objective == "reward") {
    source.config = model::reward_model(std::move(source.config));
  } else if (source.config.scores) {
    throw ConfigError(
        "model.path: {} is a reward model ({}), which train.objective = \"{}\" cannot train. Fix: "
        "give a language model, or set train.objective = \"reward\"",
        config.model.path, source.config.family->classifier, config.train.objective);
  }
}

/// Returns the heads that are trained as a whole beside an adapter.
std::vector<std::string> trained_heads(const config::RunConfig& config) {
  if (config.train.objective == "reward") return {std::string(model::kScoreHead)};
  if (config.train.objective == "rl" && config.rl.algorithm == "ppo") return {std::string(model::kValueHead)};
  return {};
}

}  // namespace

ModelSource find_run_model(const config::RunConfig& config) {
  ModelSource source = find_model(config.model);
  source.config = config::overridden(config, source.config);
  check_scores(source, config);
  const config::AdapterSection& section = config.adapter;
  if (section.kind == "none") return source;
  if (source.config.adapter != nullptr) {
    throw ConfigError(
        "model.path: {} is an adapter; give its base as model.path, and continue the adapter with "
        "adapter.path",
        config.model.path);
  }
  if (!section.path.empty()) {
    use_adapter(source, section.path);
    check_scores(source, config);
    note_other_base(source, section);
    set_base(source, section);
    auto adapter = std::make_shared<model::Adapter>(*source.config.adapter);
    adapter->heads = trained_heads(config);
    source.config.adapter = std::move(adapter);
    if (source.config.adapter->states == (section.kind == "state")) return source;
    throw ConfigError(
        "adapter.path: expected an adapter of {}, as adapter.kind = \"{}\" says, got one of {}: {}. Fix: set "
        "adapter.kind = \"{}\"",
        section.kind == "state" ? "initial states" : "linear layers", section.kind,
        section.kind == "state" ? "linear layers" : "initial states", section.path,
        section.kind == "state" ? "lora" : "state");
  }
  set_base(source, section);
  auto adapter = std::make_shared<model::Adapter>();
  adapter->heads = trained_heads(config);
  if (section.kind == "state") {
    adapter->states = true;
    if (model::recurrent_layers(source.config).empty()) {
      throw ConfigError(
          "adapter.kind = \"state\": expected a model with recurrences, such as rwkv7, whose initial states are "
          "trained, got {}. Fix: set adapter.kind = \"lora\"",
          source.config.model_type);
    }
    source.config.adapter = std::move(adapter);
    return source;
  }
  adapter->rslora = section.rslora;
  adapter->dora = section.dora;
  adapter->layers =
      peft::select_layers(source.config, section.target, {section.rank, section.alpha}, "adapter.target");
  source.config.adapter = std::move(adapter);
  return source;
}

void use_adapter(ModelSource& source, const fs::path& directory) {
  peft::PeftAdapter read = peft::read_adapter(directory, source.config);
  source.config.base = read.base_blocks;
  source.config.base_plain = read.base_plain;
  if (read.scores) source.config = model::reward_model(std::move(source.config));
  source.config.adapter = std::move(read.adapter);
  source.adapter = std::move(read.tensors);
  source.notes.insert(source.notes.end(), read.notes.begin(), read.notes.end());
}

ModelSource model_of_adapter(const fs::path& directory) {
  const fs::path file = directory / io::kAdapterConfig;
  const std::string name = peft::parse_config(io::read_json_file(file), file).base;
  if (name.empty() || !disk::exists(name) || !io::adapter_folder(name).empty()) {
    throw FileError(
        "{}: is an adapter, and its base {} is not a model on this machine; give the "
        "base as MODEL, with --adapter {}",
        directory.string(), in_quotes(name), directory.string());
  }
  ModelSource source = find_model(fs::path(name));
  use_adapter(source, directory);
  return source;
}

std::optional<ModelSource> adapter_of_state(const io::StateReader& state, const fs::path& folder) {
  const config::RunConfig config = config::parse_config(state.header().config_toml, folder / "state.json");
  if (config.adapter.kind == "none") return std::nullopt;
  ModelSource source = find_run_model(config);
  source.adapter = peft::state_tensors(folder / io::kStateTensors, *source.config.adapter);
  return source;
}

void start_magnitudes(runtime::WeightSet& weights) {
  const plan::Program& program = weights.program();
  const runtime::Device& device = weights.device();
  const auto scope_of = [&](const plan::Operand& o, std::string_view end) -> std::string_view {
    const std::int32_t slot = program.buffer(o.buffer).slot;
    if (slot < 0) return {};
    const std::string_view name = program.slots[static_cast<std::size_t>(slot)].name;
    return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : "";
  };
  for (const plan::Step& step : program.steps) {
    // The step reads W, A and B of a layer.
    if (step.op->kind != graph::OpKind::rows || step.inputs.size() != 3) continue;
    const std::string_view scope = scope_of(step.inputs[2], ".lora_B.weight");
    if (scope.empty() || scope_of(step.inputs[0], ".weight") != scope) continue;
    const std::string name = std::string(scope) + std::string(model::kMagnitude) + ".weight";
    const auto slot = std::ranges::find(program.slots, name, &plan::Slot::name);
    const auto view = [&](std::size_t input) -> ConstMatrix {
      const plan::Buffer& b = program.buffer(step.inputs[input].buffer);
      return {weights.find(program, step.inputs[input].buffer), b.type, b.shape.last()};
    };
    const Shape& a = program.buffer(step.inputs[1].buffer).shape;
    const auto out = static_cast<std::size_t>(slot->shape.count());
    std::vector<std::byte> norms(out * bytes_of(program.arithmetic)), rounded(out * bytes_of(slot->master));
    kernels::row_norms(device.host(), {.out = slot->shape.count(),
                                       .in = a.last(),
                                       .rank = a.dim(0).size,
                                       .scale = step.attributes.number("scale"),
                                       .transposed = step.attributes.flag("transposed"),
                                       .weight = view(0),
                                       .a = view(1),
                                       .b = view(2),
                                       .quants = weights.quants(program, step.inputs[0].buffer),
                                       .norms = {norms.data(), program.arithmetic, slot->shape.count()}});
    kernels::cast(device.host(), slot->shape.count(), norms.data(), program.arithmetic, rounded.data(),
                  slot->master);
    if (!weights.has(slot->master_buffer)) continue;  // its owner begins with it
    const Matrix master = weights.master(static_cast<std::size_t>(slot - program.slots.begin()));
    device.upload(static_cast<std::byte*>(master.data), rounded);
  }
  weights.refresh_copies();
}

std::uint64_t save_adapter(const fs::path& directory, const runtime::WeightSet& weights,
                           const ModelSource& source, const precision::Policy& policy,
                           const std::vector<std::pair<std::string, std::string>>& files) {
  const std::vector<io::TensorToWrite> tensors = tensors_of(weights, policy);
  const std::string base =
      source.directory.empty() ? source.weights.string() : source.directory.lexically_normal().string();
  return peft::write_adapter(directory, {.config = source.config,
                                         .base = base,
                                         .tensors = tensors,
                                         .metadata = metadata_of(weights, policy),
                                         .files = files});
}

}  // namespace mantissa::weights
