// The rows of a step, micro-batch by micro-batch, on every rank.
#include <algorithm>
#include <optional>
#include <vector>

#include "mantissa/train/steps/shared_row_objective.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::train {
namespace {

/// Calls each(row) for what ranks share of items [first, end): rows, or packs as rows with documents.
template <class Each>
void for_shared(const text::StepData& data, std::int64_t first, std::int64_t end, bool packs,
                const Each& each) {
  for (std::int64_t item = first; item < end; ++item) {
    std::vector<std::int32_t> ids, targets;
    std::vector<float> weights;
    std::vector<std::int64_t> documents;
    for (std::int64_t r = data.item_row(item); r < data.item_row(item + 1); ++r) {
      const RowTokens row = data.row(r);
      if (!packs) {
        each(row);
        continue;
      }
      ids.insert(ids.end(), row.ids.begin(), row.ids.end());
      targets.insert(targets.end(), row.targets.begin(), row.targets.end());
      weights.insert(weights.end(), row.weights.begin(), row.weights.end());
      weights.resize(ids.size(), 1);
      documents.insert(documents.end(), row.documents.begin(), row.documents.end());
      if (row.documents.empty()) documents.push_back(std::ssize(row.ids));
    }
    if (packs) each(RowTokens{ids, targets, weights, documents, data.row(data.item_row(item)).sequence});
  }
}

/// Calls a function after every step of an executor while it lives.
class AfterSteps {
 public:
  template <class Call>
  AfterSteps(runtime::Executor& executor, const Call& call) : executor_(executor) {
    executor.after_step = call;
  }
  ~AfterSteps() { executor_.after_step = {}; }
  AfterSteps(const AfterSteps&) = delete;
  AfterSteps& operator=(const AfterSteps&) = delete;

 private:
  runtime::Executor& executor_;
};

}  // namespace

void Trainer::start_sums(std::size_t step) {
  for (const plan::Completion& c : completions_) {
    if (c.written != step) continue;
    shard_sum_->add_early(device_.host(), c.gradient, gradients()[c.gradient], reduced_);
    if (c.last) shard_sum_->start(device_.serial(), ranks_, reduced_);
  }
}

void Trainer::finish_shard(std::int64_t shard) {
  session_->run(graph::Phase::finish, batch_.extent());
  if (streams()) return;
  const std::int64_t leaf = shard * row_parts() + ranks_.rank() % row_parts();
  shard_sum_->add(device_.host(), gradients(), leaf, reduced_);
}

WholeRows Trainer::whole_rows(const text::StepData& data, std::int64_t item) {
  const std::int64_t end = std::min(item + stage_config().batch.micro_batch_size, data.items());
  whole_.clear();
  for (std::int64_t r = data.item_row(item); r < data.item_row(end); ++r) whole_.add(data.row(r));
  WholeRows whole{{whole_, data.item_row(item)}, {}};
  for_shared(data, item, end, stage_config().data.packing,
             [&](const RowTokens& row) { whole.lengths.push_back(std::ssize(row.ids)); });
  return whole;
}

objective::MicroBatch Trainer::micro_batch(const text::StepData& data, std::int64_t item) {
  const std::int64_t end = std::min(item + stage_config().batch.micro_batch_size, data.items());
  batch_.clear();
  const bool packs = ring_ && stage_config().data.packing;
  first_row_ = packs ? item : data.item_row(item);
  if (!ring_) {
    for (std::int64_t r = first_row_; r < data.item_row(end); ++r) batch_.add(data.row(r));
    return {batch_, first_row_};
  }
  std::vector<SharedRow> shared;
  for_shared(data, item, end, packs, [&](const RowTokens& row) {
    batch_.add_part(row, ring_->part(), ring_->parts());
    shared.push_back({std::ssize(row.ids), {row.documents.begin(), row.documents.end()}});
  });
  ring_->set_rows(shared);
  return {batch_, first_row_};
}

bool Trainer::run_share(const text::StepData& data, objective::Objective& of_rows, objective::Pass pass,
                        const std::stop_token& stop, bool together) {
  std::int64_t item = 0;
  SharedRowObjective of_parts(of_rows, ranks_, row_parts(), [&] { return whole_rows(data, item); });
  objective::Objective& objective = ring_ ? of_parts : of_rows;
  const bool train = pass == objective::Pass::train;
  const bool transfers = !program().gathers.empty() || streams();
  const bool shares = (together || transfers) && !ranks_.alone();
  weights_->scales().record(train);
  if (train) carried_.give(*session_);
  objective.begin({.total_weight = data.total_weight(), .loss_scale = scale(), .tokens = data.tokens()});
  const std::int64_t micro = stage_config().batch.micro_batch_size, items = data.items();
  const std::int64_t shard = items / config_.batch.shards;
  const Share own = share_of(group(), groups(), items, train ? shard : micro);
  const Share most = share_of(groups() - 1, groups(), items, train ? shard : micro);  // the largest one
  const std::int64_t count = own.end - own.first,
                     longest = shares ? std::max(count, most.end - most.first) : count;
  for (std::int64_t done = 0; done < longest; done += micro) {
    // Neighbouring shards at the same time if their gradients leave at once.
    const bool turns = train && streams();
    item = turns ? done * groups() + group() * micro : own.first + done;
    const bool runs = done < count;
    // The sums of a block's gradients are added while the last backward phase goes on.
    const bool overlaps = train && together && !streams() && !ranks_.alone() && done + micro >= count;
    std::optional<AfterSteps> after;
    if (overlaps) {
      after.emplace(session_->executor(), [this](const plan::Step& s, const graph::Call&) {
        start_sums(static_cast<std::size_t>(&s - program().steps.data()));
      });
    }
    session_->set_stop(overlaps ? std::stop_token() : stop);  // other ranks count on the sums
    if (turns) shared_->streamed()->set_turn(done / micro);
    if (runs) {
      objective::run(*session_, micro_batch(data, item), objective, pass, train && item % shard > 0);
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
  objective.gather([&, item = -micro]() mutable { return whole_rows(data, item += micro); },
                   train && streams());
  return objective.end();
}

}  // namespace mantissa::train
