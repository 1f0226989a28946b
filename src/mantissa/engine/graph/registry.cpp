// The list of all ops, used by tests, explain, benchmarks and the gradient checker.
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/op.h"
#include "mantissa/engine/graph/ops/ops.h"

namespace mantissa::graph {

std::span<const OpDef* const> all_ops() {
  // One family a line.
  // clang-format off
  static constexpr const OpDef* kOps[] = {
      &kMatmul, &kMatmulDx, &kMatmulDw,
      &kRmsNorm, &kRmsNormDx, &kRmsNormDgain,
      &kLayerNorm, &kLayerNormDx, &kLayerNormDgain,
      &kTokenSum,
      &kRope, &kRopeGrad,
      &kAttention, &kAttentionGrad,
      &kRecurrence, &kRecurrenceGrad, &kRecurrenceDecode,
      &kTokenShift, &kTokenShiftDx, &kTokenShiftDmix, &kTokenShiftDecode,
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
      &kSum, &kSumUses, &kAccumulate,
      &kCast, &kRound, &kRoundKv, &kStoreScaled,
      &kFused,
      &kLogProb, &kLogProbGrad, &kLogProbTraining,
      &kCacheAppend,
      &kUpdate, &kReduce, &kProduct,
  };
  // clang-format on
  return kOps;
}

const OpDef& find_op(std::string_view id) {
  for (const OpDef* op : all_ops()) {
    if (op->id == id) return *op;
  }
  throw InternalError("no op \"{}\" is registered", id);
}

}  // namespace mantissa::graph
