// The device of tests that are not about it.
#pragma once

#include "mantissa/engine/runtime/device.h"

namespace mantissa::testing {

/// One thread of the plainest instruction set.
inline const runtime::Device& plain_device() {
  static const std::shared_ptr<const runtime::Device> device = runtime::cpu({});
  return *device;
}

/// One thread of this machine's best instruction set.
inline const runtime::Device& best_device() {
  static const std::shared_ptr<const runtime::Device> device = runtime::cpu({.simd = kernels::best_simd()});
  return *device;
}

}  // namespace mantissa::testing
