#include "mantissa/train/steps/preference_task.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "mantissa/setup/objective/pairs.h"
#include "mantissa/train/steps/fixed_model.h"

namespace mantissa::train {
namespace {

std::optional<Reference> reference_of(const config::RunConfig& config, const weights::ModelSource& source,
                                      const runtime::Device& device) {
  if (config.train.objective != "dpo" || !objective::preference_settings(config.dpo).has_reference())
    return std::nullopt;
  return std::optional<Reference>(std::in_place, config, source, config.dpo.reference, device);
}

class PreferenceTask final : public Task {
 public:
  PreferenceTask(const config::RunConfig& config, const weights::ModelSource& source, Pairs pairs,
                 const runtime::Device& device)
      : config_(config),
        source_(source),
        pairs_(std::move(pairs)),
        device_(device),
        objective_(config.train.objective == "dpo"
                       ? objective::dpo(objective::preference_settings(config.dpo))
                       : objective::reward_model()),
        reference_(reference_of(config, source, device)) {}

  const std::string& name() const override { return pairs_.rows.name(); }
  void share(comm::Communicator& ranks) override {
    if (reference_) reference_->share(ranks);
  }
  objective::Objective& objective() override { return *objective_; }

  std::optional<text::StepData> step(std::int64_t step, std::int64_t items,
                                     const std::stop_token& stop) override {
    return prepared(pairs_.rows.step(step, items), pairs_.margins, stop);
  }

  std::optional<text::StepData> held_out(std::int64_t /*step*/, const std::stop_token& stop) override {
    const std::int64_t pairs = pairs_.rows.validation_rows();
    if (pairs == 0) return std::nullopt;
    return prepared(pairs_.rows.validation(0, pairs),
                    pairs_.held_out_margins.empty() ? pairs_.margins : pairs_.held_out_margins, stop);
  }

  std::vector<const plan::Program*> begin_part(std::int64_t step) override {
    if (!reference_) return {};
    reference_->begin_part(step);
    if (!reference_->shares_weights()) return {};
    return {&reference_->program()};
  }

  void bind(std::shared_ptr<runtime::WeightSet> weights, std::shared_ptr<runtime::Arena> arena) override {
    if (reference_) reference_->bind(weights, std::move(arena));
  }

  std::vector<forecast::OtherPass> passes() const override {
    if (!reference_) return {};
    return {
        {.program = reference_->shared_program(), .weights = reference_->bytes(), .name = "the reference"}};
  }

  std::unique_ptr<Task> again(const config::RunConfig& config) const override {
    return preference_task(config, source_, pairs_, device_);
  }
  const text::Dataset* dataset() const override { return &pairs_.rows; }

 private:
  /// Gives the objective what it needs of `rows` and returns these, or null if a stop came first.
  std::optional<text::StepData> prepared(text::StepData rows, const std::vector<double>& margins,
                                         const std::stop_token& stop) {
    objective::PairData data{.pairs = static_cast<std::size_t>(rows.items())};
    if (reference_) {
      const std::optional<TokenValues> values = reference_->of(rows, stop);
      if (!values) return std::nullopt;
      data.reference = row_log_probs(*values, rows);
    }
    for (std::int64_t r = 0; r < rows.rows; r += 2)
      data.margins.push_back(margins.at(static_cast<std::size_t>(rows.origin[static_cast<std::size_t>(r)])));
    objective_->set_pairs(std::move(data));
    return rows;
  }

  config::RunConfig config_;
  weights::ModelSource source_;
  Pairs pairs_;
  const runtime::Device& device_;
  std::unique_ptr<objective::PairObjective> objective_;
  std::optional<Reference> reference_;
};

}  // namespace

std::unique_ptr<Task> preference_task(const config::RunConfig& config, const weights::ModelSource& source,
                                      Pairs pairs, const runtime::Device& device) {
  return std::make_unique<PreferenceTask>(config, source, std::move(pairs), device);
}

}  // namespace mantissa::train
