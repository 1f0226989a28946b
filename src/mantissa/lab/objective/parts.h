// The parts of a replay: one for objectives of responses, one for those of pairs.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mantissa/lab/objective/inputs.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::lab {

struct OutputTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<double> values;  // written as f32
};

/// The result of an objective.
struct ObjectiveResult {
  double loss = 0;
  std::vector<OutputTensor> tensors = {};  // without the loss
  nlohmann::ordered_json json = {};        // numbers for programs, in order
  std::string text = {};                   // lines for people
  std::string largest = {};                // the likely cause of a result that is not finite
};

/// Returns the names of the tensors that the objective `name` may use.
std::vector<std::string> input_names(const std::string& name);

/// Computes an objective of [rl], whose algorithm is set.
ObjectiveResult replay_rl(const Inputs& inputs, const config::RlSection& rl);
ObjectiveResult replay_dpo(const Inputs& inputs, const config::DpoSection& dpo);
ObjectiveResult replay_reward(const Inputs& inputs);

}  // namespace mantissa::lab
