#include "mantissa/lab/objective/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/suggest.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/output.h"
#include "mantissa/lab/objective/parts.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/setup/config/post_training.h"

namespace mantissa::lab {
namespace {

constexpr const char* kMark = "mantissa.objective";  // metadata of a replay's file

/// Names of other systems.
constexpr std::pair<std::string_view, std::string_view> kForeign[] = {
    {"gae", "ppo"},
    {"group_norm", "grpo"},
    {"dr_grpo", "dr-grpo"},
    {"drgrpo", "dr-grpo"},
    {"reinforce", "reinforce++"},
    {"reinforce_plus_plus", "reinforce++"},
    {"reinforce_baseline", "reinforce++-baseline"},
    {"reinforce_plus_plus_baseline", "reinforce++-baseline"},
    {"cdpo", "dpo --set dpo.label_smoothing=0.1"},
    {"ipo", "dpo --set dpo.loss=ipo"},
    {"simpo", "dpo --set dpo.loss=simpo"},
    {"orpo", "dpo --set dpo.loss=orpo"},
    {"rm", "reward"},
    {"reward-model", "reward"}};

void check_name(const std::string& name) {
  const std::span<const std::string> names = objective_names();
  if (std::ranges::find(names, name) != names.end()) return;
  std::optional<std::string> meant = nearest(name, names);
  for (const auto& [foreign, ours] : kForeign) {
    if (lowered(name) == foreign) meant = ours;
  }
  throw ConfigError(fmt::format("objective {}: unknown{} (choices: {})", in_quotes(name),
                                meant ? fmt::format("; did you mean {}?", *meant) : "", list_of(names)));
}

std::string section_of(const std::string& name) {
  return name == "dpo" ? "dpo" : name == "reward" ? "" : "rl";
}

config::RunConfig config_of(const ObjectiveRequest& request) {
  config::RunConfig config;
  const std::string section = section_of(request.name);
  if (section == "rl") config.rl.algorithm = request.name;
  config::override_section(config, "objective " + request.name, section, request.overrides);
  if (section == "rl" && config.rl.algorithm != request.name) {
    throw ConfigError(fmt::format("--set rl.algorithm={}: the command names the objective {}; remove the key",
                                  config.rl.algorithm, request.name));
  }
  return config;
}

/// Returns true for a file that an earlier replay wrote.
bool is_replay(const std::filesystem::path& path) {
  try {
    return io::SafetensorsReader(path).metadata().contains(kMark);
  } catch (const disk::ReadError&) {
    throw;
  } catch (const FileError&) {
    return false;
  }
}

void check_place(const ObjectiveRequest& request) {
  const std::filesystem::path inputs[] = {request.in};
  disk::check_output({request.out, disk::Shape::stream, request.overwrite || is_replay(request.out)}, inputs);
}

void write(const ObjectiveRequest& request, const ObjectiveResult& result) {
  std::vector<OutputTensor> tensors = {{"loss", {1}, {result.loss}}};
  tensors.insert(tensors.end(), result.tensors.begin(), result.tensors.end());
  std::vector<std::vector<float>> values;
  for (const OutputTensor& tensor : tensors) {
    std::vector<float>& out = values.emplace_back();
    for (const double value : tensor.values) out.push_back(static_cast<float>(value));
  }
  std::vector<io::TensorToWrite> out;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    out.push_back(
        {tensors[i].name, io::Dtype::f32, tensors[i].shape, std::as_bytes(std::span(values[i])), nullptr});
  }
  io::write_safetensors(disk::given(request.out, true), out, {{kMark, request.name}});
}

/// Throws if a value is not finite in f32.
void check_result(const ObjectiveRequest& request, const ObjectiveResult& result) {
  const auto finite = [](double value) { return std::isfinite(static_cast<float>(value)); };
  std::string what = finite(result.loss) ? "" : "loss";
  for (const OutputTensor& tensor : result.tensors) {
    if (what.empty() && !std::ranges::all_of(tensor.values, finite)) what = tensor.name;
  }
  if (what.empty()) return;
  throw RunStopped(fmt::format("objective {}: {} is not finite in f32; {}; the result was written to {}",
                               request.name, what, result.largest, request.out.string()));
}

/// Returns the keys of the section that have an effect, with their values.
nlohmann::ordered_json settings_of(const std::string& name, config::RunConfig& config) {
  static const std::vector<std::string_view> kSampling = {
      "algorithm",          "reward",         "prompts_per_step",
      "samples_per_prompt", "epochs",         "minibatches",
      "temperature",        "top_p",          "rollout_precision",
      "reference",          "reward_timeout", "reward_model",
      "reward_precision"};
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  const std::string section = section_of(name);
  for (const config::Option& option : config::option_table()) {
    if (option.section != section || std::ranges::find(kSampling, option.key) != kSampling.end()) continue;
    const std::string key = fmt::format("{}.{}", section, option.key);
    std::visit(
        [&](const auto* value) {
          if constexpr (requires { nlohmann::ordered_json(*value); }) out[key] = *value;
        },
        option.slot(config));
  }
  return out;
}

std::string tensors_text(const ObjectiveResult& result) {
  std::vector<std::string> names = {"loss"};
  for (const OutputTensor& tensor : result.tensors) names.push_back(tensor.name);
  return list_of(names);
}

}  // namespace

std::span<const std::string> objective_names() {
  static const std::vector<std::string> kNames = {
      "ppo", "grpo", "dr-grpo", "reinforce++", "reinforce++-baseline", "rloo", "dpo", "reward"};
  return kNames;
}

ObjectiveReplay replay_objective(const ObjectiveRequest& request) {
  check_name(request.name);
  config::RunConfig config = config_of(request);
  check_place(request);
  const Inputs inputs(request.in, input_names(request.name));
  const ObjectiveResult result = request.name == "dpo"      ? replay_dpo(inputs, config.dpo)
                                 : request.name == "reward" ? replay_reward(inputs)
                                                            : replay_rl(inputs, config.rl);
  write(request, result);
  check_result(request, result);
  ObjectiveReplay replay;
  replay.loss = result.loss;
  if (const std::vector<std::string> unused = inputs.unused(); !unused.empty())
    replay.notes.push_back(fmt::format("{}: not used: {}", inputs.file(), list_of(unused)));
  replay.text = fmt::format("loss       {:.9g}\n{}wrote      {}: {}", result.loss, result.text,
                            request.out.string(), tensors_text(result));
  nlohmann::ordered_json json = {{"objective", request.name}, {"loss", result.loss}};
  json.update(result.json);
  json["settings"] = settings_of(request.name, config);
  json["out"] = request.out.string();
  replay.json = json.dump();
  return replay;
}

}  // namespace mantissa::lab
