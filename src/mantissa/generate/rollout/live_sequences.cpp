#include "mantissa/generate/rollout/live_sequences.h"

#include <algorithm>
#include <new>
#include <utility>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/model/network.h"
#include "mantissa/engine/plan/rules.h"
#include "mantissa/engine/runtime/process.h"
#include "mantissa/generate/rollout/complete.h"
#include "mantissa/generate/rollout/generate.h"
#include "mantissa/generate/rollout/log_prob.h"
#include "mantissa/generate/rollout/states_origin.h"

namespace mantissa::rollout {
namespace {

/// Returns the `count` ids with the largest logits, equal ones by increasing id.
template <class T>
std::vector<std::int32_t> largest_ids(std::span<const T> logits, std::size_t count) {
  std::vector<std::int32_t> ids;
  if (count == 0) return ids;
  const auto larger = [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  };
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (ids.size() == count && !larger(id, ids.back())) continue;
    if (ids.size() == count) ids.pop_back();
    ids.insert(std::ranges::upper_bound(ids, id, larger), id);
  }
  return ids;
}

}  // namespace

std::int64_t live_capacity(const model::ModelConfig& config, std::int64_t wanted) {
  if (config.max_position_embeddings > 0) wanted = std::min(wanted, config.max_position_embeddings);
  std::int64_t most = wanted, least = 0;
  while (config.network->depends_on_length(most) && most - least > 1) {
    const std::int64_t middle = least + (most - least) / 2;
    (config.network->depends_on_length(middle) ? most : least) = middle;
  }
  return config.network->depends_on_length(most) ? least : std::max(most, least);
}

LiveSequences::LiveSequences(const weights::ModelSource& source, const precision::Policy& policy,
                             std::int64_t capacity, std::int64_t streams, const runtime::Device& device)
    : vocabulary_(source.config.vocab_size),
      policy_(name_of(policy)),
      independent_(!depends_on_others(source, policy, device)) {
  auto program = compile_decode_within(runtime::machine_memory_bytes(), source, policy, capacity,
                                       independent_ ? streams : 1, device);
  plan::check_rules(*program);
  auto weights = std::make_shared<runtime::WeightSet>(weights::open_weights(*program, source, device));
  interleave_weights(*weights, *program);
  keyed_ = std::ranges::any_of(program->steps,
                               [](const plan::Step& step) { return step.rounding == Rounding::stochastic; });
  session_ = std::make_unique<runtime::Session>(std::move(program), std::move(weights));
  decoder_.emplace(*session_);
  slots_.resize(decoder_->slots());
}

void LiveSequences::check(const LiveRequest& r) const {
  rollout::check(r.sampling);
  if (r.prompt.empty()) throw ConfigError("the prompt is empty; give at least one token");
  for (std::size_t i = 0; i < r.prompt.size(); ++i) {
    if (r.prompt[i] < 0 || r.prompt[i] >= vocabulary_) {
      throw ConfigError("the prompt's id {} at position {} is outside this model's vocabulary (0 … {})",
                        r.prompt[i], i, vocabulary_ - 1);
    }
  }
  if (std::ssize(r.prompt) > capacity() - r.max_new_tokens) {
    throw ConfigError("the prompt has {}, and {} may follow, but a sequence has at most {}",
                      counted(r.prompt.size(), "token"), r.max_new_tokens, capacity());
  }
}

void LiveSequences::add(LiveRequest request) {
  try {
    waiting_.push_back(std::move(request));  // moves it once there is memory
  } catch (const std::bad_alloc&) {
    if (request.on_end) request.on_end(std::current_exception());
  }
}

/// Returns how many tokens of the prompt of `request` the states of `slot` have taken in already. The last
/// token is always fed, for its logits.
std::int64_t LiveSequences::states_for(std::size_t slot, const LiveRequest& request) const {
  const Slot& s = slots_[slot];
  if (!independent_ || request.prompt_log_probs || s.leader) return 0;
  if (keyed_) return 0;
  const std::span<const std::int32_t> held(
      s.ids.data(), std::min(s.ids.size(), static_cast<std::size_t>(decoder_->fed(slot))));
  const std::span<const std::int32_t> wanted(request.prompt.data(), request.prompt.size() - 1);
  const auto same = std::ranges::mismatch(held, wanted).in1 - held.begin();
  return decoder_->has_states_after(slot, same) ? same : 0;
}

