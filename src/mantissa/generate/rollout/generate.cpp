#include "mantissa/generate/rollout/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/runtime/interleaved.h"
#include "mantissa/engine/runtime/nonfinite.h"
#include "mantissa/engine/runtime/surroundings.h"
#include "mantissa/generate/rollout/decode_session.h"
#include "mantissa/generate/rollout/log_prob.h"
#include "mantissa/kernels/units.h"

namespace mantissa::rollout {
namespace {

using Clock = std::chrono::steady_clock;

void check_prompt(std::span<const std::int32_t> prompt, std::int64_t vocabulary, std::int64_t capacity) {
  if (prompt.empty()) throw ConfigError("the prompt is empty; give at least one token");
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= vocabulary) {
      throw ConfigError("prompt id {} at position {} is outside this model's vocabulary (0 … {})", prompt[i],
                        i, vocabulary - 1);
    }
  }
  if (static_cast<std::int64_t>(prompt.size()) >= capacity) {
    throw ConfigError("the prompt has {}, but there is room for {} with one new token; shorten it",
                      counted(prompt.size(), "token"), capacity - 1);
  }
}

struct Next {
  std::int32_t id = 0;
  double log_prob = 0;  // logit − log-sum-exp, rounded to the arithmetic's format
  bool finite = true;   // false if a logit is not finite; then no token is chosen
  double entropy = 0;
};

/// Chooses the next token from row `row` of the logits.
template <class T>
Next next_token(const runtime::Device& device, const runtime::Values& logits, Scalar softmax, std::size_t row,
                const SamplingOptions& options, std::int64_t sequence, std::int64_t position,
                const Seen& seen, bool entropy, const std::function<void(std::span<double>)>& process) {
  const auto vocabulary = static_cast<std::size_t>(logits.width());
  const std::span<const T> values = logits.as<T>().subspan(row * vocabulary, vocabulary);
  if (!all_finite(values)) return {.finite = false};
  std::int32_t id = 0;
  if (process) {
    std::vector<double> scores = scores_of(values, options, seen);
    process(scores);
    id = sample_scores(scores, options, sequence, position);
  } else {
    id = sample(values, options, sequence, position, seen);
  }
  return {id, log_prob_of(device, values, logits.type(), softmax, id), true,
          entropy ? entropy_of(values) : 0};
}

/// One call of generate(): the request in each slot, and the results so far.
class Run {
 public:
  Run(runtime::Session& session, std::span<const Request> requests, const GenerateOptions& options)
      : session_(session),
        decoder_(session, options.rounding_seed),
        requests_(requests),
        options_(options),
        results_(requests.size()),
        in_slot_(decoder_.slots()),
        held_(decoder_.slots()),
        leader_(decoder_.slots()),
        keyed_(std::ranges::any_of(session.program().steps, [](const plan::Step& step) {
          return step.rounding == Rounding::stochastic;
        })) {}

  std::vector<Generation> run() {
    for (std::size_t s = 0; s < in_slot_.size(); ++s) begin_next(s);
    session_.set_stop(options_.interrupt);
    while (sequences_ > 0) {
      decoder_.step();
      if (options_.interrupt.stop_requested()) {
        end_all();
        break;
      }
      // Before any slot is given to another request.
      for (std::size_t s = 0; s < leader_.size(); ++s) {
        if (leader_[s]) begin(s);
      }
      choose();
      const std::span<const std::size_t> asked = decoder_.asked();
      for (std::size_t i = 0; i < asked.size(); ++i) accept(asked[i], next_[i]);
    }
    session_.set_stop({});
    return std::move(results_);
  }

