#include <algorithm>

#include "mantissa/kernels/update.h"
#include "mantissa/setup/objective/objective.h"

namespace mantissa::objective {
namespace {

class Pretraining final : public Objective {
 public:
  bool seeds_known() const override { return true; }

  void begin(const Step& step) override {
    step_ = step;
    log_probs_.clear();
    balance_.clear();
  }

  void seeds(const MicroBatch& micro, const Outputs* /*outputs*/, const Seeds& seeds) override {
    const std::span<const float> weights = micro.batch.weights();
    for (std::size_t t = 0; t < weights.size(); ++t) {
      seeds.log_prob[t] =
          weights[t] == 0 ? 0 : -step_.loss_scale * static_cast<double>(weights[t]) / step_.total_weight;
    }
    std::ranges::fill(seeds.balance, step_.loss_scale / static_cast<double>(step_.tokens));
  }

  void observe(const MicroBatch& micro, const Outputs& outputs) override {
    const std::span<const float> weights = micro.batch.weights();
    for (std::size_t t = 0; t < weights.size(); ++t)
      log_probs_.push_back(weights[t] == 0 ? 0 : static_cast<double>(weights[t]) * outputs.log_prob[t]);
    if (!outputs.balance) return;
    for (std::size_t t = 0; t < weights.size(); ++t) balance_.push_back((*outputs.balance)[t]);
  }

  Outcome end() override {
    Outcome outcome{step_.total_weight == 0 ? 0 : -sum_of(log_probs_) / step_.total_weight};
    if (!balance_.empty())
      outcome.metrics.push_back({"router_aux_loss", sum_of(balance_) / static_cast<double>(step_.tokens)});
    return outcome;
  }

 private:
  Step step_;
  static double sum_of(const std::vector<double>& values) {
    return kernels::chunked_sum(values.data(), Scalar::f64, std::ssize(values));
  }

  std::vector<double> log_probs_;  // of the step, times their weights
  std::vector<double> balance_;    // of the step's tokens
};

}  // namespace

std::unique_ptr<Objective> pretraining() {
  return std::make_unique<Pretraining>();
}

bool seeds_known(std::string_view name) {
  return name == "pretrain" || name == "sft";
}

}  // namespace mantissa::objective
