// The measurements of a run as the bytes of a message between ranks.
#pragma once

#include <cstddef>
#include <span>

#include "mantissa/engine/comm/bytes.h"
#include "mantissa/lab/compare/compare.h"

namespace mantissa::lab {

/// Returns what training measures, without what a plan tells before and judge() computes after it.
comm::Bytes bytes_of(const ComparedRun& run);
/// Sets what bytes_of() has written.
void set_measurements(ComparedRun& run, std::span<const std::byte> bytes);

}  // namespace mantissa::lab
