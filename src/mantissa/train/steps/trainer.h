// Training in memory: optimizer steps, validation, and the state that a run saves and resumes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/comm/shard_sum.h"
#include "mantissa/engine/optim/schedule.h"
#include "mantissa/engine/plan/completions.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/batch.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/engine/runtime/health.h"
#include "mantissa/engine/runtime/nonfinite.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/precision/policy/loss_scaler.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/config/steps.h"
#include "mantissa/setup/forecast/forecast.h"
#include "mantissa/setup/objective/objective.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/rows/dataset.h"
#include "mantissa/train/steps/carried_states.h"
#include "mantissa/train/steps/gathered_objective.h"
#include "mantissa/train/steps/key_ring.h"
#include "mantissa/train/steps/shared_weights.h"
#include "mantissa/train/steps/task.h"
#include "mantissa/train/steps/update.h"

namespace mantissa::train {

class EvaluationWeights;

/// The cause of a skipped step or of a stopped run, as far as it is known.
struct Overflow {
  std::string what;                // "model.layers.5.mlp.down_proj matmul backward 8.1e4 > 65504 (f16)"
  std::string scope;               // "model.layers.5.mlp.down_proj"
  std::string rows;                // "rows 3, 17 of kk"
  bool forward = false;            // in the forward pass: it does not depend on the loss scale
  std::string op = {}, pass = {};  // "matmul", "backward"
  std::vector<std::int64_t> origins = {};       // of the rows, in the data
  std::vector<runtime::ReadRange> inputs = {};  // what the op read
  double value = 0;                             // before rounding, if known; otherwise inf or NaN
  Scalar format = Scalar::f32;                  // in which it is stored
  std::int64_t channel = -1;                    // in the last dimension; -1: not known
  std::vector<std::string> cure =
      {};  // {"--set", "precision.reduce=f32"}, if the cure is not the scope's compute format
};

/// The measurements of one optimizer step (docs/cli/run-directory.md).
struct StepReport {
  std::int64_t step = 0;
  double loss = 0;
  std::int64_t tokens = 0;  // since the start
  double grad_norm = 0;
  double lr = 0;
  std::optional<double> loss_scale{};  // the one used in this step
  bool skipped = false;                // no weight changed: the step overflowed, or its batch was skipped
  bool batch_skipped =
      false;  // run.skip_batches contains the step: nothing was computed, and the loss is NaN
  std::optional<Overflow> overflow{};  // of a skipped step
  double tokens_per_second = 0;
  double peak_share = 0;  // of the peak of the units; 0 before Trainer::machine() was called

  double seconds = 0;
  double fallback_share = 0;  // of blocks of products that units left to FMA (kernels/guard_count.h)
  std::vector<objective::Metric> metrics{};        // of the objective
  std::vector<runtime::ParameterHealth> health{};  // of every log.health_interval-th step that was applied
};

/// The measurements on held-out data.
struct Validation {
  std::optional<double> loss;
  std::vector<objective::Metric> metrics;
};

/// Holds the weights, moments and counters of a run. If several ranks share the run, each has a trainer, and
/// they call advance(), validate() and restore() alike; each runs the items of its shards.
class Trainer {
 public:
  /// Compiles the plans, allocates memory, and reads or initializes the weights. `task` has the training
  /// rows. `done` is the number of steps in the state that will be restored, or 0. `ranks`, if it is not
  /// null, must outlive the trainer. Throws ConfigError if a rule of the policy matches nothing, or if the
  /// shards cannot be shared equally by the ranks.
  Trainer(const config::RunConfig& config, weights::ModelSource source, std::unique_ptr<Task> task,
          const runtime::Device& device, std::int64_t done = 0, comm::Communicator* ranks = nullptr);
  /// Trains on the rows of `data`.
  Trainer(const config::RunConfig& config, weights::ModelSource source, text::Dataset data,
          const runtime::Device& device, std::int64_t done = 0)
      : Trainer(config, std::move(source), corpus_task(std::move(data)), device, done) {}

  /// Runs attempt step() + 1 and counts it. If a gradient is not finite, a loss scaler skips the step and
  /// lowers its scale. Without a scaler, or at its minimum scale, throws RunStopped with the first non-finite
  /// value of the plan and the data rows. Throws RunStopped also if the update would take a weight beyond its
  /// format. After an exception, and after a stop, which returns no report, nothing is counted or changed. If
  /// several ranks share the run, a stop of one is that of all.
  std::optional<StepReport> advance(const std::stop_token& stop = {});
  /// Returns the mean loss over the held-out rows and the task's other measurements, or null if there are
  /// none. If the loss is not finite, throws RunStopped with the first such value of the plan and the data
  /// rows, unless run.on_nonfinite says otherwise.
  std::optional<Validation> validate(const std::stop_token& stop = {});

