#include "mantissa/generate/eval/effect.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/plan/rules.h"
#include "mantissa/files/convert/input_model.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/generate/eval/row_model.h"
#include "mantissa/setup/data/file_rows.h"
#include "mantissa/setup/programs/evaluation.h"

namespace mantissa::eval {
namespace {

template <class T>
double log_sum_exp(std::span<const T> logits) {
  const double most = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (const T logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  return most + std::log(sum);
}

/// Returns Σ p·(log p − log q) of position `t`. The logits are normalized here, in double: a divergence is
/// the square of a small difference, less than the rounding of an f32 log-sum-exp.
template <class T>
double divergence_at(const runtime::Values& from, const runtime::Values& to, std::int64_t t,
                     std::int64_t vocabulary) {
  const auto begin = static_cast<std::size_t>(t * vocabulary), count = static_cast<std::size_t>(vocabulary);
  const std::span<const T> p = from.as<T>().subspan(begin, count), q = to.as<T>().subspan(begin, count);
  const double p_norm = log_sum_exp(p), q_norm = log_sum_exp(q);
  double sum = 0;
  for (std::size_t v = 0; v < count; ++v) {
    const double log_p = static_cast<double>(p[v]) - p_norm, log_q = static_cast<double>(q[v]) - q_norm;
    sum += std::exp(log_p) * (log_p - log_q);
  }
  return std::max(0.0, sum);
}

}  // namespace

EffectRows::EffectRows(const io::ModelPath& in, precision::Policy policy, const Files& files)
    : policy_(std::move(policy)) {
  if (in.kind == io::ModelPath::Kind::file && !convert::is_rwkv_file(in)) {
    throw ConfigError(fmt::format(
        "--data: {} is neither a model directory, which needs config.json, nor a GGUF file; remove "
        "--data, or convert the model directory",
        in.path.string()));
  }
  original_ = weights::find_model(in.path);
  rows_ = data::file_rows(original_, files.names, files.format, files.sequence_length);
}

std::optional<convert::Effect> EffectRows::compare(const std::filesystem::path& converted,
                                                   const runtime::Device& device,
                                                   const std::stop_token& stop) const {
  const std::int64_t length = rows_.sequence_length, vocabulary = original_.config.vocab_size;
  const auto program = programs::compile_row_logits(original_.config, policy_, length, device);
  plan::check_rules(*program);
  const auto what = [](const weights::ModelSource& source) {
    return fmt::format("convert: the model is written; the loss of {} over", source.weights.string());
  };
  const weights::ModelSource rewritten = weights::find_model(converted);
  RowModel before(program, original_, device, what(original_)),
      after(program, rewritten, device, what(rewritten));
  convert::Effect effect;
  effect.tokens = rows_.rows * length;
  std::vector<double> divergence(static_cast<std::size_t>(length));
  for (std::int64_t r = 0; r < rows_.rows; ++r) {
    if (stop.stop_requested()) return std::nullopt;
    effect.loss -= before.run(rows_, r);
    effect.converted_loss -= after.run(rows_, r);
    const runtime::Values p = before.logits(rows_), q = after.logits(rows_);
    const auto divergence_of = p.type() == Scalar::f64 ? divergence_at<double> : divergence_at<float>;
    device.parallel_for(length, [&](std::int64_t t, int) {
      divergence[static_cast<std::size_t>(t)] = divergence_of(p, q, t, vocabulary);
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

namespace {

/// Compares the models. `out` exists by now, so the commands of cures must replace it.
std::optional<convert::Effect> compared(const EffectRows& rows, const std::filesystem::path& out,
                                        const runtime::Device& device, const std::stop_token& stop) {
  try {
    return rows.compare(out, device, stop);
  } catch (const RunStopped& e) {
    std::vector<Cure> cures = e.cures();
    for (Cure& cure : cures) cure.arguments.insert(cure.arguments.begin(), "--overwrite");
    throw RunStopped(e.message(), std::move(cures));
  }
}

}  // namespace

std::optional<convert::Report> convert_and_compare(const convert::Request& request,
                                                   const std::optional<EffectRows>& rows,
                                                   const runtime::Device& device,
                                                   const std::stop_token& stop) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<convert::Result> result = convert::convert(request, device.host(), stop);
  if (!result) return std::nullopt;
  convert::Report report;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.in = request.in.path;
  report.out = request.out;
  report.change = request.change;
  for (const convert::RewrittenTensor& t : result->tensors) report.total.merge(t.errors);
  report.notes = result->notes;
  report.warnings = result->warnings;
  report.result = std::move(*result);
  if (rows) report.effect = compared(*rows, request.out, device, stop);
  report.interrupted = rows && !report.effect;
  return report;
}

}  // namespace mantissa::eval
