#include "mantissa/train/steps/fixed_model.h"

#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/setup/programs/training.h"

namespace mantissa::train {
namespace {

/// Returns the source of a reference: the base of an adapter, or the model at `path`.
weights::ModelSource reference_source(weights::ModelSource source, const std::string& path) {
  const bool adapts = source.config.adapter != nullptr;
  source.config.adapter = nullptr;
  source.adapter = nullptr;
  if (path.empty()) return source;
  weights::ModelSource other = model_beside(path, "reference", source.config);
  if (adapts) {
    other.config.base.reset();
    other.config.base_plain.reset();
  }
  return other;
}

}  // namespace

FixedModel::FixedModel(const config::RunConfig& config, weights::ModelSource source, Compile compile,
                       const runtime::Device& device)
    : config_(config), source_(std::move(source)), compile_(std::move(compile)), device_(device) {
  begin_part(0);
}

void FixedModel::begin_part(std::int64_t step) {
  if (passes_ && config_.policy.at_step(step) == config_.policy.at_step(part_)) return;
  part_ = step;
  weights_.reset();
  passes_.emplace(compile_(source_.config, step), config_);
  passes_->share(ranks_);
}

void FixedModel::share(comm::Communicator& ranks) {
  ranks_ = &ranks;
  passes_->share(ranks_);
}

std::size_t FixedModel::bytes() const {
  return weights::read_bytes(program(), source_).all;
}

void FixedModel::bind(std::shared_ptr<runtime::Arena> arena) {
  if (arena == nullptr) return passes_->bind(nullptr, nullptr);
  if (weights_ == nullptr) {
    weights_ = std::make_shared<runtime::WeightSet>(
        weights::open_weights(program(), source_, device_, config_.run.seed));
  }
  passes_->bind(weights_, std::move(arena));
}

void FixedModel::bind(std::shared_ptr<runtime::WeightSet> weights, std::shared_ptr<runtime::Arena> arena) {
  passes_->bind(std::move(weights), std::move(arena));
}

std::optional<TokenValues> FixedModel::of(const text::StepData& rows, const std::stop_token& stop) {
  return passes_->of(rows, stop);
}

Reference::Reference(const config::RunConfig& config, const weights::ModelSource& source,
                     const std::string& path, const runtime::Device& device)
    : shares_(path.empty() && source.config.adapter != nullptr),
      model_(
          config, reference_source(source, path),
          [config, &device](const model::ModelConfig& model, std::int64_t step) {
            return std::make_shared<const plan::Program>(
                programs::compile_log_probs(config, model, device, step));
          },
          device) {}

void Reference::bind(const std::shared_ptr<runtime::WeightSet>& weights,
                     std::shared_ptr<runtime::Arena> arena) {
  training_ = weights;
  shares_ ? model_.bind(weights, std::move(arena)) : model_.bind(std::move(arena));
}

std::optional<TokenValues> Reference::of(const text::StepData& rows, const std::stop_token& stop) {
  if (!shares_) model_.weights().take_scales(*training_);
  return model_.of(rows, stop);
}

weights::ModelSource model_beside(const std::string& path, const std::string& key,
                                  const model::ModelConfig& trained) {
  weights::ModelSource other = weights::find_model(path);
  if (other.config.vocab_size != trained.vocab_size) {
    throw ConfigError(
        "{} = \"{}\": has a vocabulary of {}, but the model in training one of {}. Fix: give a model with the "
        "same tokenizer",
        key, path, other.config.vocab_size, trained.vocab_size);
  }
  return other;
}

}  // namespace mantissa::train
