// The ops, one definition per file of this folder, and their list.
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
extern const OpDef kRoute, kRouteGrad, kExperts, kExpertsDx, kExpertsDw;
extern const OpDef kCombine, kCombineDx, kCombineDweights;
extern const OpDef kExpertShares, kBalance, kBalanceDlogits;
extern const OpDef kRecurrence, kRecurrenceGrad, kRecurrenceDecode, kRecurrenceCarry;
extern const OpDef kTokenShift, kTokenShiftDx, kTokenShiftDmix, kTokenShiftDecode, kTokenShiftCarry;
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
extern const OpDef kDropout, kDropoutGrad;
extern const OpDef kSum, kSumUses, kAccumulate;
extern const OpDef kCast, kRound, kRoundKv, kStoreScaled;
extern const OpDef kFused;
extern const OpDef kLogProb, kLogProbGrad, kLogProbTraining;
extern const OpDef kCacheAppend;
extern const OpDef kUpdate, kReduce, kProduct;

/// All of them, in the order of tables. One family a line.
// clang-format off
inline constexpr const OpDef* kOps[] = {
    &kMatmul, &kMatmulDx, &kMatmulDw,
    &kRmsNorm, &kRmsNormDx, &kRmsNormDgain,
    &kLayerNorm, &kLayerNormDx, &kLayerNormDgain,
    &kTokenSum,
    &kRope, &kRopeGrad,
    &kAttention, &kAttentionGrad,
    &kRoute, &kRouteGrad,
    &kExperts, &kExpertsDx, &kExpertsDw,
    &kCombine, &kCombineDx, &kCombineDweights,
    &kExpertShares, &kBalance, &kBalanceDlogits,
    &kRecurrence, &kRecurrenceGrad, &kRecurrenceDecode, &kRecurrenceCarry,
    &kTokenShift, &kTokenShiftDx, &kTokenShiftDmix, &kTokenShiftDecode, &kTokenShiftCarry,
    &kRwkvKeys, &kRwkvKeysGrad, &kRwkvOutput, &kRwkvOutputGrad,
    &kGather, &kGatherDtable, &kGatherAddRows,
    &kSelect, &kSelectDx,
    &kPositions,
    &kSplit, &kSplitGrad,
    &kConcat, &kConcatGrad,
    &kAdd,
    &kMul, &kMulDx,
    &kRowNorms, &kMagnitude, &kMagnitudeDz, &kMagnitudeDm,
    &kScale.forward, &kScale.gradient,
    &kReluSquared.forward, &kReluSquared.gradient,
    &kSwiglu.forward, &kSwiglu.gradient,
    &kGeluTanh.forward, &kGeluTanh.gradient,
    &kGegluTanh.forward, &kGegluTanh.gradient,
    &kGeluErf.forward, &kGeluErf.gradient,
    &kQuickGelu.forward, &kQuickGelu.gradient,
    &kTanh.forward, &kTanh.gradient,
    &kSigmoid.forward, &kSigmoid.gradient,
    &kDecay.forward, &kDecay.gradient,
    &kLerp.forward, &kLerp.gradient,
    &kSoftCap.forward, &kSoftCap.gradient,
    &kDropout, &kDropoutGrad,
    &kSum, &kSumUses, &kAccumulate,
    &kCast, &kRound, &kRoundKv, &kStoreScaled,
    &kFused,
    &kLogProb, &kLogProbGrad, &kLogProbTraining,
    &kCacheAppend,
    &kUpdate, &kReduce, &kProduct,
};
// clang-format on

}  // namespace mantissa::graph
