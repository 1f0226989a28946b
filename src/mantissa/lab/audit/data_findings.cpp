#include "mantissa/lab/audit/data_findings.h"

#include <fmt/format.h>

#include <utility>

#include "mantissa/core/base/counted.h"
#include "mantissa/setup/config/stages.h"
#include "mantissa/train/run/cures.h"

namespace mantissa::lab {
namespace {

constexpr const char *kHead = "lm_head", *kLoss = "log_prob";  // where labels are read

Finding no_labels(std::int64_t step, std::string text) {
  Finding f;
  f.kind = "no_labels";
  f.scope = kHead;
  f.op = kLoss;
  f.pass = "forward";
  f.step = step;
  f.share = 1;
  f.severity = 110;
  f.text = std::move(text);
  return f;
}

}  // namespace

std::vector<Finding> data_findings(const AuditSource& source, std::int64_t last) {
  std::vector<Finding> found;
  const text::Dataset* rows_in_files = source.task.dataset();
  if (rows_in_files == nullptr || rows_in_files->training_rows() == 0) return found;
  std::int64_t empty = 0, rows = 0;
  Finding masked;
  for (std::int64_t step = source.from; step <= last; ++step) {
    text::StepData data;
    try {
      const config::RunConfig stage =
          config::stage_config(source.config, config::stage_at(source.config, step - 1));
      data = rows_in_files->step(step, stage.batch.global_batch_size);
    } catch (const ConfigError& e) {
      return {no_labels(step, fmt::format("step {}: {}", step, e.message()))};
    }
    for (std::int64_t r = 0; r < data.rows; ++r, ++rows) {
      if (data.weight_of(r) > 0) continue;
      if (empty++ == 0) masked.step = step;
      if (masked.step == step) masked.rows.push_back(data.origin[static_cast<std::size_t>(r)]);
    }
  }
  const auto add = [&](Finding f, std::int64_t count, std::int64_t of, const char* effect) {
    if (count == 0) return;
    f.kind = "masked_row";
    f.scope = kHead;
    f.op = kLoss;
    f.pass = "forward";
    f.share = static_cast<double>(count) / static_cast<double>(of);
    f.severity = 35;
    f.text =
        fmt::format("{} of {} of the data have no label that counts: {}", count, counted(of, "row"), effect);
    found.push_back(std::move(f));
  };
  add(std::move(masked), empty, rows, "they train nothing");
  const std::int64_t left_out = rows_in_files->left_out();
  Finding unused;
  unused.step = source.from;
  add(std::move(unused), left_out,
      left_out + rows_in_files->training_rows() + rows_in_files->validation_rows(), "they are not used");
  return found;
}

Audit audit_without_labels(const config::RunConfig& config, const model::ModelConfig& model,
                           const data::NoLabels& error, const AuditOptions& options) {
  Audit audit;
  audit.command = options.command;
  audit.run_command = options.run_command;
  audit.preset = config.policy.preset();
  audit.policy = config.policy.line();
  audit.model = model.model_type;
  audit.title = fmt::format("run \"{}\" under {}", config.run.name, config.policy.title());
  Finding f = no_labels(1, error.message());
  for (Cure cure : error.cures()) {
    if (!options.tries_cures || f.cure) break;
    try {
      data::load_dataset(run::with_cure(config, cure), model);
    } catch (const Error&) {
      continue;
    }
    cure.tested = true;
    if (options.cure_command) f.command = options.cure_command(cure);
    f.cure = std::move(cure);
  }
  audit.findings = {std::move(f)};
  audit.verdict = fmt::format("{} did not start: {}", audit.title, error.message());
  return audit;
}

}  // namespace mantissa::lab