/// Returns a slot that feeds the prompt of the request in `slot`.
std::optional<std::size_t> LiveSequences::leader_for(std::size_t slot) const {
  const LiveRequest& wanted = *slots_[slot].request;
  if (!independent_ || keyed_ || wanted.prompt_log_probs || wanted.prompt.size() < 2) return std::nullopt;
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    const Slot& other = slots_[s];
    if (s == slot || !other.request || other.leader || other.request->prompt != wanted.prompt) continue;
    if (decoder_->fed(s) < std::ssize(wanted.prompt) - 1) return s;
  }
  return std::nullopt;
}

std::size_t LiveSequences::slot_for(const LiveRequest& request) const {
  constexpr std::int64_t kWorthwhile =
      16;  // tokens for which a slot is preferred to the one unused for longest
  std::size_t best = slots_.size();
  std::int64_t most = 0;
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].request) continue;
    std::int64_t kept = states_for(s, request);
    if (kept < kWorthwhile) kept = 0;
    if (best == slots_.size() || kept > most || (kept == most && slots_[s].used < slots_[best].used)) {
      best = s;
      most = kept;
    }
  }
  return best;
}

void LiveSequences::admit() {
  while (!waiting_.empty() && active_ < slots_.size()) {
    LiveRequest request = std::move(waiting_.front());
    waiting_.pop_front();
    const std::size_t slot = slot_for(request);
    slots_[slot].request = std::move(request);
    slots_[slot].used = ++admitted_;
    ++active_;
    open(slot);
  }
}

void LiveSequences::open(std::size_t slot) {
  Slot& s = slots_[slot];
  const LiveRequest& request = *s.request;
  const bool draws = request.max_new_tokens > 0;
  if (!draws && (!request.prompt_log_probs || request.prompt.size() < 2)) return end(slot, nullptr);
  std::size_t from = slot;
  std::int64_t fed = states_for(slot, request);
  for (std::size_t other = 0; other < slots_.size(); ++other) {
    if (const std::int64_t has = states_for(other, request); has > fed) {
      from = other;
      fed = has;
    }
  }
  s.every = request.prompt_log_probs && s.scored < request.prompt.size();
  if (fed < std::ssize(request.prompt) - 1) s.leader = leader_for(slot);
  if (s.leader) {
    s.ids.clear();
    decoder_->open(slot, {}, 0);
    return;
  }
  if (from != slot) decoder_->share(from, slot, fed);
  s.ids = request.prompt;
  // Without a token to draw, the logits after the last token are of no use.
  const std::size_t length = request.prompt.size() - (draws ? 0 : 1);
  decoder_->open(slot, std::span(request.prompt).first(length), request.sequence, fed, s.every);
}

void LiveSequences::follow_leaders() {
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    if (!slots_[s].leader) continue;
    const std::size_t leader = *slots_[s].leader;
    const LiveRequest& request = *slots_[s].request;
    const std::int64_t shared = std::ssize(request.prompt) - 1;
    if (!decoder_->has_states_after(leader, shared)) continue;
    decoder_->share(leader, s, shared);
    slots_[s].leader.reset();
    slots_[s].ids = request.prompt;
    decoder_->open(s, request.prompt, request.sequence, shared);
  }
}

void LiveSequences::end(std::size_t slot, const std::exception_ptr& error) {
  const LiveRequest request = std::move(*slots_[slot].request);
  slots_[slot].request.reset();
  slots_[slot].leader.reset();
  slots_[slot].scored = 0;
  --active_;
  decoder_->drop(slot);
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].leader != slot) continue;
    slots_[s].leader.reset();
    open(s);
  }
  if (request.on_end) request.on_end(error);
}

void LiveSequences::end_active(const std::exception_ptr& error) {
  for (Slot& s : slots_) s.leader.reset();
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    slots_[s].ids.clear();  // the states may be those of an interrupted step
    if (slots_[s].request) end(s, error);
  }
}

void LiveSequences::end_all(const std::exception_ptr& error) {
  std::deque<LiveRequest> waiting = std::exchange(waiting_, {});
  end_active(error);
  for (const LiveRequest& request : waiting) {
    if (request.on_end) request.on_end(error);
  }
}