 private:
  void end_all() {
    for (const std::optional<std::size_t>& request : in_slot_) {
      if (request) results_[*request].seconds = seconds();
    }
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  /// Puts the next waiting request into a free slot.
  void begin_next(std::size_t slot) {
    in_slot_[slot].reset();
    if (options_.max_new_tokens < 1 || waiting_ == requests_.size()) return;
    const std::size_t r = waiting_++;
    in_slot_[slot] = r;
    ++sequences_;
    leader_[slot] = slot_with_prompt(slot, r);
    held_[slot] = r;
    decoder_.open(slot, {}, 0);
    begin(slot);
  }

  /// Returns a slot whose states have, or will have, taken in the prompt of request `r` up to its last token:
  /// `slot` itself, with its last request, or another one.
  std::optional<std::size_t> slot_with_prompt(std::size_t slot, std::size_t r) const {
    if (requests_[r].prompt.size() < 2 || requests_[r].states != nullptr) return std::nullopt;
    const auto shared = static_cast<std::int64_t>(requests_[r].prompt.size()) - 1;
    const auto has_prompt = [&](std::size_t s) {
      if (!held_[s] || leader_[s] || (!decoder_.rewinds() && decoder_.fed(s) > shared)) return false;
      const Request &held = requests_[*held_[s]], &wanted = requests_[r];
      return held.states == nullptr && held.prompt == wanted.prompt &&
             (!keyed_ || held.sequence == wanted.sequence);
    };
    if (has_prompt(slot)) return slot;
    for (std::size_t s = 0; s < held_.size(); ++s) {
      if (has_prompt(s)) return s;
    }
    return std::nullopt;
  }

  /// Opens the sequence of `slot`, unless it waits for the states after its prompt, which another slot has
  /// not fed completely. The last token of a shared prompt is fed by each, for its logits.
  void begin(std::size_t slot) {
    const Request& request = requests_[*in_slot_[slot]];
    std::int64_t fed = request.fed;
    if (const std::optional<std::size_t> leader = leader_[slot]) {
      fed = static_cast<std::int64_t>(request.prompt.size()) - 1;
      if (*leader != slot) {
        if (!decoder_.has_states_after(*leader, fed)) return;
        decoder_.share(*leader, slot, fed);
      }
      leader_[slot].reset();
    }
    if (request.states != nullptr) decoder_.restore(slot, *request.states);
    decoder_.open(slot, request.prompt, request.sequence, fed);
  }

  /// Chooses the next token of every sequence with logits.
  void choose() {
    const runtime::Values logits = decoder_.logits();
    const auto next = logits.type() == Scalar::f64 ? next_token<double> : next_token<float>;
    next_.resize(decoder_.asked().size());
    const auto choose_one = [&](std::int64_t i, int) {
      const auto row = static_cast<std::size_t>(i);
      const std::size_t r = *in_slot_[decoder_.asked()[row]];
      const std::size_t position = requests_[r].prompt.size() + results_[r].ids.size();
      next_[row] = next(session_.device(), logits, decoder_.program().softmax, row, options_.sampling,
                        requests_[r].sequence, static_cast<std::int64_t>(position),
                        {requests_[r].prompt, results_[r].ids}, options_.entropies, processor_of(r));
    };
    const std::int64_t count = std::ssize(next_);
    if (options_.process_logits) {
      for (std::int64_t i = 0; i < count; ++i) choose_one(i, 0);
    } else {
      session_.device().parallel_for(count, choose_one);
    }
    for (std::size_t i = 0; i < next_.size(); ++i) {
      if (!next_[i].finite) stop_non_finite(*in_slot_[decoder_.asked()[i]]);
    }
  }

  std::function<void(std::span<double>)> processor_of(std::size_t r) const {
    if (!options_.process_logits) return {};
    return [this, r](std::span<double> logits) { options_.process_logits(r, results_[r].ids, logits); };
  }

  /// Throws for non-finite logits of request `r`. Feeds its sequence again from the start to find the first
  /// such value, which may lie in the states.
  [[noreturn]] void stop_non_finite(std::size_t r) {
    std::vector<std::int32_t> ids = requests_[r].prompt;
    ids.insert(ids.end(), results_[r].ids.begin(), results_[r].ids.end());
    const auto feed = [&] {
      DecodeSession again(session_, options_.rounding_seed);
      again.open(0, ids, requests_[r].sequence);
      do again.step();
      while (again.asked().empty());
    };
    const std::string of =
        !options_.name_of && requests_.size() > 1 ? fmt::format(" of sequence {}", r + 1) : "";
    runtime::stop_non_finite(fmt::format("{}: the logits after token {}{} are not finite",
                                         options_.name_of ? options_.name_of(r) : "generate", ids.size(), of),
                             runtime::find_first_non_finite(session_.executor(), 0, feed),
                             decoder_.program());
  }

  void accept(std::size_t slot, Next next) {
    const std::size_t r = *in_slot_[slot];
    Generation& g = results_[r];
    g.ids.push_back(next.id);
    g.log_probs.push_back(next.log_prob);
    if (options_.entropies) g.entropies.push_back(next.entropy);
    const auto length = static_cast<std::int64_t>(g.ids.size());
    const auto positions = static_cast<std::int64_t>(requests_[r].prompt.size()) + length;
    const bool refused = options_.on_token && !options_.on_token(r, next.id, next.log_prob);
    if (refused || length == options_.max_new_tokens || positions == decoder_.capacity() ||
        std::find(options_.stop.begin(), options_.stop.end(), next.id) != options_.stop.end()) {
      g.seconds = seconds();
      g.ended = true;
      if (options_.keep_states) keep_states(slot, r);
      --sequences_;
      begin_next(slot);
    } else {
      decoder_.append(slot, next.id);
    }
  }

  void keep_states(std::size_t slot, std::size_t r) {
    SequenceStates states = decoder_.states_of(slot);
    states.ids = requests_[r].prompt;
    states.ids.insert(states.ids.end(), results_[r].ids.begin(), results_[r].ids.end());
    results_[r].states = std::make_shared<const SequenceStates>(std::move(states));
  }

  runtime::Session& session_;
  DecodeSession decoder_;
  std::span<const Request> requests_;
  const GenerateOptions& options_;
  std::vector<Generation> results_;
  std::vector<std::optional<std::size_t>> in_slot_;  // request
  std::vector<std::optional<std::size_t>> held_;     // the request whose prompt the slot's states took in
  std::vector<std::optional<std::size_t>>
      leader_;                 // the slot that feeds the prompt, while the sequence waits
  bool keyed_;                 // states depend on the random numbers of the sequence
  std::size_t waiting_ = 0;    // next request without a slot
  std::size_t sequences_ = 0;  // number of sequences in slots
  std::vector<Next> next_;     // in the order of decoder_.asked()
  Clock::time_point start_ = Clock::now();
};

}  // namespace

void interleave_weights(runtime::WeightSet& weights, const plan::Program& program) {
  if (program.buffer(program.required("rows")).shape.count() >= kernels::kStripRows) return;
  if (runtime::InterleavedWeights::bytes(program, weights) > runtime::available_memory_bytes() / 2) return;
  try {
    weights.set_interleaved(std::make_shared<runtime::InterleavedWeights>(program, weights));
  } catch (const ResourceError&) {  // a limit of this process: its weights are read where they are
  }
}

std::vector<Generation> generate(runtime::Session& session, const model::ModelConfig& config,
                                 std::span<const Request> requests, const GenerateOptions& options) {
  check(options.sampling);
  const plan::Program& program = session.program();
  const std::int64_t capacity = program.positions;
  for (const Request& r : requests) {
    check_prompt(r.prompt, config.vocab_size, capacity);
    if (r.states != nullptr) check_states(*r.states, program);
  }
  return Run(session, requests, options).run();
}

}  // namespace mantissa::rollout
