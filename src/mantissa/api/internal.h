// What the files of this room share; not installed.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "mantissa/api/mantissa.h"
#include "mantissa/config/run_config.h"
#include "mantissa/cost/forecast.h"
#include "mantissa/cost/target.h"
#include "mantissa/kernels/context.h"
#include "mantissa/model/config.h"
#include "mantissa/precision/policy.h"
#include "mantissa/text/dataset.h"
#include "mantissa/text/tokenizer.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::api {

struct Config::Impl {
  config::RunConfig run;
  config::Told told;
};

/// Threads, instruction set and device as asked, checked against this machine.
kernels::Context context_for(const Hardware& hardware, std::int64_t config_threads = 0);

/// The policy of a command that has no config, and no steps: `fallback` where none is named, with the rules
/// that hold in step 0. What there is to tell goes to `told` where it is not null.
precision::Policy policy_for(const Precision& precision, const std::string& fallback = "32-true",
                             config::Told* told = nullptr);

/// Throws ConfigError for what the kernels do not do, and for rules that match nothing in `program`.
void check_plan(const plan::Program& program);

/// The rows that [data] describes, for `model`; from `tokens` where there are any. Throws ConfigError where
/// text would be read as bytes and the ids of the config's model are of another tokenizer.
text::Dataset load_dataset(const config::RunConfig& config, const model::ModelConfig& model,
                           const std::vector<std::int32_t>& tokens);

/// A note on the entries of the vocabulary that the data cannot have; "" where there are none.
std::string data_note(const config::RunConfig& config, const model::ModelConfig& model);

/// Entries of the byte tokenizer.
inline constexpr std::int64_t kByteEntries = 256;

/// A tokenizer's file in a model directory; empty where there is none.
std::filesystem::path tokenizer_file(const std::filesystem::path& directory);

/// Bytes where the model has 256 entries and no tokenizer's file beside it; null else.
std::unique_ptr<text::Tokenizer> tokenizer_of(const weights::ModelSource& source);

/// Why tokenizer_of() gives null: the file, or the size of the vocabulary.
std::string why_no_bytes(const weights::ModelSource& source);

/// The rows over which a model directory is measured: files or {"kk"}, in their order.
text::StepData evaluation_rows(const weights::ModelSource& source, const std::vector<std::string>& data,
                               const std::string& format, std::int64_t sequence_length);

/// Plan, memory and time of a training run as text and JSON, and what it would be on other machines.
Plan describe(const config::RunConfig& config, const model::ModelConfig& model, const plan::Program& program,
              const cost::MemoryForecast& memory, const cost::Machine& machine, const kernels::Context& ctx,
              const config::Told& told, std::span<const cost::Target> targets = {});

/// Adds what was told of a config or a policy to a plan's notes and warnings.
void add_told(Plan& plan, const config::Told& told);

/// Throws ConfigError where precision.native_only is true and `program` needs a format that this machine does
/// not compute in itself, or, where there are targets, that one of them does not.
void check_native(const config::RunConfig& config, const plan::Program& program,
                  std::span<const cost::Target> targets = {});

/// "f32 native, bf16 converted": the formats that `program` needs, on this machine.
std::string formats_here(const plan::Program& program);
/// The same of a target: "f16 native, bf16 NO (in f32)".
std::string formats_there(const plan::Program& program, const cost::Target& target);

/// What explain says of a target: a plan, its JSON, and the lines of the text.
struct TargetExplained {
  TargetPlan plan;
  nlohmann::json json;
  std::string fits, time;
};
TargetExplained explain_target(const cost::Target& target, const config::RunConfig& config,
                               const model::ModelConfig& model, const plan::Program& program,
                               const kernels::Context& ctx);
/// Of generation: `weights` are the bytes that are read for each token.
TargetExplained explain_target(const cost::Target& target, const plan::Program& program, std::size_t weights);

/// How this machine has each format of training, and its measured rates.
nlohmann::json machine_json(const kernels::Context& ctx, const cost::Machine& machine,
                            const plan::Program& program);

/// "96.2 MB"
std::string human_bytes(double bytes);
/// "2.4 s", "12 min"
std::string human_seconds(double seconds);

}  // namespace mantissa::api
