#include "mantissa/train/steps/gathered_objective.h"

#include <algorithm>
#include <span>
#include <utility>

namespace mantissa::train {

Share share_of(int rank, int ranks, std::int64_t items, std::int64_t part) {
  const std::int64_t parts = (items + part - 1) / part;
  const auto at = [&](int r) { return std::min(items, parts * r / ranks * part); };
  return {at(rank), at(rank + 1)};
}

void GatheredObjective::begin(const objective::Step& step) {
  step_ = step;
  objective_.begin(step);
}

void GatheredObjective::seeds(const objective::MicroBatch& micro, const objective::Outputs* outputs,
                              const objective::Seeds& seeds) {
  seeded_ = true;
  seeds_entropy_ = !seeds.entropy.empty();
  seeds_value_ = !seeds.value.empty();
  objective_.seeds(micro, outputs, seeds);
}

void GatheredObjective::observe(const objective::MicroBatch& micro, const objective::Outputs& outputs) {
  if (ranks_.alone()) return objective_.observe(micro, outputs);
  append_outputs(kept_, outputs);
}

void GatheredObjective::gather(const std::function<WholeRows()>& next, bool in_turns) {
  if (ranks_.alone()) return;
  objective_.begin(step_);
  std::vector<OutputReader> of_ranks;
  for (std::vector<std::byte>& bytes : ranks_.all_gather(kept_)) of_ranks.emplace_back(std::move(bytes));
  for (std::size_t rank = 0; rank < of_ranks.size();) {
    if (of_ranks[rank].at_end()) {
      rank += parts_;
      continue;
    }
    const auto [micro, lengths] = next();
    const objective::Outputs values =
        parts_ == 1 ? of_ranks[rank].next()
                    : joined_outputs(std::span(of_ranks).subspan(rank, parts_), lengths);
    if (in_turns) rank = (rank + parts_) % of_ranks.size();  // all have equally many
    if (seeded_ && !objective_.seeds_known()) {              // losses that are computed with the seeds
      const auto tokens = static_cast<std::size_t>(micro.batch.tokens());
      std::vector<double> log_prob(tokens), entropy(seeds_entropy_ ? tokens : 0),
          value(seeds_value_ ? tokens : 0);
      objective_.seeds(micro, &values, {log_prob, entropy, value});
    }
    objective_.observe(micro, values);
  }
  kept_.clear();
}

}  // namespace mantissa::train
