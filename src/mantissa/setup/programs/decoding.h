// The program that generates text with a key-value cache.
#pragma once

#include <cstdint>
#include <memory>

#include "mantissa/engine/model/config.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/device.h"

namespace mantissa::programs {

/// Returns the decoding program for `streams` sequences at once of up to `capacity` positions each.
std::shared_ptr<const plan::Program> compile_decode(const model::ModelConfig& config,
                                                    const precision::Policy& policy, std::int64_t capacity,
                                                    const runtime::Device& device, std::int64_t streams = 1);

}  // namespace mantissa::programs
