#include "mantissa/train/steps/log_probs.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/comm/bytes.h"
#include "mantissa/engine/runtime/batch.h"
#include "mantissa/train/steps/gathered_objective.h"

namespace mantissa::train {
namespace {

/// Returns the source of a reference: the base of an adapter, or the model at `path`.
weights::ModelSource reference_source(weights::ModelSource source, const std::string& path) {
  const bool adapts = source.config.adapter != nullptr;
  source.config.adapter = nullptr;
  source.adapter = nullptr;
  if (path.empty()) return source;
  weights::ModelSource other = weights::find_model(path);
  if (other.config.vocab_size != source.config.vocab_size) {
    throw ConfigError(
        "reference = \"{}\": has a vocabulary of {}, but the model in training one of {}. Fix: give "
        "a model with the same tokenizer",
        path, other.config.vocab_size, source.config.vocab_size);
  }
  if (adapts) {
    other.config.base.reset();
    other.config.base_plain.reset();
  }
  return other;
}

}  // namespace

LogProbs::LogProbs(std::shared_ptr<const plan::Program> program, const config::RunConfig& config)
    : program_(std::move(program)),
      micro_batch_(config.batch.micro_batch_size),
      leaf_(config.batch.leaf),
      seed_(config.run.seed) {}

void LogProbs::bind(std::shared_ptr<runtime::WeightSet> weights, std::shared_ptr<runtime::Arena> arena) {
  session_.reset();
  if (weights != nullptr) session_.emplace(program_, std::move(weights), std::move(arena));
}

std::optional<TokenValues> LogProbs::of(const text::StepData& rows, const std::stop_token& stop) {
  if (ranks_ == nullptr || ranks_->alone()) return of_items(rows, 0, rows.items(), stop);
  const Share share = share_of(ranks_->rank(), ranks_->size(), rows.items(), micro_batch_);
  const std::optional<TokenValues> own = of_items(rows, share.first, share.end, stop);
  if (!own) return std::nullopt;
  const auto joined = [&](const std::vector<double>& values) {
    std::vector<double> all;
    for (const comm::Bytes& of_rank : ranks_->all_gather(std::as_bytes(std::span(values))))
      std::ranges::copy(comm::values_of<double>(of_rank), std::back_inserter(all));
    return all;
  };
  return TokenValues{joined(own->log_probs), joined(own->values)};
}

std::optional<TokenValues> LogProbs::of_items(const text::StepData& rows, std::int64_t first,
                                              std::int64_t last, const std::stop_token& stop) {
  session_->set_stop(stop);
  session_->weights().scales().record(false);
  TokenValues all;
  const bool has_values = program_->find("value") != plan::kNoBuffer;
  runtime::Batch batch(leaf_, seed_);
  for (std::int64_t item = first; item < last; item += micro_batch_) {
    batch.clear();
    const std::int64_t end = rows.item_row(std::min(item + micro_batch_, last));
    for (std::int64_t r = rows.item_row(item); r < end; ++r) batch.add(rows.row(r));
    session_->feed(batch);
    session_->run(graph::Phase::forward, batch.extent());
    if (stop.stop_requested()) return std::nullopt;
    const runtime::Values log_probs = session_->read("log_prob", batch.tokens());
    for (std::size_t t = 0; t < log_probs.size(); ++t)
      all.log_probs.push_back(batch.targets()[t] < 0 ? 0 : log_probs[t]);
    if (!has_values) continue;
    const runtime::Values values = session_->read("value", batch.tokens());
    for (std::size_t t = 0; t < values.size(); ++t) all.values.push_back(values[t]);
  }
  return all;
}

Reference::Reference(const config::RunConfig& config, const weights::ModelSource& source,
                     const std::string& path, const runtime::Device& device)
    : config_(config),
      source_(reference_source(source, path)),
      shares_(path.empty() && source.config.adapter != nullptr),
      device_(device) {
  begin_part(0);
}

void Reference::begin_part(std::int64_t step) {
  if (log_probs_ && config_.policy.at_step(step) == config_.policy.at_step(part_)) return;
  part_ = step;
  weights_.reset();
  log_probs_.emplace(std::make_shared<const plan::Program>(
                         programs::compile_log_probs(config_, source_.config, device_, step)),
                     config_);
  log_probs_->share(ranks_);
}

void Reference::share(comm::Communicator& ranks) {
  ranks_ = &ranks;
  log_probs_->share(ranks_);
}

std::size_t Reference::bytes() const {
  return shares_ ? 0 : weights::read_bytes(program(), source_).all;
}

void Reference::bind(const std::shared_ptr<runtime::WeightSet>& weights,
                     std::shared_ptr<runtime::Arena> arena) {
  training_ = weights;
  if (weights == nullptr || shares_) return log_probs_->bind(weights, std::move(arena));
  if (weights_ == nullptr) {
    weights_ = std::make_shared<runtime::WeightSet>(
        weights::open_weights(program(), source_, device_, config_.run.seed));
  }
  log_probs_->bind(weights_, std::move(arena));
}

std::optional<TokenValues> Reference::of(const text::StepData& rows, const std::stop_token& stop) {
  if (!shares_) weights_->take_scales(*training_);
  return log_probs_->of(rows, stop);
}

}  // namespace mantissa::train
