#include "mantissa/app/api/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "mantissa/app/api/internal.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/output.h"
#include "mantissa/generate/dialog/prompt_format.h"
#include "mantissa/generate/rollout/complete.h"
#include "mantissa/generate/rollout/sequence_states.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/rows/known_ids.h"
#include "mantissa/text/rows/readers.h"
#include "mantissa/text/rows/sources.h"
#include "mantissa/text/tokenizer/growing_text.h"

namespace mantissa::api {
namespace {

/// Returns the ids of a prompt, which messages call `name`. `follows`: text of an earlier sequence precedes
/// it.
std::vector<std::int32_t> ids_of(const Prompt& prompt, const std::string& name, bool follows,
                                 const tokenizer::Tokenizer* tokenizer, const weights::ModelSource& source) {
  if (!prompt.ids.empty() || (follows && prompt.text.empty())) return prompt.ids;
  if (tokenizer == nullptr) {
    throw ConfigError("{}. Encode the prompt with the model's tokenizer, and give --prompt-ids 1,2,3",
                      data::why_no_tokenizer(source));
  }
  std::vector<std::int32_t> ids =
      follows ? tokenizer->encode(prompt.text) : tokenizer->encode_with_template(prompt.text);
  text::check_known_ids(ids, *tokenizer, source.config.vocab_size, name);
  return ids;
}

void check_option(const char* option, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most) throw ConfigError("{} {}: must be between 1 and {}", option, value, most);
}

/// Returns the name of a prompt in messages.
std::string name_of(std::span<const Prompt> prompts, std::size_t p) {
  if (!prompts[p].where.empty()) return fmt::format("{}: the prompt", prompts[p].where);
  return prompts.size() == 1 ? "the prompt" : fmt::format("prompt {} of {}", p + 1, prompts.size());
}

/// Returns the origin of the states that the options read or write; empty if they do neither.
rollout::StatesOrigin states_origin(const weights::ModelSource& source, const GenerateOptions& o,
                                    const runtime::Device& device) {
  if (o.state.empty() && o.save_state.empty()) return {};
  if (!o.save_state.empty())
    rollout::check_states_place(o.save_state, o.overwrite, rollout::states_inputs(source));
  return rollout::origin_of(source, policy_for(o.precision, source), device);
}

std::shared_ptr<const rollout::SequenceStates> start_of(const GenerateOptions& o,
                                                        const rollout::StatesOrigin& origin,
                                                        std::int64_t vocabulary) {
  if (o.state.empty()) return nullptr;
  rollout::StatesFile file = rollout::read_states(o.state);
  rollout::check_model(file, origin, vocabulary);
  return std::make_shared<const rollout::SequenceStates>(std::move(file.states));
}

/// Returns a request for every sample of every prompt.
std::vector<rollout::Request> requests_of(std::span<const Prompt> prompts, const GenerateOptions& o,
                                          const std::shared_ptr<const rollout::SequenceStates>& start,
                                          const tokenizer::Tokenizer* tokenizer,
                                          const weights::ModelSource& source) {
  check_option("--samples", o.samples, std::int64_t{1} << 20);
  std::vector<rollout::Request> requests;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const std::string name = name_of(prompts, p);
    std::vector<std::int32_t> ids = ids_of(prompts[p], name, start != nullptr, tokenizer, source);
    if (start != nullptr) ids.insert(ids.begin(), start->ids.begin(), start->ids.end());
    const std::int64_t fed = start == nullptr ? 0 : start->fed;
    if (start != nullptr && std::ssize(ids) == fed) {
      throw ConfigError(
          "{}: the model has read all {} tokens of the sequence, so the next one needs a prompt. Fix: "
          "--prompt, or --prompt-ids",
          start->where, fed);
    }
    if (ids.empty()) throw ConfigError("{} is empty; give it at least one token", name);
    for (std::int64_t sample = 0; sample < o.samples; ++sample) requests.push_back({ids, sample, fed, start});
  }
  return requests;
}

/// Returns the ids without the one that ends the text.
std::span<const std::int32_t> without_end(std::span<const std::int32_t> ids,
                                          const std::vector<std::int32_t>& stop) {
  const bool ended = !ids.empty() && std::find(stop.begin(), stop.end(), ids.back()) != stop.end();
  return ids.first(ids.size() - (ended ? 1 : 0));
}

