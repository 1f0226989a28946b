// The registered optimizers, one definition per file, and updates that several of them use.
#pragma once

#include "mantissa/engine/optim/optimizer.h"

namespace mantissa::optim {

extern const Optimizer kAdamW, kAdam, kSgd, kLion, kAdafactor, kMuon, kScheduleFreeAdamW, kAdEmaMix, kAdan;

/// AdamW's update. Its settings are betas, eps and weight_decay.
void update_by_adamw(ParameterUpdate& p);

}  // namespace mantissa::optim
