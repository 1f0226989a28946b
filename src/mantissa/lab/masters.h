// The masters of a model at one step, from a trainer or from files, and the distance between two of them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/core/numeric/format.h"
#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::lab {

struct MasterTensor {
  std::string name;
  Scalar type = Scalar::f32;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keep;  // keeps `bytes` alive
};
using Masters = std::vector<MasterTensor>;

/// Copies the masters of a trainer to the host's memory.
Masters copy_masters(train::Trainer& trainer);

/// Returns the masters of rank `root` on every rank. All call it; those of the others are not used.
Masters masters_of_rank(comm::Communicator& ranks, Masters own, int root);

/// Maps the floating-point tensors of a safetensors file or a model directory whose names begin with
/// `prefix`, under the rest of their names. Throws FileError.
Masters map_masters(const std::filesystem::path& path, std::string_view prefix = {});

/// Returns ‖a − b‖ over all elements, in f64, or null if the names or the numbers of elements differ.
std::optional<double> distance(const Masters& a, const Masters& b, const runtime::Device& device);

}  // namespace mantissa::lab
