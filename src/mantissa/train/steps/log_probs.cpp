#include "mantissa/train/steps/log_probs.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "mantissa/engine/comm/bytes.h"
#include "mantissa/engine/runtime/batch.h"
#include "mantissa/setup/objective/preference.h"
#include "mantissa/train/steps/gathered_objective.h"

namespace mantissa::train {

std::vector<double> row_log_probs(const TokenValues& values, const text::StepData& rows) {
  std::vector<double> sums;
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    const std::span<const double> all = values.log_probs;
    sums.push_back(objective::masked_sum(
        all.subspan(static_cast<std::size_t>(rows.begin(r)), static_cast<std::size_t>(rows.length(r))),
        rows.row(r).weights));
  }
  return sums;
}

LogProbs::LogProbs(std::shared_ptr<const plan::Program> program, const config::RunConfig& config)
    : program_(std::move(program)),
      micro_batch_(config.batch.micro_batch_size),
      leaf_(config.batch.leaf),
      seed_(config.run.seed) {}

void LogProbs::bind(std::shared_ptr<runtime::WeightSet> weights, std::shared_ptr<runtime::Arena> arena) {
  session_.reset();
  if (weights != nullptr) session_.emplace(program_, std::move(weights), std::move(arena));
}

std::optional<TokenValues> LogProbs::of(const text::StepData& rows, const std::stop_token& stop) {
  if (ranks_ == nullptr || ranks_->alone()) return of_items(rows, 0, rows.items(), stop);
  const Share share = share_of(ranks_->rank(), ranks_->size(), rows.items(), micro_batch_);
  const std::optional<TokenValues> own = of_items(rows, share.first, share.end, stop);
  if (!own) return std::nullopt;
  const auto joined = [&](const std::vector<double>& values) {
    std::vector<double> all;
    for (const comm::Bytes& of_rank : ranks_->all_gather(std::as_bytes(std::span(values))))
      std::ranges::copy(comm::values_of<double>(of_rank), std::back_inserter(all));
    return all;
  };
  return TokenValues{joined(own->log_probs), joined(own->values)};
}

std::optional<TokenValues> LogProbs::of_items(const text::StepData& rows, std::int64_t first,
                                              std::int64_t last, const std::stop_token& stop) {
  session_->set_stop(stop);
  session_->weights().scales().record(false);
  TokenValues all;
  const bool has_log_probs = program_->find("log_prob") != plan::kNoBuffer,
             has_values = program_->find("value") != plan::kNoBuffer;
  runtime::Batch batch(leaf_, seed_);
  for (std::int64_t item = first; item < last; item += micro_batch_) {
    batch.clear();
    const std::int64_t end = rows.item_row(std::min(item + micro_batch_, last));
    for (std::int64_t r = rows.item_row(item); r < end; ++r) batch.add(rows.row(r));
    session_->feed(batch);
    session_->run(graph::Phase::forward, batch.extent());
    if (stop.stop_requested()) return std::nullopt;
    if (has_log_probs) {
      const runtime::Values log_probs = session_->read("log_prob", batch.tokens());
      for (std::size_t t = 0; t < log_probs.size(); ++t)
        all.log_probs.push_back(batch.targets()[t] < 0 ? 0 : log_probs[t]);
    }
    if (!has_values) continue;
    const runtime::Values values = session_->read("value", batch.tokens());
    for (std::size_t t = 0; t < values.size(); ++t) all.values.push_back(values[t]);
  }
  return all;
}

}  // namespace mantissa::train
