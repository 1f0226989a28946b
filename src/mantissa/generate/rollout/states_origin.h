// The model and policy that states of a sequence belong to.
#pragma once

#include <string>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::rollout {

/// Where a file of states comes from. Its states are meaningful only to the same model under the same policy.
struct StatesOrigin {
  std::string model;   // hashes of its weights, and of its network, adapter and base
  std::string policy;  // its name, or with rules its line
};

/// Reads all weights once, for their hash: the same model has one in each kind of file. Throws ConfigError
/// for a model without weights.
StatesOrigin origin_of(const weights::ModelSource& source, const precision::Policy& policy,
                       const runtime::Device& device);

/// Returns StatesOrigin::policy.
std::string name_of(const precision::Policy& policy);

}  // namespace mantissa::rollout
