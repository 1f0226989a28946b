// Parameters in memory and the update program of an optimizer over them, bound as in training.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "mantissa/engine/plan/passes.h"
#include "mantissa/kernels/update.h"
#include "mantissa/setup/programs/update.h"
#include "mantissa/train/steps/evaluation_weights.h"
#include "mantissa/train/steps/update.h"

namespace mantissa::testing {

/// A program that trains `parameters` under `policy`, reduced to what an update needs: slots with masters,
/// copies in the compute format if that is lower, and gradients.
inline plan::Program trained_by(const precision::Policy& policy,
                                const std::vector<optim::Parameter>& parameters) {
  plan::Program p;
  p.policy = policy;
  p.arithmetic = policy.arithmetic();
  for (const optim::Parameter& parameter : parameters) {
    const std::string scope = parameter.name.substr(0, parameter.name.rfind('.'));
    const precision::Resolved r = policy.resolve({scope, "matmul", precision::Pass::backward, 0});
    const auto add = [&](const std::string& name, Scalar type, plan::Home home) {
      plan::Buffer b;
      b.name = name;
      b.shape = parameter.shape;
      b.type = type;
      b.home = home;
      b.slot = static_cast<std::int32_t>(p.slots.size());
      p.buffers.push_back(b);
      return static_cast<plan::BufferId>(p.buffers.size() - 1);
    };
    plan::Slot slot;
    slot.name = parameter.name;
    slot.shape = parameter.shape;
    slot.master = r.params;
    slot.master_buffer = add(parameter.name, r.params, plan::Home::master);
    if (!holds(r.compute->stored, r.params))
      slot.copies.push_back(add(parameter.name + ":copy", r.compute->stored, plan::Home::copy));
    slot.gradient = add(parameter.name + ".grad", r.grads, plan::Home::gradient);
    p.slots.push_back(std::move(slot));
  }
  plan::lay_out_memory(p, false);
  return p;
}

/// The weights, gradients and states of one optimizer's parameters.
class UpdateCase {
 public:
  UpdateCase(std::string_view optimizer, const optim::Settings& changes,
             const std::vector<optim::Parameter>& parameters, const precision::Policy& policy,
             const kernels::Context& ctx = {.simd = kernels::best_simd()})
      : device_(runtime::cpu(ctx)),
        training_(std::make_shared<plan::Program>(trained_by(policy, parameters))),
        numbers_(programs::add_update(
            *training_, {&optim::find_optimizer(optimizer), settings(optimizer, changes), parameters},
            *device_)),
        weights_(std::make_shared<runtime::WeightSet>(*training_, *device_)),
        session_(training_, weights_),
        kept_(training_->update->memory.kept),
        update_(numbers_, session_, kept_.data()) {}

  static optim::Settings settings(std::string_view optimizer, const optim::Settings& changes) {
    optim::Settings all = optim::defaults(optim::find_optimizer(optimizer));
    for (const auto& [key, value] : changes) all.insert_or_assign(key, value);
    return all;
  }

  /// Sets a weight before the first step, and the states that start at weights.
  void set_weight(std::size_t i, const std::vector<double>& values) {
    store(weights_->master(i), values);
    train::start_weight_states(update_, *weights_);
  }
  void set_gradient(std::size_t i, const std::vector<double>& values) {
    store(session_.executor().buffer(training_->slots[i].gradient), values);
  }
  std::vector<double> weight(std::size_t i) const { return load(weights_->master(i), count(i)); }
  std::vector<double> copy(std::size_t i) const { return load(weights_->copy(i, 0), count(i)); }
  /// The state "KIND.NAME".
  std::vector<double> state(std::string_view name) const {
    for (const train::Update::State& s : update_.states()) {
      const plan::Buffer& b = program().buffer(s.buffer);
      if (b.name != name) continue;
      if (b.codes == StateCodes::none) return load({s.data, b.type, b.shape.last()}, b.shape.count());
      std::vector<float> values(static_cast<std::size_t>(b.shape.count()));
      decode_states({b.codes, s.data, values.size()}, 0, values.size(), values.data());
      return {values.begin(), values.end()};
    }
    return {};
  }
  /// The memory of that state.
  std::vector<std::byte> state_bytes(std::string_view name) const {
    for (const train::Update::State& s : update_.states()) {
      const plan::Buffer& b = program().buffer(s.buffer);
      if (b.name == name) return {s.data, s.data + b.bytes};
    }
    return {};
  }
  /// All bytes that an update can change.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(kept_.data(), kept_.data() + kept_.size());
    for (std::size_t i = 0; i < training_->slots.size(); ++i) {
      const auto add = [&](Matrix m) {
        const auto* data = static_cast<const std::byte*>(m.data);
        all.insert(all.end(), data, data + static_cast<std::size_t>(count(i)) * bytes_of(m.type));
      };
      add(weights_->master(i));
      if (!training_->slots[i].copies.empty()) add(weights_->copy(i, 0));
    }
    return all;
  }
  train::UpdateResult step(const train::UpdateStep& s) { return update_.apply(s); }
  const plan::Program& program() const { return *training_->update; }
  const plan::Program& training() const { return *training_; }
  std::span<const train::Update::State> states() const { return update_.states(); }

 private:
  std::int64_t count(std::size_t i) const { return training_->slots[i].shape.count(); }
  void store(Matrix m, const std::vector<double>& values) const {
    kernels::cast(device_->host(), static_cast<std::int64_t>(values.size()), values.data(), Scalar::f64,
                  m.data, m.type);
  }
  std::vector<double> load(Matrix m, std::int64_t n) const {
    std::vector<double> values(static_cast<std::size_t>(n));
    kernels::cast(device_->host(), n, m.data, m.type, values.data(), Scalar::f64);
    return values;
  }

  std::shared_ptr<const runtime::Device> device_;
  std::shared_ptr<plan::Program> training_;
  std::vector<optim::Number> numbers_;
  std::shared_ptr<runtime::WeightSet> weights_;
  runtime::Session session_;
  Storage kept_;
  train::Update update_;
};

}  // namespace mantissa::testing
