#include "mantissa/api/conversion_effect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/kernels/update.h"
#include "mantissa/model/graphs.h"
#include "mantissa/plan/compile.h"
#include "mantissa/runtime/batch.h"
#include "mantissa/runtime/executor.h"
#include "mantissa/runtime/nonfinite.h"

namespace mantissa::api {
namespace {

/// A model that gives the logits of one row at a time.
class RowModel {
 public:
  RowModel(const plan::Program& program, const weights::ModelSource& source, const kernels::Context& ctx)
      : path_(source.weights),
        weights_(weights::open_weights(program, source, ctx)),
        executor_(program, weights_, ctx) {}

  /// Row `r`; returns the sum of the log-probabilities of each next token. Throws RunStopped where it is not
  /// finite.
  double run(const text::StepData& rows, std::int64_t r, const Extent& extent) {
    const std::int64_t length = rows.sequence_length;
    for (std::int64_t t = 0; t < length; ++t) {
      const auto at = static_cast<std::size_t>(r * (length + 1) + t);
      executor_.integers("ids")[static_cast<std::size_t>(t)] = rows.ids[at];
      executor_.integers("targets")[static_cast<std::size_t>(t)] = rows.ids[at + 1];
    }
    const auto forward = [&] { executor_.run(graph::Phase::forward, extent); };
    forward();
    const Matrix log_prob = executor_.buffer("log_prob");
    const double sum = kernels::chunked_sum(log_prob.data, log_prob.type, length);
    if (std::isfinite(sum)) return sum;
    runtime::stop_non_finite(fmt::format("convert: the model is written; the loss of {} over row {} is {}",
                                         path_.string(), r, runtime::unsigned_nan(-sum)),
                             runtime::find_first_non_finite(executor_, r, forward), executor_.program());
  }
  Matrix logits() const { return executor_.buffer("logits"); }

 private:
  std::filesystem::path path_;
  runtime::WeightSet weights_;
  runtime::Executor executor_;
};

template <class T>
double log_sum_exp(const T* logits, std::int64_t n) {
  const double most = static_cast<double>(*std::max_element(logits, logits + n));
  double sum = 0;
  for (std::int64_t v = 0; v < n; ++v) sum += std::exp(static_cast<double>(logits[v]) - most);
  return most + std::log(sum);
}

/// Σ p·(log p − log q) of position `t`. The logits are normalised here, in double: a divergence is the square
/// of a small difference, less than the rounding of an f32 log-sum-exp.
template <class T>
double divergence_at(Matrix from, Matrix to, std::int64_t t, std::int64_t vocabulary) {
  const T* p = static_cast<const T*>(from.data) + t * vocabulary;
  const T* q = static_cast<const T*>(to.data) + t * vocabulary;
  const double p_norm = log_sum_exp(p, vocabulary), q_norm = log_sum_exp(q, vocabulary);
  double sum = 0;
  for (std::int64_t v = 0; v < vocabulary; ++v) {
    const double log_p = static_cast<double>(p[v]) - p_norm, log_q = static_cast<double>(q[v]) - q_norm;
    sum += std::exp(log_p) * (log_p - log_q);
  }
  return std::max(0.0, sum);
}

}  // namespace

EffectRows::EffectRows(const convert::Source& in, const ConvertOptions& options)
    : policy_(policy_for(options.precision)) {
  if (in.kind != convert::Source::Kind::model) {
    throw ConfigError(fmt::format(
        "--data: {} is no model directory, and only one with config.json can be run; leave --data out, or "
        "convert the model directory",
        in.path.string()));
  }
  original_ = weights::find_model(in.path);
  rows_ = evaluation_rows(original_, options.data, options.data_format, options.sequence_length);
}

std::optional<ConversionEffect> EffectRows::compare(const std::filesystem::path& converted,
                                                    const kernels::Context& ctx,
                                                    const std::stop_token& stop) const {
  const std::int64_t length = rows_.sequence_length, vocabulary = original_.config.vocab_size;
  plan::CompileOptions compile;
  compile.longest_row = compile.longest_leaf = length;
  const plan::Program program =
      plan::compile(model::build_logits(original_.config, length, length, false), policy_, compile, ctx);
  check_plan(program);
  RowModel before(program, original_, ctx), after(program, weights::find_model(converted), ctx);
  runtime::Batch batch(1, length, 1);
  const bool wide = before.logits().type == Scalar::f64;
  ConversionEffect effect;
  effect.tokens = rows_.rows * length;
  std::vector<double> divergence(static_cast<std::size_t>(length));
  for (std::int64_t r = 0; r < rows_.rows; ++r) {
    if (stop.stop_requested()) return std::nullopt;
    batch.key(0, static_cast<std::uint64_t>(r));
    effect.loss -= before.run(rows_, r, batch.extent());
    effect.converted_loss -= after.run(rows_, r, batch.extent());
    const Matrix p = before.logits(), q = after.logits();
    kernels::parallel_for(ctx, length, [&](std::int64_t t, int) {
      divergence[static_cast<std::size_t>(t)] =
          wide ? divergence_at<double>(p, q, t, vocabulary) : divergence_at<float>(p, q, t, vocabulary);
    });
    for (const double d : divergence) {
      effect.kl += d;
      effect.max_kl = std::max(effect.max_kl, d);
    }
  }
  const auto tokens = static_cast<double>(effect.tokens);
  effect.loss /= tokens;
  effect.converted_loss /= tokens;
  effect.kl /= tokens;
  return effect;
}

}  // namespace mantissa::api
