#include "mantissa/kernels/balance.h"

#include <vector>

#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/rows/balance.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/rows/router-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

template <class T>
void BalanceIn(const Balance& b, std::size_t begin, std::size_t end) {
  const auto experts = static_cast<std::size_t>(b.experts);
  std::vector<T> l(experts), e(experts), share(experts);
  const auto scale = static_cast<T>(static_cast<double>(b.experts) / static_cast<double>(b.logits.size()));
  for (std::size_t t = begin; t < end; ++t) {
    LoadRow(b.share.data, b.share.type, At(b.share, t), experts, share.data());
    T total = 0;
    for (const ConstMatrix& logits : b.logits) {
      const T sum = Exponentials(logits, Scalar::f64, t, l, e);
      LaneSum<T> product;
      product.AddProduct(share.data(), e.data(), experts);
      total += product.Total() / sum;
    }
    total *= scale;
    StoreRow(&total, 1, b.balance.data, b.balance.type, At(b.balance, t));
  }
}

void BalanceRange(const Balance& b, std::size_t begin, std::size_t end) {
  b.share.type == Scalar::f64 ? BalanceIn<double>(b, begin, end) : BalanceIn<float>(b, begin, end);
}

template <class T>
void BalanceBackwardIn(const BalanceBackward& b, std::size_t begin, std::size_t end) {
  const auto experts = static_cast<std::size_t>(b.experts);
  std::vector<T> l(experts), e(experts), share(experts), dl(experts);
  for (std::size_t t = begin; t < end; ++t) {
    T g = 0;
    LoadRow(b.dbalance.data, b.dbalance.type, At(b.dbalance, t), 1, &g);
    g *= static_cast<T>(b.factor);
    LoadRow(b.share.data, b.share.type, At(b.share, t), experts, share.data());
    const T sum = Exponentials(b.logits, Scalar::f64, t, l, e);
    LaneSum<T> product;
    product.AddProduct(share.data(), e.data(), experts);
    const T mean = product.Total() / sum;
    for (std::size_t i = 0; i < experts; ++i) dl[i] = g * (e[i] / sum) * (share[i] - mean);
    StoreRow(dl.data(), experts, b.dlogits.data, b.dlogits.type, At(b.dlogits, t));
  }
}

void BalanceBackwardRange(const BalanceBackward& b, std::size_t begin, std::size_t end) {
  b.share.type == Scalar::f64 ? BalanceBackwardIn<double>(b, begin, end)
                              : BalanceBackwardIn<float>(b, begin, end);
}

void StoreShares(const double* shares, std::size_t experts, Matrix to, std::size_t token) {
  StoreRow(shares, experts, to.data, to.type, At(to, token));
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(BalanceRange);
HWY_EXPORT(BalanceBackwardRange);
HWY_EXPORT(StoreShares);

void expert_shares(const Context& ctx, const Extent& extent, const ExpertShares& s) {
  const auto store = HWY_DISPATCH_TABLE(StoreShares)[ctx.target()];
  const auto experts = static_cast<std::size_t>(s.experts);
  for_row_ranges(ctx, std::ssize(extent.rows), kTaskElements, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      const Row& row = extent.rows[r];
      std::vector<double> share(experts);
      for (const std::int32_t* const of : s.choices) {
        const std::span chosen(of + row.begin * s.chosen, static_cast<std::size_t>(row.length * s.chosen));
        for (const std::int32_t e : chosen) ++share[static_cast<std::size_t>(e)];
      }
      const auto all = static_cast<double>(row.length) * static_cast<double>(s.choices.size());
      for (double& x : share) x /= all;
      for (std::int64_t t = row.begin; t < row.begin + row.length; ++t)
        store(share.data(), experts, s.share, static_cast<std::size_t>(t));
    }
  });
}

void balance(const Context& ctx, std::int64_t tokens, const Balance& b) {
  const auto run = HWY_DISPATCH_TABLE(BalanceRange)[ctx.target()];
  for_row_ranges(ctx, tokens, b.experts * 8 * std::ssize(b.logits),
                 [&](std::size_t begin, std::size_t end) { run(b, begin, end); });
}

void balance_backward(const Context& ctx, std::int64_t tokens, const BalanceBackward& b) {
  const auto run = HWY_DISPATCH_TABLE(BalanceBackwardRange)[ctx.target()];
  for_row_ranges(ctx, tokens, b.experts * 8, [&](std::size_t begin, std::size_t end) { run(b, begin, end); });
}

}  // namespace mantissa::kernels
#endif
