// A problem of the fused head, with its results by any of the passes.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/row_testing.h"
#include "mantissa/kernels/head.h"

namespace mantissa::kernels::testing {

inline constexpr std::int64_t kChannels = 8;

struct Head {
  Scalar arithmetic;
  std::int64_t vocabulary;
  Batch batch;
  Tensor x, weight, d, e;
  std::vector<std::int32_t> ids;
  Scalar softmax = Scalar::f64;
  Scalar rounded = Scalar::f32;  // format of the logits; f32: no rounding
  double soft_cap = 0;
  double l2wrap = 0;
  double z_loss = 0;
  bool differentiates_entropy = false;  // with the upstream gradient `e`
  Factor operand;                       // of dlogits, and of x and the weights as well if in several parts
  SumOrder order = SumOrder::chain;

  Head(Scalar a, Scalar storage, std::int64_t v, const Batch& b)
      : arithmetic(a),
        vocabulary(v),
        batch(b),
        x(storage, b.tokens, kChannels),
        weight(storage, v, kChannels),
        d(a, b.tokens, 1),
        e(a, b.tokens, 1),
        operand(a) {
    std::mt19937 random(kSeed);
    x.fill_normal(random);
    weight.fill_normal(random);
    d.fill_normal(random);
    e.fill_normal(random);
    for (std::int64_t t = 0; t < b.tokens; ++t)
      ids.push_back(t % 5 == 4 ? -1 : static_cast<std::int32_t>((t * 397 + v - 1) % v));
  }
  /// Returns log_prob, lse, entropy, dx, dweight: from two calls, or if `joined` from one, which computes the
  /// entropy only if it is differentiated. The last two are in the arithmetic, or if `before` is given, in
  /// its format and added to it. With l2wrap the entries of the largest logits follow.
  std::vector<Tensor> run(Context ctx, const Tensor* before = nullptr, bool joined = false,
                          std::int64_t longest_leaf = 0) const {
    const Scalar gradients = before == nullptr ? arithmetic : before->type;
    const Extent extent = batch.extent();
    const std::int64_t tokens = batch.tokens, leaf = longest_leaf == 0 ? tokens : longest_leaf;
    std::vector<std::byte> work(
        64 +
        (joined ? log_prob_training_workspace(ctx, tokens, leaf, kChannels, vocabulary, arithmetic, gradients,
                                              gradients, operand.parts)
                : std::max(
                      log_prob_workspace(ctx, tokens, leaf, kChannels, vocabulary, arithmetic, operand.parts),
                      log_prob_backward_workspace(ctx, tokens, leaf, kChannels, vocabulary, arithmetic,
                                                  gradients, gradients, operand.parts))));
    void* begin = work.data();
    std::size_t space = work.size();
    ctx.workspace = static_cast<std::byte*>(std::align(64, work.size() - 63, begin, space));
    ctx.workspace_bytes = work.size() - 64;
    std::vector<Tensor> out(3, Tensor(arithmetic, batch.tokens, 1));
    out.emplace_back(gradients, batch.tokens, kChannels);
    out.push_back(before == nullptr ? Tensor(arithmetic, vocabulary, kChannels) : *before);
    const auto factor = [&](const Tensor& t) { return operand.parts > 1 ? operand : Factor(t.type); };
    if (l2wrap != 0) out.emplace_back(arithmetic, batch.tokens, 1);
    LogProb f{
        kChannels, vocabulary, {x, factor(x), false}, {weight, factor(weight), false}, ids.data(), out[0],
        out[1],    out[2]};
    f.accumulator.order = order;
    f.softmax = softmax;
    f.rounded = rounded;
    f.soft_cap = soft_cap;
    LogProbBackward g;
    if (l2wrap != 0) {
      f.top = out[5];
      g.top = out[5];
      g.l2wrap = l2wrap;
    }
    if (!joined) log_prob(ctx, extent, f);
    g.channels = kChannels;
    g.vocabulary = vocabulary;
    g.x = f.x;
    g.weight = f.weight;
    g.ids = ids.data();
    g.lse = out[1];
    g.dlog_prob = d;
    g.operand = operand;
    g.accumulator.order = order;
    g.softmax = softmax;
    g.rounded = rounded;
    g.soft_cap = soft_cap;
    g.z_loss = z_loss;
    g.dx = out[3];
    g.dweight = out[4];
    g.accumulate = before != nullptr;
    if (differentiates_entropy) {
      g.entropy = out[2];
      g.dentropy = e;
    } else if (joined) {
      f.entropy.data = nullptr;
    }
    joined ? log_prob_training(ctx, extent, f, g) : log_prob_backward(ctx, extent, g);
    return out;
  }
};

}  // namespace mantissa::kernels::testing
