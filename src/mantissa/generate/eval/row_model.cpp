#include "mantissa/generate/eval/row_model.h"

#include <fmt/format.h>

#include <cmath>

#include "mantissa/engine/runtime/nonfinite.h"
#include "mantissa/setup/objective/objective.h"

namespace mantissa::eval {

RowModel::RowModel(std::shared_ptr<const plan::Program> program, const weights::ModelSource& source,
                   const runtime::Device& device, std::string what)
    : what_(std::move(what)), session_(weights::open_session(std::move(program), source, device)) {}

double RowModel::run(const text::StepData& rows, std::int64_t r) {
  runtime::Batch batch;
  batch.add(rows.row(r));
  const std::unique_ptr<objective::Objective> objective = objective::pretraining();
  const auto forward = [&] {
    objective->begin({.total_weight = 1});
    objective::run(session_, {batch, r}, *objective, objective::Pass::evaluate);
  };
  forward();
  const double sum = -objective->end().loss;
  if (std::isfinite(sum) || session_.executor().stop.stop_requested()) return sum;
  runtime::stop_non_finite(fmt::format("{} row {} is {}", what_, r, runtime::unsigned_nan(-sum)),
                           runtime::find_first_non_finite(session_.executor(), r, forward),
                           session_.program());
}

runtime::Values RowModel::logits(const text::StepData& rows) const {
  const plan::Buffer& logits = session_.program().buffer(session_.program().required("logits"));
  return session_.read("logits", rows.sequence_length * logits.shape.last());
}

}  // namespace mantissa::eval
