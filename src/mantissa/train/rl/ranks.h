// Rollouts that several ranks share: each samples a part of the responses, the first one scores them all.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/generate/rollout/generate.h"
#include "mantissa/text/reward/rule.h"

namespace mantissa::rl {

/// Calls `work` on every rank. If it stops on some, every rank throws the RunStopped of the lowest of them.
void on_all(comm::Communicator& ranks, const std::function<void()>& work);

/// Returns the generations of all ranks, in their order, without states.
std::vector<rollout::Generation> gathered(comm::Communicator& ranks,
                                          const std::vector<rollout::Generation>& own);

/// Returns a rule that the first rank applies for all: a reward program runs once. `rule` is null on the
/// others. Every rank must score the same samples; the rule's errors are those of every rank.
std::unique_ptr<reward::Rule> shared_rule(comm::Communicator& ranks, std::unique_ptr<reward::Rule> rule);

}  // namespace mantissa::rl
