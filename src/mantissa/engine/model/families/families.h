// The families, one definition per file of this folder.
#pragma once

#include "mantissa/engine/model/family.h"

namespace mantissa::model {

extern const Family kLlama, kMistral, kPhi3, kQwen2, kQwen3, kGemma2, kGemma3, kGpt2, kRwkv7;

}  // namespace mantissa::model
