// What a run trains on: the rows of each step, and the objective on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/arena.h"
#include "mantissa/engine/runtime/weights.h"
#include "mantissa/files/io/dtype.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/forecast/other_passes.h"
#include "mantissa/setup/objective/objective.h"
#include "mantissa/text/rows/dataset.h"
#include "mantissa/text/rows/row.h"

namespace mantissa::train {

/// The memory of a task besides that of the training program.
struct TaskMemory {
  std::size_t weights = 0;  // of other models, such as a reference
  std::size_t arena = 0;    // of the largest of its programs, which share one arena with training
  std::size_t data = 0;
};

/// The part of a state that belongs to a task, by name.
struct TaskState {
  struct Tensor {
    io::Dtype dtype = io::Dtype::f32;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, std::uint64_t> counters;
  std::map<std::string, Tensor> tensors;
};

class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  /// Returns the name of the data, for messages.
  virtual const std::string& name() const = 0;
  /// Returns the objective on the rows that step() or held_out() returned last.
  virtual objective::Objective& objective() = 0;

  /// Tells, before the first step, which ranks share the run. All of them then call step(), held_out() and
  /// measure() alike.
  virtual void share(comm::Communicator& /*ranks*/) {}

  /// Returns the rows of attempt `step` (from 1): `items` rows or packs. They may depend on the weights,
  /// which are those before the step. Returns null if a stop came first.
  virtual std::optional<text::StepData> step(std::int64_t step, std::int64_t items,
                                             const std::stop_token& stop) = 0;
  /// Returns the rows whose loss is measured after `step` steps, or null if there are none, or if a stop came
  /// first.
  virtual std::optional<text::StepData> held_out(std::int64_t step, const std::stop_token& stop) = 0;
  /// Returns true if a run measures its held-out data before the first step, too.
  virtual bool measures_start() const { return false; }
  /// Returns other measurements on held-out data after `step` steps.
  virtual std::vector<objective::Metric> measure(std::int64_t /*step*/, const std::stop_token& /*stop*/) {
    return {};
  }

  /// Begins the part of the run after `step` steps, with its own policy. Returns the programs besides the
  /// training program that read the weights in training. They live until the next part begins.
  virtual std::vector<const plan::Program*> begin_part(std::int64_t /*step*/) { return {}; }
  /// Gives the task the weights in training and an arena of at least TaskMemory::arena bytes, or null for
  /// both when a part of the run ends. Called again when the next part begins.
  virtual void bind(std::shared_ptr<runtime::WeightSet> /*weights*/,
                    std::shared_ptr<runtime::Arena> /*arena*/) {}
  /// Returns the memory of passes().
  virtual TaskMemory memory() const;
  /// Returns the passes of other programs that step() runs, for forecasts of time.
  virtual std::vector<forecast::OtherPass> passes() const { return {}; }

  /// Returns the state after `step` steps, also if a stop interrupted the next one.
  virtual TaskState save(std::int64_t /*step*/) const { return {}; }
  /// Restores the state that save() returned after `step` steps. Throws FileError if it is not one.
  virtual void restore(std::int64_t /*step*/, const TaskState& /*state*/) {}

  /// Returns a task at its beginning, for a repetition of the run with `config`, which may have another
  /// policy, optimizer or schedule.
  virtual std::unique_ptr<Task> again(const config::RunConfig& config) const = 0;
  /// Returns false if a repetition may have other rows, or none: those of a callback, or rewards of a
  /// program.
  virtual bool repeats() const { return true; }
  /// Returns the data set of a task that is one, or null.
  virtual const text::Dataset* dataset() const { return nullptr; }
};

/// Returns the task of predicting the tokens of `data`: pretraining and supervised fine-tuning.
std::unique_ptr<Task> corpus_task(text::Dataset data);

}  // namespace mantissa::train
