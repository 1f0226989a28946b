#include "mantissa/eval/row_model.h"

#include <fmt/format.h>

#include <cmath>

#include "mantissa/kernels/update.h"
#include "mantissa/runtime/nonfinite.h"

namespace mantissa::eval {

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
    const auto at = static_cast<std::size_t>(r * (length + 1) + t);
    ids[static_cast<std::size_t>(t)] = rows.ids[at];
    targets[static_cast<std::size_t>(t)] = rows.ids[at + 1];
  }
  runtime::Batch batch(1, length, 1);
  batch.key(0, static_cast<std::uint64_t>(r));
  const auto forward = [&] { executor_.run(graph::Phase::forward, batch.extent()); };
  forward();
  const Matrix log_prob = executor_.buffer("log_prob");
  const double sum = kernels::chunked_sum(log_prob.data, log_prob.type, length);
  if (std::isfinite(sum)) return sum;
  runtime::stop_non_finite(fmt::format("{} row {} is {}", what_, r, runtime::unsigned_nan(-sum)),
                           runtime::find_first_non_finite(executor_, r, forward), executor_.program());
}

}  // namespace mantissa::eval
