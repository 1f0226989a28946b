// Models beside the one in training, whose weights no step changes: references and reward models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/arena.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/engine/runtime/weights.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/rows/row.h"
#include "mantissa/train/steps/log_probs.h"

namespace mantissa::train {

/// The passes of one program over rows, with the weights that its steps read, without masters. The weights
/// are read when they are needed first.
class FixedModel {
 public:
  /// Returns the program for the step after `step` steps.
  using Compile =
      std::function<std::shared_ptr<const plan::Program>(const model::ModelConfig& model, std::int64_t step)>;

  /// `config` is that of the run, with the policy of the passes.
  FixedModel(const config::RunConfig& config, weights::ModelSource source, Compile compile,
             const runtime::Device& device);

  /// Sets the ranks that call of() alike.
  void share(comm::Communicator& ranks);
  /// Takes the policy of the step after `step` steps.
  void begin_part(std::int64_t step);
  const plan::Program& program() const { return passes_->program(); }
  std::shared_ptr<const plan::Program> shared_program() const { return passes_->shared_program(); }
  /// Returns the bytes of the weights.
  std::size_t bytes() const;
  runtime::WeightSet& weights() const { return *weights_; }
  /// Sets the memory of the passes; null releases it.
  void bind(std::shared_ptr<runtime::Arena> arena);
  /// Sets other weights for the passes, and their memory.
  void bind(std::shared_ptr<runtime::WeightSet> weights, std::shared_ptr<runtime::Arena> arena);
  /// Returns the values of the inputs of `rows`, or null if a stop came first.
  std::optional<TokenValues> of(const text::StepData& rows, const std::stop_token& stop);

 private:
  config::RunConfig config_;
  weights::ModelSource source_;  // whose mapped files the weights may use
  Compile compile_;
  const runtime::Device& device_;
  std::int64_t part_ = 0;
  comm::Communicator* ranks_ = nullptr;
  std::optional<LogProbs> passes_;
  std::shared_ptr<runtime::WeightSet> weights_;
};

/// The model from which an objective measures the divergence of the one in training: its starting weights, or
/// another model with the same vocabulary. Under an adapter, the starting weights are the adapter's base,
/// which needs no memory of its own. Tensors with scales have the scales of the model in training. So the
/// log-probabilities have the bits of the training pass as long as the weights are equal.
class Reference {
 public:
  /// `source` is the source of the run's model, `path` a model directory or "" for the starting weights.
  /// Throws ConfigError if a model at `path` has another vocabulary.
  Reference(const config::RunConfig& config, const weights::ModelSource& source, const std::string& path,
            const runtime::Device& device);

  void share(comm::Communicator& ranks) { model_.share(ranks); }
  void begin_part(std::int64_t step) { model_.begin_part(step); }
  /// Returns true if the reference reads the weights in training.
  bool shares_weights() const { return shares_; }
  const plan::Program& program() const { return model_.program(); }
  std::shared_ptr<const plan::Program> shared_program() const { return model_.shared_program(); }
  /// Returns the bytes of the reference's own weights.
  std::size_t bytes() const { return shares_ ? 0 : model_.bytes(); }
  /// Sets the weights in training and the memory of the passes; null releases both.
  void bind(const std::shared_ptr<runtime::WeightSet>& weights, std::shared_ptr<runtime::Arena> arena);
  /// Returns the values of the inputs of `rows`, or null if a stop came first.
  std::optional<TokenValues> of(const text::StepData& rows, const std::stop_token& stop);

 private:
  bool shares_;
  FixedModel model_;
  std::shared_ptr<runtime::WeightSet> training_;
};

/// Returns the model at `path`. Throws ConfigError, beginning with `key`, if its vocabulary has another size
/// than that of the model in training.
weights::ModelSource model_beside(const std::string& path, const std::string& key,
                                  const model::ModelConfig& trained);

}  // namespace mantissa::train
