// Pretraining and supervised fine-tuning: the rows of a data set.
#include <utility>

#include "mantissa/train/steps/task.h"

namespace mantissa::train {
namespace {

class CorpusTask final : public Task {
 public:
  explicit CorpusTask(text::Dataset data) : data_(std::move(data)) {}

  const std::string& name() const override { return data_.name(); }
  objective::Objective& objective() override { return *objective_; }

  std::optional<text::StepData> step(std::int64_t step, std::int64_t items,
                                     const std::stop_token& /*stop*/) override {
    return data_.step(step, items);
  }
  std::optional<text::StepData> held_out(std::int64_t step, const std::stop_token& /*stop*/) override {
    const text::Dataset& data = data_.at_step(step);
    const std::int64_t rows = data.validation_rows();
    return rows == 0 ? std::nullopt : std::optional(data.validation(0, rows));
  }

  std::unique_ptr<Task> again(const config::RunConfig& /*config*/) const override {
    return corpus_task(data_);
  }
  bool repeats() const override { return data_.training_rows() > 0; }  // not from a callback
  const text::Dataset* dataset() const override { return &data_; }

 private:
  text::Dataset data_;
  std::unique_ptr<objective::Objective> objective_ = objective::pretraining();
};

}  // namespace

TaskMemory Task::memory() const {
  TaskMemory memory;
  for (const forecast::OtherPass& pass : passes()) {
    memory.weights += pass.weights;
    memory.arena = std::max(memory.arena, pass.program->memory.arena());
  }
  return memory;
}

std::unique_ptr<Task> corpus_task(text::Dataset data) {
  return std::make_unique<CorpusTask>(std::move(data));
}

}  // namespace mantissa::train
