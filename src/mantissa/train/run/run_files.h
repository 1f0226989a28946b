// The weights that a run writes into its directory, with what belongs to them: those of the start, states,
// the model or adapter, and the files of the tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/core/disk/lock.h"
#include "mantissa/setup/weights/start.h"
#include "mantissa/train/run/data_hash.h"
#include "mantissa/train/run/directory.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::run {

/// Lets `trainer` compare weights with the first ones of the run, if run directory `out` has them.
void watch_start(train::Trainer& trainer, const std::filesystem::path& out);

class RunFiles {
 public:
  /// `files` are written with the model: names and contents. `trainer` and `lock`, which is that of `out`,
  /// must outlive this. Functions that write throw as RunLock::check() does.
  RunFiles(train::Trainer& trainer, const disk::RunLock& lock, RowHashes rows, std::filesystem::path out,
           std::vector<std::pair<std::string, std::string>> files)
      : trainer_(trainer),
        lock_(lock),
        rows_(std::move(rows)),
        out_(std::move(out)),
        files_(std::move(files)) {}

  /// Begins at the trainer's step. Keeps the files that belong to the model's text, so that a state can be
  /// used without a model.
  void begin();
  /// Returns true for a run that began at its first step, with no state.
  bool begins() const { return begins_; }
  /// Keeps the weights that are trained, before the first step, for ParameterHealth::never_moved.
  void keep_start();

  /// Saves a state, and an adapter as it is then, which takes little space. `loss` is that of the last step;
  /// `changes` are those of the config; `validates` tells that the validation after the step is still due.
  /// Returns as io::write_state().
  std::string save_state(Orders& orders, double loss, const std::vector<std::string>& changes,
                         bool validates);
  /// Returns the state of the current step, which is saved, or "" before the first step.
  std::filesystem::path last_state() const;

  /// Returns the folder of the model or adapter.
  std::filesystem::path result() const;
  /// Saves the model, or the adapter, and returns its hash. The masters are then the weights for evaluation
  /// (train/steps/evaluation_weights.h).
  std::uint64_t save_result();
  /// Returns why an earlier run's model or adapter could not be removed, or "". It stops no run.
  const std::string& earlier_stays() const { return earlier_stays_; }

 private:
  bool adapts() const { return trainer_.model().adapter != nullptr; }
  /// Returns true if the directory may hold the model or adapter of an earlier run.
  bool replaces() const;
  void remove_earlier_result(const std::string& kept);
  const std::string& fixed_hash();

  train::Trainer& trainer_;
  const disk::RunLock& lock_;
  RowHashes rows_;
  std::filesystem::path out_;
  std::vector<std::pair<std::string, std::string>> files_;
  bool begins_ = true;
  InputHashes hashes_;
  std::string earlier_stays_;
};

}  // namespace mantissa::run
