#include "mantissa/eval/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "mantissa/base/error.h"
#include "mantissa/config/command_policy.h"
#include "mantissa/cost/forecast.h"
#include "mantissa/cost/native.h"
#include "mantissa/data/puzzles.h"
#include "mantissa/data/rows.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/eval/row_model.h"
#include "mantissa/io/state.h"
#include "mantissa/model/graphs.h"
#include "mantissa/plan/compile.h"
#include "mantissa/plan/rules.h"
#include "mantissa/rollout/complete.h"
#include "mantissa/text/kk_reward.h"
#include "mantissa/text/known_ids.h"
#include "mantissa/text/sources.h"

namespace mantissa::eval {
namespace {

Evaluation loss_over(const weights::ModelSource& source, const precision::Policy& policy,
                     const text::StepData& rows, bool bytes, const runtime::Device& device,
                     const std::stop_token& stop) {
  const std::int64_t length = rows.sequence_length;
  const auto program = runtime::compile(model::build_log_prob(source.config, length, length, false), policy,
                                        row_options(length), device);
  plan::check_rules(*program);
  RowModel model(program, source, device, "eval: the loss of");
  model.set_stop(stop);
  double sum = 0;
  std::int64_t done = 0;
  for (; done < rows.rows; ++done) {
    const double of_row = model.run(rows, done);
    if (stop.stop_requested()) break;
    sum += of_row;
  }
  Evaluation e;
  e.interrupted = done < rows.rows;
  e.tokens = rows.predicted(done);
  e.loss = done == 0 ? 0 : -sum / rows.total_weight(done);
  e.perplexity = std::exp(e.loss);
  e.bits_per_byte = bytes ? e.loss / std::log(2.0) : 0;
  return e;
}

/// Answers the puzzles of `options` with the most likely tokens, several at once, and adds the scores to `e`.
/// After a stop, sets only `e.interrupted`.
void answer_puzzles(const weights::ModelSource& source, const precision::Policy& policy,
                    const text::KkOptions& options, const tokenizer::Tokenizer& tokenizer,
                    const runtime::Device& device, const std::stop_token& stop, Evaluation& e) {
  constexpr std::int64_t kLongestAnswer = 768, kMostStreams = 16;
  const std::vector<text::KkPuzzle> puzzles = text::generate(options);
  std::vector<rollout::Request> requests;
  for (const text::KkPuzzle& p : puzzles) {
    requests.push_back({tokenizer.encode_with_template(p.prompt), 0});
    text::check_known_ids(requests.back().prompt, tokenizer, source.config.vocab_size, "a puzzle");
  }
  rollout::GenerateOptions generate;
  generate.max_new_tokens = kLongestAnswer;
  generate.interrupt = stop;
  generate.stop = {tokenizer.separator()};
  const std::vector<rollout::Generation> answers =
      rollout::complete(source, policy, requests, generate, kMostStreams, device);
  e.interrupted = stop.stop_requested() && !std::ranges::all_of(answers, &rollout::Generation::ended);
  if (e.interrupted) return;
  std::int64_t formed = 0;
  std::int64_t right = 0;
  for (std::size_t i = 0; i < puzzles.size(); ++i) {
    std::vector<std::int32_t> ids = answers[i].ids;
    std::erase_if(ids, [&](std::int32_t id) { return !tokenizer.known(id); });
    const std::string text = puzzles[i].prompt + tokenizer.decode(ids);
    const text::KkReward reward = text::kk_reward(text, puzzles[i].answer);
    formed += reward.format > 0 && reward.answer > -2 ? 1 : 0;
    right += reward.answer > 0 ? 1 : 0;
  }
  const auto n = static_cast<double>(puzzles.size());
  e.puzzles = static_cast<std::int64_t>(puzzles.size());
  e.well_formed = static_cast<double>(formed) / n;
  e.accuracy = static_cast<double>(right) / n;
}

}  // namespace

Evaluation evaluate_model(const weights::ModelSource& source, const precision::Policy& policy,
                          const Files& files, const runtime::Device& device, const std::stop_token& stop) {
  const text::StepData all = data::file_rows(source, files.names, files.format, files.sequence_length);
  const bool kk = data::names_puzzles(files.names);
  const bool text = kk || text::holds_text(files.names, files.format);
  Evaluation e =
      loss_over(source, policy, all, text && data::tokenizer_of(source)->name() == "byte", device, stop);
  if (kk && files.puzzles > 0 && !e.interrupted) {
    text::KkOptions options = data::held_out_puzzles();
    options.count = files.puzzles;
    answer_puzzles(source, policy, options, *data::tokenizer_of(source), device, stop, e);
  }
  return e;
}

Evaluation evaluate_rows(const weights::ModelSource& source, const precision::Policy& policy,
                         const text::StepData& rows, const runtime::Device& device,
                         const std::stop_token& stop) {
  return loss_over(source, policy, rows, false, device, stop);
}

Evaluation evaluate_run(const config::RunConfig& run, data::Memory memory, std::int64_t puzzles,
                        const runtime::Device& device, const std::stop_token& stop) {
  const std::filesystem::path out = run.run.out, model = out / "model";
  const std::vector<io::FoundState> states = io::find_states(out);
  const bool finished = std::filesystem::exists(model);
  if (!finished && states.empty()) {
    throw FileError(fmt::format("{}: does not exist yet; train the config first, or give a model directory",
                                model.string()));
  }
  const weights::ModelSource source = weights::find_model(finished ? model : out);
  if (run.native_only)
    cost::check_native(cost::compile_training(run, source.config, run.batch.micro_batch_size, device),
                       device);
  const bool from_source = !memory.any(), kk = from_source && data::names_puzzles(run.data.source);
  const text::Dataset set = data::load_dataset(run, source.config, std::move(memory));
  if (set.validation_rows() == 0)
    throw ConfigError("data.validation is 0: no rows are held out; set a share such as 0.02");
  const text::StepData rows = set.validation(0, set.validation_rows());
  const bool text = kk || (from_source && text::holds_text(run.data.source, run.data.format));
  const bool bytes = text && run.data.tokenizer == "byte";
  // Use the policy of the run's last step, under which its last loss was measured.
  const std::int64_t steps = finished ? run.run.steps : states.back().step;
  const precision::Policy policy = config::without_training(run.policy.at_step(steps - 1), false);
  Evaluation e = loss_over(source, policy, rows, bytes, device, stop);
  if (kk && puzzles > 0 && !e.interrupted) {
    text::KkOptions options = data::held_out_puzzles(run);
    options.count = puzzles;
    answer_puzzles(source, policy, options, *data::tokenizer_of(run, source.config), device, stop, e);
  }
  return e;
}

}  // namespace mantissa::eval
