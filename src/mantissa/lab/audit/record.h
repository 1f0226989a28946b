// Collects what the observed steps of a run showed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "mantissa/engine/comm/bytes.h"
#include "mantissa/engine/runtime/observer.h"
#include "mantissa/lab/audit/audit.h"
#include "mantissa/lab/audit/expected_gradients.h"
#include "mantissa/setup/forecast/forecast.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/train/steps/health_watch.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::lab {

class Record {
 public:
  explicit Record(Audit& audit) : audit_(audit) {}

  void add_step(const train::StepReport& step, const train::PartNumber& part);
  /// Adds the values of an observed step.
  void add_values(std::int64_t step, const plan::Program& program,
                  const std::vector<runtime::ObservedValue>& values);
  /// Adds what the sums over shards of an observed step lost.
  void add_reduced(std::int64_t step, train::Trainer& trainer);
  /// Adds the gradients of an observed step of `program` beside those in f32. `amplification` is that of the
  /// logits (expected_gradients.h).
  void add_gradients(std::int64_t step, const plan::Program& program, double amplification,
                     const std::map<std::string, GradientStep>& gradients);
  /// Adds the choices of the routers of an observed step beside those in f32, by scope.
  void add_routers(std::int64_t step, const std::map<std::string, RouterStep>& routers);
  /// Sets the figure of all gradients together.
  void summarise_gradients();
  /// Lists the rounding points that no step has compared (Audit::unobserved). Call it after the last step.
  void list_unobserved(std::span<const programs::RunPart> parts);
  /// Tells whether the rewards of an rl run gave its steps no gradient (Audit::uninformative). Call it after
  /// the last step.
  void judge_rewards();
  /// Lists the parts of the run without an observed step (Audit::unreached), with the option that reaches
  /// them: `--steps`, or `--from-step` for a run that is replayed.
  void list_unreached(std::span<const programs::RunPart> parts, const config::RunConfig& config,
                      bool replays);
  /// Marks a part of the run as observed.
  void begin_part(const programs::RunPart& part) { observed_.insert(part.program.get()); }

  /// Returns what the observed steps of this rank showed. `parts` are those of the run.
  comm::Bytes bytes(std::span<const programs::RunPart> parts) const;
  /// Adds what other ranks have observed, in other steps of the same run: the record is then that of one rank
  /// that observed all of them. No step may follow.
  void merge(std::span<const comm::Bytes> others, std::span<const programs::RunPart> parts);

 private:
  RouterSeries& router(const std::string& scope);
  ValueSeries& series_of(const plan::Program& program, const runtime::ObservedValue& value);

  Audit& audit_;
  /// By scope, op, pass, name and format: rules may change a format at a step.
  std::map<std::tuple<std::string, std::string, std::string, std::string, Scalar>, std::size_t> series_;
  std::set<const plan::Program*> observed_;
  std::int64_t rollouts_ = 0, alike_ = 0, equal_ = 0;  // alike: each prompt's rewards; equal: all rewards
  std::map<const plan::Program*, std::map<std::string, ExpectedError>> expected_;
  /// The rounding points whose effect was seen: scope, op, kind and name.
  std::set<std::tuple<std::string, std::string, plan::RoundingKind, std::string>> compared_;
};

/// Returns the steps before `first` in the metrics.jsonl of a run directory; none without that file. Throws
/// FileError if it is not a file of metrics.
std::vector<StepPoint> earlier_points(const std::filesystem::path& run, std::int64_t first);

}  // namespace mantissa::lab