/// Returns the text of a sequence that ends before the first of `stops`. A model may have more entries than
/// its tokenizer; those are not text.
tokenizer::GrowingText growing_text(const tokenizer::Tokenizer& tokenizer,
                                    const std::vector<std::string>& stops) {
  return {tokenizer, stops, tokenizer::SpecialTokens::kept};
}

/// Makes the text of each sequence, ends it at stop strings, and calls on_token with the text that each token
/// completes. Request r is sample r mod o.samples of its prompt.
class Texts {
 public:
  /// `stops` are the strings that end the text of each request.
  Texts(const GenerateOptions& o, const std::vector<std::int32_t>& ends,
        const tokenizer::Tokenizer* tokenizer, std::span<const std::vector<std::string>> stops)
      : o_(o), ends_(ends), sequences_(stops.size()) {
    if (tokenizer == nullptr && !o.stop.empty())
      throw ConfigError(
          "--stop: this model has no tokenizer, so its output is token ids. Fix: remove --stop");
    if (tokenizer == nullptr) return;
    for (std::size_t r = 0; r < stops.size(); ++r)
      sequences_[r].text.emplace(growing_text(*tokenizer, stops[r]));
  }

  /// Returns false to end the sequence.
  bool push(std::size_t request, std::int32_t id, double log_prob) {
    const auto samples = static_cast<std::size_t>(o_.samples);
    Token token{request / samples, static_cast<std::int64_t>(request % samples), id, log_prob, {}};
    Sequence& s = sequences_[request];
    ++s.tokens;
    if (s.text) {
      const bool end = std::find(ends_.begin(), ends_.end(), id) != ends_.end();
      if (!end) token.text = s.text->push(id);
      if (end || s.tokens == o_.max_new_tokens) token.text += s.text->finish();
    }
    const bool goes_on = !o_.on_token || o_.on_token(token);
    return goes_on && !stopped(request);
  }

  bool stopped(std::size_t request) const {
    const Sequence& s = sequences_[request];
    return s.text && s.text->stopped();
  }

 private:
  struct Sequence {
    std::optional<tokenizer::GrowingText> text;  // null without a tokenizer
    std::int64_t tokens = 0;
  };
  const GenerateOptions& o_;
  const std::vector<std::int32_t>& ends_;
  std::vector<Sequence> sequences_;
};

/// Returns the strings that end the text of each sample of each prompt: those of the options, and the end of
/// a turn if the prompt is one of the model's chat template.
std::vector<std::vector<std::string>> stops_of(std::span<const Prompt> prompts, const GenerateOptions& o,
                                               const tokenizer::Tokenizer* tokenizer,
                                               const weights::ModelSource& source) {
  const bool texts =
      std::ranges::any_of(prompts, [](const Prompt& p) { return !p.text.empty() && p.ids.empty(); });
  const dialog::AnswerForm answer =
      texts && tokenizer != nullptr ? dialog::answer_form(*tokenizer, source) : dialog::AnswerForm();
  std::vector<std::vector<std::string>> all;
  for (const Prompt& prompt : prompts) {
    std::vector<std::string> stops = o.stop;
    if (prompt.ids.empty() && answer.begins_after(prompt.text))
      stops.insert(stops.end(), answer.ends.begin(), answer.ends.end());
    all.insert(all.end(), static_cast<std::size_t>(o.samples), stops);
  }
  return all;
}

/// Keeps the `best` samples of each prompt.
void keep_best(std::int64_t best, std::vector<Generation>& all) {
  std::ranges::stable_sort(all, [](const Generation& a, const Generation& b) {
    return a.prompt != b.prompt ? a.prompt < b.prompt : a.total_log_prob > b.total_log_prob;
  });
  std::size_t prompt = 0;
  std::int64_t kept = 0;
  std::erase_if(all, [&](const Generation& g) {
    if (g.prompt != prompt) kept = 0;
    prompt = g.prompt;
    return ++kept > best;
  });
}

}  // namespace

std::string read_prompt(const std::filesystem::path& file) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 24U;
  return disk::read_text_file(file, kMost);
}