  /// Returns the executor that advance() will use, for observers. Valid until the step is complete.
  runtime::Executor& next_executor();
  /// Returns the executor of the update that advance() will use, likewise.
  runtime::Executor& next_update();

  /// The gradient of a parameter, times the loss scale, which the last step computed.
  struct NamedGradient {
    std::string name;
    Matrix values;
    std::int64_t count = 0;
  };
  /// Returns the gradients of the last step, by parameter. Valid until the next step.
  std::vector<NamedGradient> last_gradients();
  /// Returns what the roundings of each gradient's sums over shards did in the last step, in the order of
  /// last_gradients(); empty if its health was not measured, or no sum rounds.
  const std::vector<ValueCounts>& reduced() const { return reduced_; }

  std::int64_t step() const { return step_; }
  std::int64_t applied() const { return applied_; }
  std::int64_t skipped() const { return step_ - applied_; }
  std::int64_t tokens() const { return tokens_; }
  /// Returns null under a policy without a loss scale.
  const std::optional<precision::LossScaler>& scaler() const { return scaler_; }
  /// Returns the number of skipped steps in a row, up to step(), that overflowed in the forward pass.
  std::int64_t forward_overflows() const { return forward_overflows_; }
  /// Returns the number of updates that were applied before the stage of the last step, whose schedule counts
  /// the later ones.
  std::int64_t stage_applied() const { return stage_applied_; }
  /// The counters of a resumed state.
  struct Progress {
    std::int64_t step = 0, applied = 0, tokens = 0, forward_overflows = 0, stage_applied = 0;
  };
  /// Sets the counters of a resumed state. A scaler that the state does not have keeps its initial scale.
  void restore(const Progress& progress, const std::optional<precision::ScalerState>& scaler);

  /// Returns true if a stop, of this rank or another, ended the last advance() or validate().
  bool stopped() const { return stopped_; }
  /// Returns the overflow that stopped the last advance(), or null.
  const std::optional<Overflow>& overflow() const { return overflow_; }

  /// Looks for non-finite values while each step runs, so that a step that overflows is not repeated.
  void watch_non_finite() { watches_ = true; }
  /// Sets the source of ParameterHealth::never_moved.
  void set_start(runtime::CountUnchanged unchanged) { unchanged_ = std::move(unchanged); }

  const config::RunConfig& config() const { return config_; }
  const weights::ModelSource& source() const { return source_; }
  /// Returns the model as the stage of the last step, or of the first one, has it.
  const model::ModelConfig& model() const { return model_at(step_); }
  /// Returns the model as the stage of step `step`, from 1, has it.
  const model::ModelConfig& model_at(std::int64_t step) const;
  /// Returns the config and the model of the next step's stage.
  const config::RunConfig& stage_config() const { return stages_[parts_[part_].stage].config; }
  const model::ModelConfig& stage_model() const { return stages_[parts_[part_].stage].model; }
  /// Returns the plans of the run's parts, the part of the next step, and its plan.
  const std::vector<programs::RunPart>& parts() const { return parts_; }
  std::size_t part() const { return part_; }
  const plan::Program& program() const { return *parts_[part_].program; }
  const forecast::MemoryForecast& memory() const { return memory_; }
  /// Returns the rates of this machine. The first call measures them, within the memory of the run if it
  /// comes before the first step.
  const forecast::Machine& machine();
  Task& task() { return *task_; }
  const Task& task() const { return *task_; }
  runtime::WeightSet& weights() { return *weights_; }
  const std::vector<std::string>& notes() const { return notes_; }
  /// Returns the hash of the frozen weights in quantized blocks, which states do not contain
  /// (setup/weights/frozen_hash.h).
  const std::string& frozen_hash() const { return frozen_hash_; }
  const runtime::Device& device() const { return device_; }

  /// Replaces the weights by those for evaluation while the result exists (train/steps/evaluation_weights.h).
  /// If ranks share the weights, all of them call this, and end it, alike.
  std::unique_ptr<EvaluationWeights> evaluation_weights();

