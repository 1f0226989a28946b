// Ranks that are threads of one process, which exchange messages in memory: what runs on many machines can be
// tested without them.
#pragma once

#include <memory>
#include <vector>

#include "mantissa/engine/comm/transport.h"

namespace mantissa::comm {

/// Returns a transport for each of `ranks` ranks. One that is destroyed has ended.
std::vector<std::unique_ptr<Transport>> thread_ranks(int ranks);

}  // namespace mantissa::comm
