#include "mantissa/api/audit.h"

#include "mantissa/api/internal.h"
#include "mantissa/lab/audit_run.h"
#include "mantissa/precision/supported.h"

namespace mantissa::api {

AuditReport audit(const Config& config, const AuditOptions& options, const OnAuditStep& on_step,
                  std::stop_token stop) {
  const config::RunConfig& run = config.impl().run;
  precision::check_supported(run.policy);
  const auto device = device_for(options.hardware, run.run.threads);
  const weights::ModelSource model = weights::find_model(run.model);
  const text::Dataset rows = data::load_dataset(run, model.config, memory_of(options.data));
  const lab::Audit audit = lab::audit_run(
      {run, model, rows, *device}, {.steps = options.steps, .tries_cures = options.try_cures},
      [&](const train::StepReport& step, std::int64_t steps) {
        if (on_step) on_step(step.step, steps, step.loss);
      },
      stop);
  return {lab::to_text(audit), lab::to_json(audit),
          lab::to_html(audit), static_cast<std::int64_t>(audit.findings.size()),
          audit.steps,         stop.stop_requested()};
}

}  // namespace mantissa::api
