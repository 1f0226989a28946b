// The registered ops, one definition per file of this folder.
#pragma once

#include "mantissa/engine/graph/op.h"

namespace mantissa::graph {

/// An op, and the op that its gradient rule emits.
struct OpWithGradient {
  OpDef forward, gradient;
};

extern const OpDef kMatmul, kMatmulDx, kMatmulDw;
extern const OpDef kRmsNorm, kRmsNormDx, kRmsNormDgain;
extern const OpDef kLayerNorm, kLayerNormDx, kLayerNormDgain;
extern const OpDef kTokenSum;
extern const OpDef kRope, kRopeGrad;
extern const OpDef kAttention, kAttentionGrad;
extern const OpDef kRecurrence, kRecurrenceGrad, kRecurrenceDecode;
extern const OpDef kTokenShift, kTokenShiftDx, kTokenShiftDmix, kTokenShiftDecode;
extern const OpDef kRwkvKeys, kRwkvKeysGrad, kRwkvOutput, kRwkvOutputGrad;
extern const OpDef kGather, kGatherDtable, kGatherAddRows, kSelect, kSelectDx;
extern const OpDef kPositions;
extern const OpDef kSplit, kSplitGrad, kConcat, kConcatGrad;
extern const OpDef kAdd, kMul, kMulDx;
extern const OpDef kRowNorms, kMagnitude, kMagnitudeDz, kMagnitudeDm;
extern const OpWithGradient kScale;
extern const OpWithGradient kReluSquared, kSwiglu, kGeluTanh, kGegluTanh, kGeluErf, kQuickGelu;
extern const OpWithGradient kTanh, kSigmoid, kDecay, kLerp;
extern const OpWithGradient kSoftCap;
extern const OpDef kSum, kSumUses, kAccumulate;
extern const OpDef kCast, kRound, kRoundKv, kStoreScaled;
extern const OpDef kFused;
extern const OpDef kLogProb, kLogProbGrad, kLogProbTraining;
extern const OpDef kCacheAppend;
extern const OpDef kUpdate, kReduce, kProduct;

}  // namespace mantissa::graph