void LiveSequences::cancel() {
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].request && slots_[s].request->cancel.stop_requested()) end(s, nullptr);
  }
  std::erase_if(waiting_, [](const LiveRequest& request) {
    if (!request.cancel.stop_requested()) return false;
    if (request.on_end) request.on_end(nullptr);
    return true;
  });
}

void LiveSequences::step(const std::stop_token& stop) {
  try {
    cancel();
    admit();
    if (active_ == 0) return;
    session_->set_stop(stop);
    decoder_->step();
    session_->set_stop({});
    if (stop.stop_requested()) return;
    follow_leaders();
    choose();
  } catch (const std::exception&) {
    session_->set_stop({});
    return end_active(std::current_exception());
  }
  for (Chosen& chosen : chosen_) {
    if (slots_[chosen.slot].request) accept(chosen);
  }
}

void LiveSequences::choose() {
  chosen_.clear();
  for (const std::size_t slot : decoder_->asked()) {
    Slot& s = slots_[slot];
    const std::vector<std::int32_t>& prompt = s.request->prompt;
    const std::size_t position = s.every ? ++s.scored : s.ids.size();
    const std::int32_t target = s.every && position < prompt.size() ? prompt[position] : -1;
    chosen_.push_back({.slot = slot, .position = position, .target = target, .token = {}});
  }
  const runtime::Values logits = decoder_->logits();
  session_->device().parallel_for(std::ssize(chosen_), [&](std::int64_t i, int) {
    const auto row = static_cast<std::size_t>(i);
    logits.type() == Scalar::f64 ? choose_row<double>(logits, row) : choose_row<float>(logits, row);
  });
}

template <class T>
void LiveSequences::choose_row(const runtime::Values& logits, std::size_t row) {
  Chosen& c = chosen_[row];
  const LiveRequest& r = *slots_[c.slot].request;
  const std::vector<std::int32_t>& ids = slots_[c.slot].ids;
  const auto vocabulary = static_cast<std::size_t>(logits.width());
  const std::span<const T> values = logits.as<T>().subspan(row * vocabulary, vocabulary);
  c.finite = all_finite(values);
  if (!c.finite) return;
  c.token.of_prompt = c.target >= 0;
  const Seen seen{r.prompt, std::span(ids).subspan(r.prompt.size())};
  c.token.id = c.target >= 0 ? c.target : sample(values, r.sampling, r.sequence, std::ssize(ids), seen);
  const LogProbs<T> log_probs(session_->device(), values, logits.type(), session_->program().softmax);
  c.token.log_prob = log_probs.of(c.token.id);
  for (const std::int32_t id : largest_ids(values, static_cast<std::size_t>(r.most_likely)))
    c.token.most_likely.push_back({id, log_probs.of(id)});
}

void LiveSequences::accept(Chosen& chosen) {
  Slot& s = slots_[chosen.slot];
  const LiveRequest& r = *s.request;
  try {
    if (!chosen.finite) {
      throw RunStopped(
          "the logits after token {} are not finite under the policy {}. Fix: serve the model under another one "
          "with --precision; mantissa generate names the first such value",
          chosen.position, policy_);
    }
    if (chosen.target >= 0) {
      const bool over = r.max_new_tokens == 0 && chosen.position + 1 == r.prompt.size();
      if (!r.on_token(chosen.token) || over) end(chosen.slot, nullptr);
      return;
    }
    if (s.every && !independent_) return open(chosen.slot);  // the prompt is fed again as generate() does
    s.every = false;
    s.ids.push_back(chosen.token.id);
    const auto made = std::ssize(s.ids) - std::ssize(r.prompt);
    const bool ended = made == r.max_new_tokens || std::ssize(s.ids) == capacity() ||
                       std::ranges::find(r.stop, chosen.token.id) != r.stop.end();
    if (!r.on_token(chosen.token) || ended) return end(chosen.slot, nullptr);
    decoder_->append(chosen.slot, chosen.token.id);
  } catch (const std::exception&) {
    if (slots_[chosen.slot].request) end(chosen.slot, std::current_exception());
  }
}

}  // namespace mantissa::rollout
