// The rows of a step, micro-batch by micro-batch, on every rank.
#include <algorithm>
#include <vector>

#include "mantissa/train/steps/trainer.h"

namespace mantissa::train {

void Trainer::finish_shard(std::int64_t shard) {
  session_->run(graph::Phase::finish, batch_.extent());
  if (streams()) return;
  const std::int64_t leaf = shard * row_parts() + ranks_.rank() % row_parts();
  shard_sum_->add(device_.host(), gradients(), leaf, reduced_);
}

objective::MicroBatch Trainer::micro_batch(const text::StepData& data, std::int64_t item, bool whole) {
  const std::int64_t micro = stage_config().batch.micro_batch_size;
  first_row_ = data.item_row(item);
  const std::int64_t end = data.item_row(std::min(item + micro, data.items()));
  batch_.clear();
  std::vector<SharedRow> shared;
  for (std::int64_t r = first_row_; r < end; ++r) {
    const RowTokens row = data.row(r);
    if (whole || !ring_) {
      batch_.add(row);
      continue;
    }
    batch_.add_part(row, ring_->part(), ring_->parts());
    shared.push_back(
        {static_cast<std::int64_t>(row.ids.size()), {row.documents.begin(), row.documents.end()}});
  }
  if (!shared.empty()) ring_->set_rows(shared);
  return {batch_, first_row_};
}

bool Trainer::run_share(const text::StepData& data, objective::Objective& objective, objective::Pass pass,
                        const std::stop_token& stop, bool together) {
  const bool train = pass == objective::Pass::train;
  const bool transfers = !program().gathers.empty() || streams();
  const bool shares = (together || transfers) && !ranks_.alone();
  weights_->scales().record(train);
  if (train) carried_.give(*session_);
  objective.begin({.total_weight = data.total_weight(), .loss_scale = scale()});
  const std::int64_t micro = stage_config().batch.micro_batch_size, items = data.items();
  const std::int64_t shard = items / config_.batch.shards;
  const Share own = share_of(group(), groups(), items, train ? shard : micro);
  const Share most = share_of(groups() - 1, groups(), items, train ? shard : micro);  // the largest one
  const std::int64_t count = own.end - own.first,
                     longest = shares ? std::max(count, most.end - most.first) : count;
  for (std::int64_t done = 0; done < longest; done += micro) {
    // Neighbouring shards at the same time if their gradients leave at once.
    const bool turns = train && streams();
    const std::int64_t item = turns ? done * groups() + group() * micro : own.first + done;
    const bool runs = done < count;
    session_->set_stop(stop);
    if (turns) shared_->streamed()->set_turn(done / micro);
    if (runs) {
      objective::run(*session_, micro_batch(data, item, false), objective, pass, train && item % shard > 0);
    } else if (!program().gathers.empty()) {  // what the other ranks read
      session_->executor().run_transfers(graph::Phase::forward);
      session_->executor().run_transfers(train ? graph::Phase::backward : graph::Phase::evaluate);
    }
    const bool stopped = stop.stop_requested();
    if (shares ? ranks_.any(stopped) : stopped) return true;
    session_->set_stop({});  // what follows is complete: other ranks count on it
    if (runs && train && (item + micro) % shard == 0) finish_shard(item / shard);
  }
  return false;
}

std::optional<objective::Outcome> Trainer::run_rows(const text::StepData& data, objective::Pass pass,
                                                    const std::stop_token& stop) {
  const bool train = pass == objective::Pass::train;
  GatheredObjective objective(task_->objective(), ranks_, row_parts());
  compare_rows(data);
  if (train && streams()) shared_->streamed()->begin(step_ + 1, reduced_);
  if (train && !streams()) shard_sum_->begin(step_ + 1);
  stopped_ = run_share(data, objective, pass, stop, true);
  if (train && streams()) shared_->streamed()->begin(step_ + 1, {});  // a search for overflows counts nothing
  if (stopped_) return std::nullopt;
  if (train) {
    if (!streams()) shard_sum_->add_ranks(device_.serial(), gradients(), ranks_, reduced_);
    share_magnitudes();
    share_counts();
  }
  const std::int64_t micro = stage_config().batch.micro_batch_size;
  objective.gather([&, item = -micro]() mutable { return micro_batch(data, item += micro, true); },
                   train && streams());
  return objective.end();
}

}  // namespace mantissa::train
