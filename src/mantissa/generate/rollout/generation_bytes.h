// Generations as the bytes of a message between ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "mantissa/engine/comm/bytes.h"
#include "mantissa/generate/rollout/generate.h"

namespace mantissa::rollout {

/// Return generations, without their states, as bytes and back.
comm::Bytes bytes_of(std::span<const Generation> generations);
std::vector<Generation> generations_of(std::span<const std::byte> bytes);

}  // namespace mantissa::rollout
