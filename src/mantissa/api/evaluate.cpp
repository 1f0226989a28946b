#include "mantissa/api/evaluate.h"

#include "mantissa/api/internal.h"
#include "mantissa/eval/evaluate.h"

namespace mantissa::api {
namespace {

Evaluation evaluation_of(const eval::Evaluation& e) {
  return {e.tokens,  e.loss,        e.perplexity, e.bits_per_byte,
          e.puzzles, e.well_formed, e.accuracy,   e.interrupted};
}

}  // namespace

Evaluation evaluate(const Model& model, const std::vector<std::string>& data, const std::string& format,
                    std::int64_t sequence_length, std::int64_t puzzles, const Precision& precision,
                    const Hardware& hardware, std::stop_token stop) {
  const auto device = device_for(hardware);
  const weights::ModelSource source = source_of(model);
  return evaluation_of(eval::evaluate_model(source, policy_for(precision),
                                            {data, format, sequence_length, puzzles}, *device, stop));
}

Evaluation evaluate(const Model& model, const Data& data, std::int64_t sequence_length,
                    const Precision& precision, const Hardware& hardware, std::stop_token stop) {
  const auto device = device_for(hardware);
  const weights::ModelSource source = source_of(model);
  return evaluation_of(eval::evaluate_rows(source, policy_for(precision),
                                           data::memory_rows(source.config, memory_of(data), sequence_length),
                                           *device, stop));
}

Evaluation evaluate(const Config& config, std::int64_t puzzles, const Hardware& hardware, const Data& data,
                    std::stop_token stop) {
  const config::RunConfig& run = config.impl().run;
  return evaluation_of(
      eval::evaluate_run(run, memory_of(data), puzzles, *device_for(hardware, run.run.threads), stop));
}

}  // namespace mantissa::api
