#include "mantissa/eval/row_model.h"

#include <fmt/format.h>

#include <cmath>

#include "mantissa/kernels/update.h"
#include "mantissa/runtime/nonfinite.h"

namespace mantissa::eval {

namespace {

double weighted_sum(const kernels::Context& ctx, const Matrix& log_prob, const float* weights,
                    std::int64_t count) {
  std::vector<double> all(static_cast<std::size_t>(count));
  kernels::cast(ctx, count, log_prob.data, log_prob.type, all.data(), Scalar::f64);
  for (std::size_t t = 0; t < all.size(); ++t)
    all[t] = weights[t] == 0 ? 0 : static_cast<double>(weights[t]) * all[t];
  return kernels::chunked_sum(all.data(), Scalar::f64, count);
}

}  // namespace

plan::CompileOptions row_options(std::int64_t length) {
  plan::CompileOptions options;
  options.longest_row = options.longest_leaf = length;
  return options;
}

RowModel::RowModel(const plan::Program& program, const weights::ModelSource& source,
                   const kernels::Context& ctx, std::string what)
    : what_(std::move(what)),
      weights_(weights::open_weights(program, source, ctx)),
      executor_(program, weights_, ctx) {}

double RowModel::run(const text::StepData& rows, std::int64_t r) {
  const std::int64_t length = rows.sequence_length;
  const std::span<std::int32_t> ids = executor_.integers("ids"), targets = executor_.integers("targets");
  for (std::int64_t t = 0; t < length; ++t) {
    ids[static_cast<std::size_t>(t)] = rows.ids[static_cast<std::size_t>(r * (length + 1) + t)];
    targets[static_cast<std::size_t>(t)] = rows.target(r, t);
  }
  runtime::Batch batch(1, length, 1);
  batch.key(0, static_cast<std::uint64_t>(r));
  const auto forward = [&] { executor_.run(graph::Phase::forward, batch.extent()); };
  forward();
  const Matrix log_prob = executor_.buffer("log_prob");
  const double sum =
      rows.weighted() ? weighted_sum(executor_.context(), log_prob, rows.weights.data() + r * length, length)
                      : kernels::chunked_sum(log_prob.data, log_prob.type, length);
  if (std::isfinite(sum) || executor_.stop.stop_requested()) return sum;
  runtime::stop_non_finite(fmt::format("{} row {} is {}", what_, r, runtime::unsigned_nan(-sum)),
                           runtime::find_first_non_finite(executor_, r, forward), executor_.program());
}

}  // namespace mantissa::eval
