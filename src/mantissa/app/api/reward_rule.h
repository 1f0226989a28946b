// A reward function of a program that uses the library, as a rule of rl.
#pragma once

#include "mantissa/app/api/reward.h"
#include "mantissa/train/rl/task.h"

namespace mantissa::api {

/// Returns what makes the rule; null for no function. The rule throws RunStopped if the function returns
/// another number of rewards, or a number that is not finite as f32.
rl::MakeRule rule_of(const RewardFunction& function);

}  // namespace mantissa::api
