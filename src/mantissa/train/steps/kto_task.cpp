#include "mantissa/train/steps/kto_task.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "mantissa/setup/objective/kto.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/train/steps/fixed_model.h"
#include "mantissa/train/steps/log_probs.h"

namespace mantissa::train {
namespace {

/// The ids of a row, and where its answer begins. Ids of the answer without a weight are not predicted.
struct Parts {
  std::span<const std::int32_t> ids;
  std::size_t answer = 0;
  std::vector<std::int32_t> labels;
};

Parts parts_of(const text::StepData& rows, std::int64_t r) {
  const RowTokens row = rows.row(r);
  const auto first = static_cast<std::size_t>(rows.begin(r) + r),
             inputs = static_cast<std::size_t>(rows.length(r));
  Parts parts{std::span(rows.ids).subspan(first, inputs + 1), inputs + 1, {text::kIgnoredLabel}};
  for (std::size_t t = 0; t < inputs; ++t) {
    const bool counts = row.weights[t] != 0 && row.targets[t] >= 0;
    parts.labels.push_back(counts ? row.targets[t] : text::kIgnoredLabel);
    if (counts) parts.answer = std::min(parts.answer, t + 1);
  }
  return parts;
}

class KtoTask final : public Task {
 public:
  KtoTask(const config::RunConfig& config, const weights::ModelSource& source, LabelledAnswers answers,
          const runtime::Device& device)
      : config_(config),
        source_(source),
        answers_(std::move(answers)),
        device_(device),
        settings_(objective::kto_settings(config.kto)),
        objective_(settings_),
        reference_(config, source, config.kto.reference, device) {
    compile(0);
  }

  const std::string& name() const override { return answers_.rows.name(); }
  void share(comm::Communicator& ranks) override {
    ranks_ = &ranks;
    reference_.share(ranks);
    if (policy_) policy_->share(ranks_);
  }
  objective::Objective& objective() override { return objective_; }

  std::optional<text::StepData> step(std::int64_t step, std::int64_t items,
                                     const std::stop_token& stop) override {
    return prepared(answers_.rows.step(step, items), answers_.desirable, stop);
  }

  std::optional<text::StepData> held_out(std::int64_t /*step*/, const std::stop_token& stop) override {
    const std::int64_t rows = answers_.rows.validation_rows();
    if (rows == 0) return std::nullopt;
    return prepared(answers_.rows.validation(0, rows),
                    answers_.held_out_desirable.empty() ? answers_.desirable : answers_.held_out_desirable,
                    stop);
  }

  std::vector<const plan::Program*> begin_part(std::int64_t step) override {
    reference_.begin_part(step);
    compile(step);
    std::vector<const plan::Program*> programs;
    if (policy_) programs.push_back(&policy_->program());
    if (reference_.shares_weights()) programs.push_back(&reference_.program());
    return programs;
  }

  void bind(std::shared_ptr<runtime::WeightSet> weights, std::shared_ptr<runtime::Arena> arena) override {
    reference_.bind(weights, arena);
    if (policy_) policy_->bind(std::move(weights), std::move(arena));
  }

  std::vector<forecast::OtherPass> passes() const override {
    std::vector<forecast::OtherPass> all = {{.program = reference_.shared_program(),
                                             .weights = reference_.bytes(),
                                             .runs = policy_ ? 2.0 : 1.0,
                                             .name = "the reference"}};
    if (policy_) all.push_back({.program = policy_->shared_program(), .name = "the divergence"});
    return all;
  }

  std::unique_ptr<Task> again(const config::RunConfig& config) const override {
    return kto_task(config, source_, answers_, device_);
  }
  const text::Dataset* dataset() const override { return &answers_.rows; }

 private:
  void compile(std::int64_t step) {
    if (!settings_.compares_with_kl) return;
    policy_.emplace(std::make_shared<const plan::Program>(
                        programs::compile_log_probs(config_, source_.config, device_, step)),
                    config_);
    policy_->share(ranks_);
  }

  /// Returns the divergence from the reference, or null if a stop came first.
  std::optional<double> divergence(const text::StepData& rows, const std::stop_token& stop) {
    const text::StepData other = mismatched(rows);
    const std::optional<TokenValues> reference = reference_.of(other, stop);
    if (!reference) return std::nullopt;
    const std::optional<TokenValues> policy = policy_->of(other, stop);
    if (!policy) return std::nullopt;
    const std::vector<double> q = row_log_probs(*reference, other), p = row_log_probs(*policy, other);
    double sum = 0;
    for (std::size_t r = 0; r < p.size(); ++r) sum += p[r] - q[r];
    return std::max(0.0, sum / static_cast<double>(p.size()));
  }

  /// Gives the objective what it needs of `rows` and returns these, or null if a stop came first.
  std::optional<text::StepData> prepared(text::StepData rows, const std::vector<bool>& desirable,
                                         const std::stop_token& stop) {
    const std::optional<TokenValues> values = reference_.of(rows, stop);
    if (!values) return std::nullopt;
    objective::AnswerData data{.desirable = {}, .reference = row_log_probs(*values, rows)};
    for (const std::int64_t origin : rows.origin)
      data.desirable.push_back(desirable.at(static_cast<std::size_t>(origin)));
    if (policy_) {
      const std::optional<double> kl = divergence(rows, stop);
      if (!kl) return std::nullopt;
      data.kl = *kl;
    }
    objective_.set_answers(std::move(data));
    return rows;
  }

  config::RunConfig config_;
  weights::ModelSource source_;
  LabelledAnswers answers_;
  const runtime::Device& device_;
  objective::KtoSettings settings_;
  objective::KtoObjective objective_;
  Reference reference_;
  std::optional<LogProbs> policy_;  // of the model in training, for kto.loss = "kto"
  comm::Communicator* ranks_ = nullptr;
};

}  // namespace

text::StepData mismatched(const text::StepData& rows) {
  text::StepData out = text::empty_step(rows.rows, rows.sequence_length);
  out.sequence = rows.sequence;
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    const Parts prompt = parts_of(rows, r), answer = parts_of(rows, (r + rows.rows - 1) % rows.rows);
    text::Row row{
        .ids = {prompt.ids.begin(), prompt.ids.begin() + static_cast<std::ptrdiff_t>(prompt.answer)}};
    row.labels.assign(row.ids.size(), text::kIgnoredLabel);
    const auto begin = static_cast<std::ptrdiff_t>(answer.answer);
    row.ids.insert(row.ids.end(), answer.ids.begin() + begin, answer.ids.end());
    row.labels.insert(row.labels.end(), answer.labels.begin() + begin, answer.labels.end());
    const std::size_t most = static_cast<std::size_t>(rows.sequence_length) + 1;
    row.ids.resize(std::min(row.ids.size(), most));
    row.labels.resize(row.ids.size());
    text::append_row(row, rows.origin[static_cast<std::size_t>(r)], out);
  }
  return out;
}

std::unique_ptr<Task> kto_task(const config::RunConfig& config, const weights::ModelSource& source,
                               LabelledAnswers answers, const runtime::Device& device) {
  return std::make_unique<KtoTask>(config, source, std::move(answers), device);
}

}  // namespace mantissa::train
