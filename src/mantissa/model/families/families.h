// The families, one definition per file of this folder.
#pragma once

#include "mantissa/model/family.h"

namespace mantissa::model {

extern const Family kLlama, kMistral, kQwen2, kQwen3, kGemma2, kGemma3, kGpt2;

}  // namespace mantissa::model
