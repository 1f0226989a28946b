#include "mantissa/api/evaluate.h"

#include "mantissa/api/internal.h"
#include "mantissa/eval/evaluate.h"

namespace mantissa::api {
namespace {

Evaluation evaluation_of(const eval::Evaluation& e) {
  return {e.tokens, e.loss, e.perplexity, e.bits_per_byte, e.puzzles, e.well_formed, e.accuracy};
}

}  // namespace

Evaluation evaluate(const std::filesystem::path& model, const std::vector<std::string>& data,
                    const std::string& format, std::int64_t sequence_length, std::int64_t puzzles,
                    const Precision& precision, const Hardware& hardware) {
  const kernels::Context ctx = context_for(hardware);
  const weights::ModelSource source = weights::find_model(model);
  return evaluation_of(
      eval::evaluate_model(source, policy_for(precision), {data, format, sequence_length, puzzles}, ctx));
}

Evaluation evaluate(const std::filesystem::path& model, const Data& data, std::int64_t sequence_length,
                    const Precision& precision, const Hardware& hardware) {
  const kernels::Context ctx = context_for(hardware);
  const weights::ModelSource source = weights::find_model(model);
  return evaluation_of(eval::evaluate_rows(source, policy_for(precision),
                                           data::memory_rows(source.config, memory_of(data), sequence_length),
                                           ctx));
}

Evaluation evaluate(const Config& config, std::int64_t puzzles, const Hardware& hardware, const Data& data) {
  const config::RunConfig& run = config.impl().run;
  return evaluation_of(
      eval::evaluate_run(run, memory_of(data), puzzles, context_for(hardware, run.run.threads)));
}

}  // namespace mantissa::api
