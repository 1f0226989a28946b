// A small training run on puzzles under a policy, and its audits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mantissa/kernels/context.h"
#include "mantissa/lab/audit/findings.h"
#include "mantissa/lab/audit/gradients.h"
#include "mantissa/lab/audit/run.h"
#include "mantissa/setup/data/rows.h"
#include "mantissa/train/run/cures.h"

namespace mantissa::lab {

/// Two layers on puzzles.
inline constexpr const char* kConfig = R"(
[run]
name = "small"
steps = 40
[model]
hidden_size = 32
intermediate_size = 48
num_hidden_layers = 2
num_attention_heads = 2
vocab_size = 256
tie_word_embeddings = true
[data]
source = "kk"
sequence_length = 64
[batch]
global_batch_size = 4
micro_batch_size = 2
[optimizer]
lr = 1e-3
[schedule]
warmup_steps = 2
)";

struct SmallRun {
  explicit SmallRun(const std::string& policy, std::vector<std::string> rules = {},
                    const std::vector<std::string>& changes = {}, const std::string& text = kConfig)
      : device(runtime::open_device({.threads = 2})),
        config(config::parse_config(text, "run.toml", changes, {policy, std::move(rules)})),
        model(weights::find_model(config.model)),
        task(train::corpus_task(data::load_dataset(config, model.config, {}))) {}
  Audit audit(std::int64_t steps = 8, bool tries = false) const {
    return audit_run({config, model, *task, *device},
                     {.steps = steps, .tries_cures = tries, .trial_seconds = 1e6});
  }
  /// Returns the audit of the same steps with a cure.
  Audit under(const Cure& cure, std::int64_t steps) const {
    const config::RunConfig cured = run::with_cure(config, cure);
    return audit_run({cured, model, *task, *device}, {.steps = steps, .tries_cures = false});
  }
  std::shared_ptr<const runtime::Device> device;
  config::RunConfig config;
  weights::ModelSource model;
  std::unique_ptr<train::Task> task;
};

inline std::string list(const Audit& audit) {
  std::string text;
  for (const Finding& f : audit.findings) text += f.kind + ": " + f.text + " " + f.remark + "\n";
  return text;
}

}  // namespace mantissa::lab
