// The ops of the registry, one definition per file of this folder.
#pragma once

#include "mantissa/graph/op.h"

namespace mantissa::graph {

extern const OpDef kMatmul, kMatmulDx, kMatmulDw;
extern const OpDef kRmsNorm, kRmsNormDx, kRmsNormDgain;
extern const OpDef kTokenSum;
extern const OpDef kRope, kRopeGrad;
extern const OpDef kAttention, kAttentionGrad;
extern const OpDef kGather, kGatherDtable, kGatherAddRows, kSelect, kSelectDx;
extern const OpDef kAdd, kSwiglu, kSwigluGrad, kSum, kSumUses, kAccumulate, kCast, kRound, kRoundKv, kFused;
extern const OpDef kQuantize;
extern const OpDef kLogProb, kLogProbGrad, kLogProbTraining;
extern const OpDef kCacheAppend;

}  // namespace mantissa::graph