  /// Memory that a resumable state holds: masters that are not in quantized blocks, moments, compensations,
  /// histories of scales and states that rows continue, by name. Valid as long as the trainer.
  struct NamedMemory {
    std::string name;
    Scalar type = Scalar::f32;
    std::vector<std::int64_t> shape = {};
    /// In the host's memory if `device` is null; empty: another rank has them.
    std::span<std::byte> bytes = {};
    const runtime::Device* device = nullptr;
    std::function<void(std::size_t offset, std::span<std::byte> out)> remote = {};  // reads those
    int owner = plan::kEveryRank;  // the rank that updates them, if ranks share the weights
    bool begins_at_zero = false;   // optional in a state saved under another policy
    /// Of the codes of an optimizer's state in blocks, which follow the entry with its scales, [blocks] f32,
    /// called NAME + io::kStateScales.
    StateCodes codes = StateCodes::none;
    bool scales = false;          // it is such an entry
    bool never_negative = false;  // of an optimizer's state
    bool newest_first = false;    // of any length in a state: the first elements are read

    bool here() const { return !remote; }
    /// Copies from or to the bytes from `offset` on. Only those that are here can be written.
    void read(std::size_t offset, std::span<std::byte> out) const;
    void write(std::size_t offset, std::span<const std::byte> in) const;
  };
  std::vector<NamedMemory> state_memory();
  /// Returns true if ranks each have a part of the masters and moments (distributed.zero).
  bool shares_weights() const { return sharing().divides(); }
  /// Answers what the first rank reads of state_memory() until it calls end_reading().
  void serve_reads();
  void end_reading();

 private:
  /// Sums the uses of each parameter and adds the complete gradients of shard `shard` of the batch.
  void finish_shard(std::int64_t shard);
  /// Starts the sums of the gradients that step `step` of the program completes, if they are the last of a
  /// block.
  void start_sums(std::size_t step);
  /// Runs `rows` under the objective, micro-batch by micro-batch, on all ranks. Null if a stop came to one.
  std::optional<objective::Outcome> run_rows(const text::StepData& rows, objective::Pass pass,
                                             const std::stop_token& stop);
  /// Runs this rank's share of them. Returns true if a stop came; if `together`, to any rank.
  bool run_share(const text::StepData& rows, objective::Objective& objective, objective::Pass pass,
                 const std::stop_token& stop, bool together);
  /// Fills the batch with the micro-batch of items that begins with `item`: whole rows, or this rank's part
  /// of each row or pack, which the ring then expects.
  objective::MicroBatch micro_batch(const text::StepData& rows, std::int64_t item);
  /// Returns the same micro-batch with whole rows.
  WholeRows whole_rows(const text::StepData& rows, std::int64_t item);
  /// Returns the overflow of the first rank that has one: its rows precede those of the others.
  std::optional<Overflow> first_of_ranks(const std::optional<Overflow>& own);
  /// Make what each rank knows of its own rows the same on all: the largest magnitudes of tensors with
  /// scales, the states that rows leave to those of the next step, and the counts of roundings.
  void share_magnitudes();
  void share_carried();
  void share_counts();
  void share_rounded(runtime::HealthProbe& probe);
  /// Throws RunStopped if another rank has other rows.
  void compare_rows(const text::StepData& rows);
  /// Throws RunStopped if a weight or a state of another rank has other bytes than those of the first one.
  void compare_ranks();
  /// Does so if it is due after the steps so far.
  void compare_when_due();
  std::vector<comm::Gradient> gradients() const;
  /// Adds the losses of sums over shards to the health of their parameters.
  void add_reduced(std::vector<runtime::ParameterHealth>& health);
  /// Returns the measurements of a step that was applied.
  std::vector<runtime::ParameterHealth> health_of(runtime::HealthProbe& probe);
  /// Returns a weight set for the current part. Adds to `notes` what quantizing the base of an adapter lost.
  std::shared_ptr<runtime::WeightSet> allocate_weights(std::vector<std::string>* notes) const;
  /// Creates the session and the update of the current part.
  void bind();
  const plan::Sharing& sharing() const { return parts_[part_].sharing; }
  /// The ranks that share rows, and the number of such groups; the group of this rank.
  int row_parts() const { return static_cast<int>(config_.distributed.sequence_shards); }
  int groups() const { return ranks_.size() / row_parts(); }
  int group() const { return ranks_.rank() / row_parts(); }
  /// Returns true if gradients go to their owners as soon as they are complete.
  bool streams() const { return !program().reductions.empty(); }
  /// Gives other ranks what they read of the parameters that this one updates.
  void send_weights();
  /// Returns the memory of a state of the optimizer, or null if another rank has it.
  std::byte* kept_memory(const plan::Buffer& state) const;
  /// Reads bytes of state_memory()[index], which rank `owner` has.
  void read_remote(std::size_t index, int owner, std::size_t offset, std::span<std::byte> out);
  std::size_t part_of(std::int64_t done) const;
  /// Continues with another part's plan: keeps masters, moments and histories, and writes the new copies.
  void enter(std::size_t part);
  /// Returns what find_overflow() finds in this rank's rows, or null.
  std::optional<Overflow> find_own_overflow(const text::StepData& rows, bool train);
  /// Returns true if the health of step `step` is measured.
  bool measures_health(std::int64_t step) const;
  /// Returns true if the health of that step has histograms.
  bool measures_distributions(std::int64_t step) const;
  double scale() const { return scaler_ ? scaler_->scale() : 1; }
  /// Returns the first non-finite value of the training step or forward pass. Runs `rows` again for it unless
  /// the step was watched.
  Overflow find_overflow(const text::StepData& rows, bool train = true);
  /// Checks the gradients of `rows` and updates the weights, or marks the step as skipped.
  void update_weights(StepReport& report, const text::StepData& rows,
                      std::optional<runtime::HealthProbe>& health);
  /// Counts the next step without running its batch.
  StepReport skip_batch();
  /// Marks the step as skipped, or throws if it cannot be.
  void overflowed(StepReport& report, const text::StepData& rows);
  [[noreturn]] void stop_at_minimum(const Overflow& overflow) const;
  /// Throws because the forward pass overflowed in several steps in a row.
  [[noreturn]] void stop_forward(const Overflow& overflow, std::int64_t in_a_row) const;
  [[noreturn]] void stop_non_finite(const Overflow& overflow, double loss) const;
  /// Throws with the message `what`, the first non-finite value, the rows and the cures.
  [[noreturn]] void stop_at_value(const std::string& what, const Overflow& overflow,
                                  bool changes_weights) const;
  /// Marks the step as skipped because the update would take a weight beyond its format, or throws.
  void beyond_format(StepReport& report, const BrokenWeight& broken);

