// Work that ranks share in one process: its threads are the ranks.
#pragma once

#include <functional>
#include <memory>

#include "mantissa/engine/comm/communicator.h"

namespace mantissa::comm {

/// Calls body(communicator) on `count` ranks: the first one on this thread, the others on threads of their
/// own. Returns when all have ended. Throws the error of the lowest rank that has one of its own.
void on_thread_ranks(int count, const std::function<void(const std::shared_ptr<Communicator>&)>& body);

}  // namespace mantissa::comm
