// Continuations of prompts by a model that is loaded for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/generate/rollout/generate.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::rollout {

/// Returns the ids that end a text: eos_token_id, one or several, of the model's generation_config.json or,
/// without it, of config.json. Throws FileError if generation_config.json is not JSON.
std::vector<std::int32_t> stop_ids(const weights::ModelSource& source);

/// Returns compile_decode() for as many sequences, up to `streams`, as fit `bytes` with the weights as the
/// program reads them from `source`, at least one.
std::shared_ptr<const plan::Program> compile_decode_within(std::size_t bytes,
                                                           const weights::ModelSource& source,
                                                           const precision::Policy& policy,
                                                           std::int64_t capacity, std::int64_t streams,
                                                           const runtime::Device& device);

/// Returns true if a sequence depends on those that are decoded with it, and on how its prompt is split into
/// steps: under a policy with scales of whole tensors (scaling=current).
bool depends_on_others(const weights::ModelSource& source, const precision::Policy& policy,
                       const runtime::Device& device);

/// Loads the weights of `source` and continues each prompt, up to `streams` sequences at once, or fewer if
/// the machine's memory is short. Throws as generate() does, and ConfigError if a rule of `policy` matches
/// nothing.
///
/// `ranks` share the prompts, if they are several, and all call it alike: each continues an equal part, and
/// receives what all have, without states and, if an interrupt came first, without tokens. Under a policy
/// with scales of whole tensors (scaling=current), by which sequences depend on each other, the first one
/// continues all.
std::vector<Generation> complete(const weights::ModelSource& source, const precision::Policy& policy,
                                 std::span<const Request> requests, const GenerateOptions& options,
                                 std::int64_t streams, const runtime::Device& device,
                                 comm::Communicator* ranks = nullptr);

}  // namespace mantissa::rollout
