#include "mantissa/lab/diff/run_differences.h"

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/io/state_header.h"

namespace mantissa::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLongestConfigText = std::uint64_t{1} << 20;

/// Appends the entries of a header that differ. Configs and models are compared elsewhere.
std::vector<MetricDifference> compare_progress(const io::StateHeader& a, const io::StateHeader& b) {
  nlohmann::json of_a = io::json_of_header(a), of_b = io::json_of_header(b);
  std::vector<MetricDifference> all;
  for (const char* key :
       {"step", "applied", "skipped", "tokens", "data_position", "loss", "seed", "rng", "scaler"}) {
    if (of_a[key] != of_b[key]) all.push_back({key, of_a[key], of_b[key]});
  }
  return all;
}

std::vector<std::int64_t> steps_without(const std::vector<io::FoundState>& states,
                                        const std::vector<io::FoundState>& others) {
  std::vector<std::int64_t> steps;
  for (const io::FoundState& state : states) {
    if (std::ranges::find(others, state.step, &io::FoundState::step) == others.end())
      steps.push_back(state.step);
  }
  return steps;
}

void compare_all_states(const fs::path& a, const fs::path& b, bool bitwise, const runtime::Device& device,
                        RunDifferences& result) {
  const std::vector<io::FoundState> states_a = io::find_states(a), states_b = io::find_states(b);
  result.only_a = steps_without(states_a, states_b);
  result.only_b = steps_without(states_b, states_a);
  for (const io::FoundState& state : states_a) {
    const auto other = std::ranges::find(states_b, state.step, &io::FoundState::step);
    if (other == states_b.end()) continue;
    StateDifferences found = compare_states(state.path, other->path, device);
    if (!found.equal(bitwise)) {
      result.state = std::move(found);
      return;
    }
    result.equal_states.push_back(state.step);
  }
}

convert::TensorDifferences compare_models(const fs::path& a, const fs::path& b,
                                          const runtime::Device& device) {
  const io::WeightFiles files_a(a), files_b(b);
  const auto names = [](const io::WeightFiles& files) {
    return names_of(files.tensors(), &io::TensorInfo::name);
  };
  return convert::compare_tensors({&files_a, names(files_a)}, {&files_b, names(files_b)},
                                  convert::ShapeRule::exact, device.host());
}

}  // namespace

bool RunDifferences::config_equal() const {
  return std::ranges::none_of(config, &ConfigDifference::counts);
}

bool RunDifferences::equal(bool bitwise) const {
  return config_equal() && (!metrics || metrics->equal()) && !state && model_in_a == model_in_b &&
         (!model || model->equal(bitwise));
}

std::vector<std::string> state_order(const io::WeightFiles& files) {
  std::vector<std::string> names = names_of(files.tensors(), &io::TensorInfo::name);
  std::ranges::stable_partition(names,
                                [](const std::string& name) { return name.starts_with(io::kMasterPrefix); });
  return names;
}

io::StateHeader read_state_header(const fs::path& state) {
  const fs::path file = state / "state.json";
  try {
    return io::open_sealed(io::read_json_file(file), file);
  } catch (const nlohmann::json::exception&) {
    throw FileError("{}: this state is damaged: an entry is missing or of the wrong type", file.string());
  }
}

StateDifferences compare_states(const fs::path& a, const fs::path& b, const runtime::Device& device) {
  const io::StateHeader header_a = read_state_header(a), header_b = read_state_header(b);
  const io::WeightFiles files_a(a / io::kStateTensors), files_b(b / io::kStateTensors);
  return {header_a.step, header_b.step, compare_progress(header_a, header_b),
          convert::compare_tensors({&files_a, state_order(files_a)}, {&files_b, state_order(files_b)},
                                   convert::ShapeRule::exact, device.host())};
}

RunDifferences compare_runs(const fs::path& a, const fs::path& b, bool bitwise,
                            const runtime::Device& device) {
  RunDifferences result;
  const fs::path config_a = a / "config.toml", config_b = b / "config.toml";
  if (disk::exists(config_a) && disk::exists(config_b)) {
    result.config = compare_configs(disk::read_text_file(config_a, kLongestConfigText), config_a,
                                    disk::read_text_file(config_b, kLongestConfigText), config_b);
  }
  const fs::path metrics_a = a / "metrics.jsonl", metrics_b = b / "metrics.jsonl";
  if (disk::exists(metrics_a) && disk::exists(metrics_b))
    result.metrics = compare_metrics(metrics_a, metrics_b);
  compare_all_states(a, b, bitwise, device, result);
  result.model_in_a = disk::exists(a / "model");
  result.model_in_b = disk::exists(b / "model");
  if (result.model_in_a && result.model_in_b) result.model = compare_models(a / "model", b / "model", device);
  return result;
}

}  // namespace mantissa::lab
