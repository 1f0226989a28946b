#include "mantissa/generate/rollout/kept_sequence.h"

#include <algorithm>
#include <bit>

#include "mantissa/engine/model/network.h"
#include "mantissa/engine/plan/rules.h"
#include "mantissa/generate/rollout/decode_session.h"
#include "mantissa/setup/programs/decoding.h"

namespace mantissa::rollout {
namespace {

/// Positions of the first cache. Larger ones double, so that few are made.
constexpr std::int64_t kFirstPositions = 1024;
/// Of a model with any number of positions, whose states do not grow with them.
constexpr std::int64_t kAnyPositions = std::int64_t{1} << 30;

}  // namespace

KeptSequence::KeptSequence(weights::ModelSource source, precision::Policy policy,
                           const runtime::Device& device)
    : source_(std::move(source)), policy_(std::move(policy)), device_(device) {}

void KeptSequence::reserve(std::int64_t positions) {
  // Such a model's values depend on the number of positions, so that nothing can be kept.
  const bool by_length = source_.config.network->depends_on_length(positions);
  if (session_ && !by_length && positions <= session_->program().positions) return;
  std::int64_t capacity = positions;
  if (!by_length) {
    const auto doubled = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(positions)));
    const std::int64_t context = source_.config.max_position_embeddings;
    capacity = context == 0 ? kAnyPositions : std::max(doubled, kFirstPositions);
    if (context > 0) capacity = std::max(positions, std::min(capacity, context));
    if (source_.config.network->depends_on_length(capacity)) capacity = positions;
  }
  auto program = programs::compile_decode(source_.config, policy_, capacity, device_);
  fed_.clear();
  session_.reset();  // before the memory of the next one
  if (weights_ == nullptr) {
    plan::check_rules(*program);
    weights_program_ = program;
    weights_ = std::make_shared<runtime::WeightSet>(weights::open_weights(*program, source_, device_));
  }
  rewinds_ = std::ranges::none_of(program->buffers, [](const plan::Buffer& b) {
    return b.home == plan::Home::state && b.keeps == graph::SequenceState::prefix;
  });
  session_.emplace(std::move(program), weights_);
}

Continuation KeptSequence::extend(std::span<const std::int32_t> prompt, const GenerateOptions& options) {
  reserve(static_cast<std::int64_t>(prompt.size()) + options.max_new_tokens);
  Continuation result;
  // The last token is always fed: its logits choose the next one.
  const auto same = std::ranges::mismatch(prompt, fed_).in1 - prompt.begin();
  result.kept = std::clamp<std::int64_t>(same, 0, std::ssize(prompt) - (prompt.empty() ? 0 : 1));
  if (!rewinds_ && result.kept < std::ssize(fed_)) result.kept = 0;
  const Request request{{prompt.begin(), prompt.end()}, 0, result.kept};
  fed_.resize(rewinds_ ? static_cast<std::size_t>(result.kept) : 0);  // if generate() throws
  result.generation = std::move(generate(*session_, source_.config, {&request, 1}, options).front());
  // States that cannot rewind are unknown after an interrupted step.
  if (!result.generation.ids.empty() && (rewinds_ || result.generation.ended)) {
    // The last token was not fed, or its step may have been interrupted.
    fed_.assign(prompt.begin(), prompt.end());
    fed_.insert(fed_.end(), result.generation.ids.begin(), result.generation.ids.end() - 1);
  }
  return result;
}

std::optional<SequenceStates> KeptSequence::states() {
  if (fed_.empty()) return std::nullopt;
  DecodeSession decoder(*session_);
  decoder.open(0, fed_, 0, std::ssize(fed_));
  SequenceStates states = decoder.states_of(0);
  states.ids = fed_;
  return states;
}

void KeptSequence::restore(const SequenceStates& states) {
  reserve(std::ssize(states.ids) + 1);
  check_states(states, session_->program());
  DecodeSession(*session_).restore(0, states);
  fed_.assign(states.ids.begin(), states.ids.begin() + states.fed);
}

}  // namespace mantissa::rollout
