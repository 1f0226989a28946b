#include "mantissa/setup/objective/pairs.h"

#include <algorithm>
#include <array>

#include "mantissa/core/base/error.h"

namespace mantissa::objective {
namespace {

class Dpo final : public PairObjective {
 public:
  explicit Dpo(const PreferenceSettings& settings) : settings_(settings) {}

 private:
  PairResult result(const MicroBatch& micro, const Outputs& outputs, const RowTokens& chosen,
                    const RowTokens& rejected) const override {
    PreferencePair pair{.chosen = answer_log_prob(micro, outputs, chosen.begin, chosen.length),
                        .rejected = answer_log_prob(micro, outputs, rejected.begin, rejected.length),
                        .chosen_tokens = tokens(micro, chosen),
                        .rejected_tokens = tokens(micro, rejected)};
    if (settings_.has_reference()) {
      pair.ref_chosen = data().reference.at(chosen.number);
      pair.ref_rejected = data().reference.at(rejected.number);
    }
    const auto [better, worse] = implicit_rewards(pair, settings_);
    return {preference_loss(pair, settings_), better, worse, pair.chosen, pair.rejected};
  }

  void write_seeds(const MicroBatch& micro, const RowTokens& row, double d,
                   const Seeds& seeds) const override {
    const std::span<const float> mask = mask_of(micro, row);
    for (std::size_t t = 0; t < row.length; ++t) seeds.log_prob[row.begin + t] = mask[t] == 0 ? 0 : d;
  }

  bool has_log_probs() const override { return true; }

  static std::span<const float> mask_of(const MicroBatch& micro, const RowTokens& row) {
    return micro.batch.weights().subspan(row.begin, row.length);
  }
  static std::int64_t tokens(const MicroBatch& micro, const RowTokens& row) {
    return std::ranges::count_if(mask_of(micro, row), [](float weight) { return weight != 0; });
  }

  PreferenceSettings settings_;
};

class RewardModel final : public PairObjective {
  PairResult result(const MicroBatch& /*micro*/, const Outputs& outputs, const RowTokens& chosen,
                    const RowTokens& rejected) const override {
    const double better = (*outputs.value)[last(chosen)], worse = (*outputs.value)[last(rejected)];
    const double margin = data().margins.empty() ? 0 : data().margins.at(chosen.number / 2);
    return {reward_loss(better, worse, margin), better, worse};
  }

  void write_seeds(const MicroBatch& /*micro*/, const RowTokens& row, double d,
                   const Seeds& seeds) const override {
    seeds.value[last(row)] = d;
  }

  bool has_log_probs() const override { return false; }

  static std::size_t last(const RowTokens& row) { return row.begin + row.length - 1; }
};

}  // namespace

template <class Body>
void PairObjective::for_pairs(const MicroBatch& micro, const Body& body) const {
  const Extent extent = micro.batch.extent();
  if (extent.rows.size() % 2 != 0 || micro.first_row % 2 != 0)
    throw InternalError("a micro-batch of pairs has the row of half a pair");
  for (std::size_t r = 0; r < extent.rows.size(); r += 2) {
    std::array<RowTokens, 2> rows;
    for (const std::size_t side : {0U, 1U}) {
      const Row& row = extent.rows[r + side];
      rows[side] = {static_cast<std::size_t>(row.begin), static_cast<std::size_t>(row.length),
                    static_cast<std::size_t>(micro.first_row) + r + side};
    }
    body(rows[0], rows[1]);
  }
}

void PairObjective::begin(const Step& step) {
  step_ = step;
  results_.clear();
}

void PairObjective::seeds(const MicroBatch& micro, const Outputs* outputs, const Seeds& seeds) {
  const double share = step_.loss_scale / static_cast<double>(data_.pairs);
  for_pairs(micro, [&](const RowTokens& chosen, const RowTokens& rejected) {
    const PairLoss loss = result(micro, *outputs, chosen, rejected).loss;
    write_seeds(micro, chosen, share * loss.d_chosen, seeds);
    write_seeds(micro, rejected, share * loss.d_rejected, seeds);
  });
}

void PairObjective::observe(const MicroBatch& micro, const Outputs& outputs) {
  for_pairs(micro, [&](const RowTokens& chosen, const RowTokens& rejected) {
    results_.push_back(result(micro, outputs, chosen, rejected));
  });
}

Outcome PairObjective::end() {
  const auto mean_of = [&](const auto& value) {
    std::vector<double> values;
    for (const PairResult& r : results_) values.push_back(value(r));
    return mean(values);
  };
  Outcome out{mean_of([](const PairResult& r) { return r.loss.loss; })};
  out.metrics = {{"accuracy", mean_of([](const PairResult& r) {
                    return r.chosen_reward > r.rejected_reward ? 1.0 : 0.0;
                  })},
                 {"margin", mean_of([](const PairResult& r) { return r.chosen_reward - r.rejected_reward; })},
                 {"chosen_reward", mean_of([](const PairResult& r) { return r.chosen_reward; })},
                 {"rejected_reward", mean_of([](const PairResult& r) { return r.rejected_reward; })}};
  if (has_log_probs()) {
    out.metrics.push_back(
        {"chosen_log_prob", mean_of([](const PairResult& r) { return r.chosen_log_prob; })});
    out.metrics.push_back(
        {"rejected_log_prob", mean_of([](const PairResult& r) { return r.rejected_log_prob; })});
  }
  return out;
}

std::unique_ptr<PairObjective> dpo(const PreferenceSettings& settings) {
  return std::make_unique<Dpo>(settings);
}

std::unique_ptr<PairObjective> reward_model() {
  return std::make_unique<RewardModel>();
}

}  // namespace mantissa::objective
