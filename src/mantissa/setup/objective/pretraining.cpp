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
  }

  void seeds(const MicroBatch& micro, const Outputs* /*outputs*/, const Seeds& seeds) override {
    const std::span<const float> weights = micro.batch.weights();
    for (std::size_t t = 0; t < weights.size(); ++t) {
      seeds.log_prob[t] =
          weights[t] == 0 ? 0 : -step_.loss_scale * static_cast<double>(weights[t]) / step_.total_weight;
    }
  }

  void observe(const MicroBatch& micro, const Outputs& outputs) override {
    const std::span<const float> weights = micro.batch.weights();
    for (std::size_t t = 0; t < weights.size(); ++t)
      log_probs_.push_back(weights[t] == 0 ? 0 : static_cast<double>(weights[t]) * outputs.log_prob[t]);
  }

  Outcome end() override {
    const double sum =
        kernels::chunked_sum(log_probs_.data(), Scalar::f64, static_cast<std::int64_t>(log_probs_.size()));
    return {step_.total_weight == 0 ? 0 : -sum / step_.total_weight};
  }

 private:
  Step step_;
  std::vector<double> log_probs_;  // of the step, times their weights
};

}  // namespace

std::unique_ptr<Objective> pretraining() {
  return std::make_unique<Pretraining>();
}

bool seeds_known(std::string_view name) {
  return name == "pretrain" || name == "sft";
}

}  // namespace mantissa::objective
