#include "mantissa/app/api/evaluate.h"

#include <map>

#include "mantissa/app/api/internal.h"
#include "mantissa/core/base/error.h"
#include "mantissa/generate/eval/evaluate.h"
#include "mantissa/generate/eval/paired.h"
#include "mantissa/setup/config/ranks.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/train/rl/held_out.h"

namespace mantissa::api {
namespace {

Evaluation evaluation_of(const eval::Evaluation& e) {
  Evaluation of;
  of.tokens = e.tokens;
  of.loss = e.loss;
  of.perplexity = e.perplexity;
  of.bytes = e.bytes;
  of.bits_per_byte = e.bits_per_byte;
  of.words = e.words;
  for (const eval::RowLoss& row : e.rows) of.rows.push_back({row.loss, row.weight});
  for (const eval::LastWord& word : e.last_words.words) of.last_words.push_back({word.right, word.log_prob});
  of.last_words_right = e.last_words.right();
  of.last_word_accuracy = e.last_words.accuracy();
  of.last_word_perplexity = e.last_words.perplexity();
  const eval::ChoiceScores& choices = e.choices;
  for (const eval::ChoiceAnswer& a : choices.answers)
    of.choices.push_back({a.log_probs, a.gold, a.chosen, a.chosen_norm, a.chosen_bytes});
  of.choice_accuracy = choices.accuracy();
  of.choice_accuracy_norm = choices.accuracy_norm();
  of.choice_accuracy_bytes = choices.accuracy_bytes();
  of.choice_error = eval::share_error(of.choice_accuracy, of.choices.size());
  of.choice_error_norm = eval::share_error(of.choice_accuracy_norm, of.choices.size());
  for (const eval::PeopleScore& p : e.answers.by_people())
    of.by_people.push_back({p.people, p.questions, p.well_formed, p.right});
  for (const eval::Answer& a : e.answers.answers)
    of.answers.push_back({a.people, a.well_formed, a.right, a.text});
  of.puzzles = std::ssize(e.answers.answers);
  of.well_formed = e.answers.well_formed();
  of.accuracy = e.answers.accuracy();
  of.interrupted = e.interrupted;
  of.weight_bytes = e.weight_bytes;
  of.seconds = e.seconds;
  of.tokens_per_second = e.tokens_per_second;
  of.notes = e.notes;
  return of;
}

/// Returns the parts of an evaluation that are compared.
eval::Evaluation compared(const Evaluation& e) {
  eval::Evaluation of;
  for (const RowLoss& row : e.rows) of.rows.push_back({row.loss, row.weight});
  for (const LastWord& word : e.last_words) of.last_words.words.push_back({word.right, word.log_prob});
  return of;
}

/// Returns the scores of a run's answers to its held-out prompts.
Evaluation evaluation_of(const rl::HeldOutAnswers& held_out) {
  Evaluation of;
  of.interrupted = held_out.interrupted;
  of.notes = held_out.notes;
  std::int64_t judged = 0, right = 0;
  std::map<std::int64_t, PeopleScore> by_people;
  for (const rl::Sampled& s : held_out.samples) {
    of.responses.push_back({s.prompt, s.response, s.reward, s.right, s.people, s.tokens, s.truncated});
    of.reward += s.reward / static_cast<double>(held_out.samples.size());
    if (!s.right) continue;
    ++judged;
    right += *s.right ? 1 : 0;
    if (s.people == 0) continue;
    PeopleScore& score = by_people[s.people];
    score.people = s.people;
    ++score.puzzles;
    score.right += *s.right ? 1 : 0;
  }
  if (judged > 0) of.accuracy = static_cast<double>(right) / static_cast<double>(judged);
  for (const auto& [people, score] : by_people) of.by_people.push_back(score);
  return of;
}

std::optional<PairedMean> mean_of(const std::optional<eval::PairedMean>& mean) {
  if (!mean) return std::nullopt;
  return PairedMean{mean->difference, mean->standard_error, mean->pairs};
}

}  // namespace

Evaluation evaluate(const Model& model, const EvaluateOptions& options, const Precision& precision,
                    const Hardware& hardware, std::stop_token stop, const Ranks& ranks) {
  const auto device = device_for(hardware, 0, ranks.local_size());
  const weights::ModelSource source = source_of(model);
  if (options.data.empty() && options.last_words.empty() && options.multiple_choice.empty())
    throw ConfigError(
        "evaluate: there is nothing to evaluate. Fix: give files, or a file of passages or questions");
  eval::Files files{options.data,
                    {options.format, text::id_type_named(options.id_type, "--id-type"),
                     text::read_field_map("--fields", options.fields, "pretrain sft rl")},
                    options.sequence_length,
                    options.puzzles};
  if (!options.data.empty()) data::check_has_fields(options.data, files.format, "--fields");
  files.passages = {options.last_words, options.passage_limit};
  files.chat_template = options.chat_template;
  files.choices = {options.multiple_choice, options.passage_limit};
  files.window = options.window;
  files.stride = options.stride > 0 ? options.stride : (options.window + 1) / 2;
  files.documents = options.documents;
  files.people_min = options.people_min;
  files.people_max = options.people_max;
  if (options.longest_answer > 0) files.longest_answer = options.longest_answer;
  return evaluation_of(eval::evaluate_model(source, policy_for(precision, source), files, *device, stop,
                                            &ranks.communicator()));
}

Evaluation evaluate(const Model& model, const std::vector<std::string>& data, const std::string& format,
                    std::int64_t sequence_length, std::int64_t puzzles, const Precision& precision,
                    const Hardware& hardware, std::stop_token stop) {
  EvaluateOptions options;
  options.data = data;
  options.format = format;
  options.sequence_length = sequence_length;
  options.puzzles = puzzles;
  return evaluate(model, options, precision, hardware, std::move(stop));
}

Evaluation evaluate(const Model& model, const Data& data, std::int64_t sequence_length,
                    const Precision& precision, const Hardware& hardware, std::stop_token stop) {
  const auto device = device_for(hardware);
  const weights::ModelSource source = source_of(model);
  return evaluation_of(eval::evaluate_rows(source, policy_for(precision, source),
                                           data::memory_rows(source.config, memory_of(data), sequence_length),
                                           *device, stop));
}

Evaluation evaluate(const Config& config, std::int64_t puzzles, const Hardware& hardware, const Data& data,
                    std::stop_token stop, const Ranks& ranks) {
  config::RunConfig run = config.impl().run;
  const std::string whole_rows = config::use_whole_rows(run);
  const auto told = [&](Evaluation evaluation) {
    if (!whole_rows.empty()) evaluation.notes.push_back(whole_rows);
    return evaluation;
  };
  const auto device = device_for(hardware, run.run.threads, ranks.local_size());
  if (run.train.objective != "rl")
    return told(evaluation_of(
        eval::evaluate_run(run, memory_of(data), puzzles, *device, stop, &ranks.communicator())));
  if (memory_of(data).any())
    throw ConfigError(
        "train.objective = \"rl\" reads its prompts from data.source, not from memory. Fix: leave out the data");
  const eval::RunModel model = eval::find_run_result(run, *device);
  return told(evaluation_of(
      rl::answer_held_out(run, model.source, model.policy, puzzles, *device, stop, &ranks.communicator())));
}

PairedChange paired_change(const Evaluation& first, const Evaluation& other) {
  const eval::PairedChange change = eval::paired_change(compared(first), compared(other));
  return {mean_of(change.loss), mean_of(change.accuracy), mean_of(change.word_log_prob), change.gained,
          change.lost};
}

}  // namespace mantissa::api