  /// A stage as a run of its own.
  struct Stage {
    config::RunConfig config;
    model::ModelConfig model;
    optim::Schedule schedule;
  };
  /// Returns the learning rate of the next update.
  double learning_rate() const;
  /// Begins the schedule of a stage with its first step.
  void count_stage();

  comm::Communicator alone_;
  comm::Communicator& ranks_;
  config::RunConfig config_;
  weights::ModelSource source_;
  std::unique_ptr<Task> task_;
  std::vector<Stage> stages_;
  const runtime::Device& device_;
  std::vector<programs::RunPart> parts_;
  std::size_t part_ = 0;
  forecast::MemoryForecast memory_;
  std::optional<forecast::Machine> machine_;  // from the first call of machine() on
  std::shared_ptr<runtime::WeightSet> weights_;
  std::unique_ptr<runtime::Session> session_;
  Storage kept_;                         // optimizer state, the same in all parts
  std::optional<SharedWeights> shared_;  // if ranks share the weights
  std::optional<KeyRing> ring_;          // if ranks share the rows
  std::unique_ptr<Update> update_;
  CarriedStates carried_;
  runtime::Batch batch_, whole_;  // of this rank, and of whole rows
  std::vector<std::string> notes_;
  std::string frozen_hash_;
  std::optional<precision::LossScaler> scaler_;
  std::vector<ValueCounts> reduced_;  // of the step that runs; empty: not counted. Outlives shard_sum_
  std::optional<comm::ShardSum> shard_sum_;
  std::vector<plan::Completion> completions_;  // of gradients that are not streamed
  runtime::CountUnchanged unchanged_;
  bool watches_ = false, stopped_ = false;
  std::int64_t compared_ = 0;                       // the step after which ranks were compared last
  std::unique_ptr<runtime::NonFiniteWatch> watch_;  // of the step that runs
  std::optional<Overflow> overflow_;                // of the last step
  std::int64_t first_row_ = 0;  // of the current micro-batch; of shared packs the first pack
  std::int64_t step_ = 0, applied_ = 0, tokens_ = 0, stage_applied_ = 0;
  std::vector<config::StepRange> skipped_batches_;
  std::int64_t forward_overflows_ = 0;  // skipped steps in a row that overflowed in the forward pass
};

}  // namespace mantissa::train