std::vector<Prompt> read_prompts(const std::filesystem::path& file) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  constexpr const char* kFields[] = {"prompt", "text"};
  text::expand_files({file.string()});  // a regular file
  std::vector<Prompt> prompts;
  for (text::RowDocument& row : text::read_row_documents(file.string(), kMost, kFields))
    prompts.push_back({std::move(row.text), {}, row.place.in(file.string())});
  if (prompts.empty())
    throw FileError("{}: contains no prompts. Fix: one a line: {{\"prompt\": \"…\"}}", file.string());
  return prompts;
}

Generations generate(const Model& model, std::span<const Prompt> prompts, const GenerateOptions& o,
                     std::stop_token stop) {
  const auto device = device_for(o.hardware);
  const weights::ModelSource source = source_of(model);
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer = data::tokenizer_of(source);
  const rollout::StatesOrigin origin = states_origin(source, o, *device);
  const std::shared_ptr<const rollout::SequenceStates> start = start_of(o, origin, source.config.vocab_size);
  const std::vector<rollout::Request> requests = requests_of(prompts, o, start, tokenizer.get(), source);
  if (!o.save_state.empty() && requests.size() != 1)
    throw ConfigError("--save-state: keeps the states of one sequence; give one prompt and one sample");
  check_option("--max-new-tokens", o.max_new_tokens, std::int64_t{1} << 24);
  check_option("--streams", o.streams, 1024);
  if (o.best < 0 || o.best > o.samples)
    throw ConfigError("--best {}: must be between 1 and --samples, which is {}", o.best, o.samples);
  rollout::GenerateOptions options;
  options.max_new_tokens = o.max_new_tokens;
  options.stop = rollout::stop_ids(source);
  if (options.stop.empty() && tokenizer != nullptr && tokenizer->eos()) options.stop = {*tokenizer->eos()};
  options.sampling = {o.temperature, o.top_k, o.top_p, o.min_p, o.repetition_penalty, o.seed};
  options.interrupt = stop;
  options.keep_states = !o.save_state.empty();
  const std::vector<std::vector<std::string>> stops = stops_of(prompts, o, tokenizer.get(), source);
  Texts texts(o, options.stop, tokenizer.get(), stops);
  const bool ends_by_text = std::ranges::any_of(stops, [](const auto& s) { return !s.empty(); });
  if (o.on_token || ends_by_text) {
    options.on_token = [&](std::size_t request, std::int32_t id, double log_prob) {
      return texts.push(request, id, log_prob);
    };
  }
  if (o.logits_processor) {
    options.process_logits = [&](std::size_t request, std::span<const std::int32_t> ids,
                                 std::span<double> logits) {
      const auto samples = static_cast<std::size_t>(o.samples);
      o.logits_processor(
          {request / samples, static_cast<std::int64_t>(request % samples), requests[request].prompt, ids},
          logits);
    };
  }
  std::vector<rollout::Generation> made =
      rollout::complete(source, policy_for(o.precision, source), requests, options, o.streams, *device);
  if (options.keep_states && made.front().states != nullptr)
    rollout::write_states(o.save_state, *made.front().states, origin, {});
  Generations out;
  double tokens = 0, seconds = 0;
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto count = static_cast<double>(made[i].ids.size());
    tokens += count;
    seconds = std::max(seconds, made[i].seconds);
    Generation g;
    g.prompt_ids = requests[i].prompt;
    g.ids = std::move(made[i].ids);
    g.log_probs = std::move(made[i].log_probs);
    g.tokens_per_second = made[i].seconds > 0 ? count / made[i].seconds : 0;
    for (const double log_prob : g.log_probs) g.total_log_prob += log_prob;
    g.prompt = i / static_cast<std::size_t>(o.samples);
    g.sample = static_cast<std::int64_t>(i % static_cast<std::size_t>(o.samples));
    g.stopped = texts.stopped(i);
    if (tokenizer != nullptr)
      g.text = growing_text(*tokenizer, stops[i]).finish(without_end(g.ids, options.stop));
    out.all.push_back(std::move(g));
  }
  if (o.best > 0) keep_best(o.best, out.all);
  out.interrupted = stop.stop_requested() && !std::ranges::all_of(made, &rollout::Generation::ended);
  out.tokens_per_second = seconds > 0 ? tokens / seconds : 0;
  return out;
}

Generation generate(const Model& model, const GenerateOptions& o, std::stop_token stop) {
  const Prompt prompt{o.prompt, o.prompt_ids};
  return std::move(generate(model, {&prompt, 1}, o, std::move(stop)).all.front());
}

}  // namespace mantissa::api
