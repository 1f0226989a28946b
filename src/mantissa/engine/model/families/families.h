// The families, one definition per file of this folder, and their list.
#pragma once

#include "mantissa/engine/model/family.h"

namespace mantissa::model {

extern const Family kLlama, kMistral, kPhi3, kQwen2, kQwen3, kQwen3Moe, kMixtral, kOlmo2, kOlmoe, kSmolLm3,
    kStableLm, kGranite, kGlm, kGlm4, kGemma2, kGemma3, kGpt2, kRwkv7;

/// All of them, in the order of messages and docs.
inline constexpr const Family* kFamilies[] = {
    &kLlama,   &kMistral,  &kMixtral, &kPhi3, &kQwen2, &kQwen3,  &kQwen3Moe, &kOlmo2, &kOlmoe,
    &kSmolLm3, &kStableLm, &kGranite, &kGlm,  &kGlm4,  &kGemma2, &kGemma3,   &kGpt2,  &kRwkv7,
};

}  // namespace mantissa::model
