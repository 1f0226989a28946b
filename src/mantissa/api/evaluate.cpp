// Loss over held-out text, and the answers to held-out puzzles.
#include <fmt/format.h>

#include <cmath>

#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/cost/forecast.h"
#include "mantissa/kernels/update.h"
#include "mantissa/model/graphs.h"
#include "mantissa/plan/compile.h"
#include "mantissa/rollout/generate.h"
#include "mantissa/runtime/batch.h"
#include "mantissa/runtime/executor.h"
#include "mantissa/runtime/nonfinite.h"
#include "mantissa/runtime/process.h"
#include "mantissa/text/kk.h"
#include "mantissa/text/kk_reward.h"
#include "mantissa/text/sources.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::api {
namespace {

/// Puzzles of the test split, joined like training text.
std::vector<std::int32_t> puzzle_text(const text::KkOptions& options, const text::Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  for (const text::KkPuzzle& p : text::generate(options)) {
    const std::vector<std::int32_t> document = tokenizer.encode(p.text());
    ids.insert(ids.end(), document.begin(), document.end());
    ids.push_back(tokenizer.separator());
  }
  return ids;
}

double loss_of(const weights::ModelSource& source, const precision::Policy& policy,
               const text::StepData& rows, const kernels::Context& ctx) {
  const std::int64_t length = rows.sequence_length;
  plan::CompileOptions compile;
  compile.longest_row = compile.longest_leaf = length;
  const plan::Program program =
      plan::compile(model::build_log_prob(source.config, length, length, false), policy, compile, ctx);
  check_plan(program);
  const runtime::WeightSet weights = weights::open_weights(program, source, ctx);
  runtime::Executor executor(program, weights, ctx);
  runtime::Batch batch(1, length, 1);
  double sum = 0;
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    for (std::int64_t t = 0; t < length; ++t) {
      const auto at = static_cast<std::size_t>(r * (length + 1) + t);
      executor.integers("ids")[static_cast<std::size_t>(t)] = rows.ids[at];
      executor.integers("targets")[static_cast<std::size_t>(t)] = rows.ids[at + 1];
    }
    batch.key(0, static_cast<std::uint64_t>(r));
    const auto forward = [&] { executor.run(graph::Phase::forward, batch.extent()); };
    forward();
    const Matrix log_prob = executor.buffer("log_prob");
    const double of_row = kernels::chunked_sum(log_prob.data, log_prob.type, length);
    if (!std::isfinite(of_row)) {
      const std::string what =
          fmt::format("eval: the loss of row {} is {}", r, runtime::unsigned_nan(-of_row));
      runtime::stop_non_finite(what, runtime::find_first_non_finite(executor, r, forward), program);
    }
    sum += of_row;
  }
  return -sum / static_cast<double>(rows.rows * length);
}

/// Answers held-out puzzles with the most likely tokens, some at once, and scores them by the rule.
void answer_puzzles(const weights::ModelSource& source, const precision::Policy& policy,
                    const text::KkOptions& options, const text::Tokenizer& tokenizer,
                    const kernels::Context& ctx, Evaluation& e) {
  constexpr std::int64_t kLongestAnswer = 768, kMostStreams = 16;
  const std::vector<text::KkPuzzle> puzzles = text::generate(options);
  std::size_t longest = 0;
  std::vector<rollout::Request> requests;
  for (const text::KkPuzzle& p : puzzles) {
    requests.push_back({tokenizer.encode(p.prompt), 0});
    longest = std::max(longest, p.prompt.size());
  }
  const plan::Program program = rollout::compile_decode_within(
      runtime::machine_memory_bytes(), source.config, policy,
      static_cast<std::int64_t>(longest) + kLongestAnswer, ctx, std::min(options.count, kMostStreams));
  const runtime::WeightSet weights = weights::open_weights(program, source, ctx);
  runtime::Executor executor(program, weights, ctx);
  rollout::GenerateOptions generate;
  generate.max_new_tokens = kLongestAnswer;
  generate.stop = {tokenizer.separator()};
  const std::vector<rollout::Generation> answers =
      rollout::generate(executor, source.config, requests, generate);
  std::int64_t formed = 0;
  std::int64_t right = 0;
  for (std::size_t i = 0; i < puzzles.size(); ++i) {
    const std::string text = puzzles[i].prompt + tokenizer.decode(answers[i].ids);
    const text::KkReward reward = text::kk_reward(text, puzzles[i].answer);
    formed += reward.format > 0 && reward.answer > -2 ? 1 : 0;
    right += reward.answer > 0 ? 1 : 0;
  }
  const auto n = static_cast<double>(puzzles.size());
  e.puzzles = static_cast<std::int64_t>(puzzles.size());
  e.well_formed = static_cast<double>(formed) / n;
  e.accuracy = static_cast<double>(right) / n;
}

text::KkOptions puzzle_options() {
  text::KkOptions options;
  options.split = text::KkSplit::test;
  options.people_max = 3;
  options.count = 200;
  return options;
}

bool names_puzzles(const std::vector<std::string>& data) {
  return data.size() == 1 && data.front() == "kk";
}

Evaluation finish(double loss, std::int64_t tokens, bool bytes) {
  Evaluation e;
  e.tokens = tokens;
  e.loss = loss;
  e.perplexity = std::exp(loss);
  e.bits_per_byte = bytes ? loss / std::log(2.0) : 0;
  return e;
}

}  // namespace

text::StepData evaluation_rows(const weights::ModelSource& source, const std::vector<std::string>& data,
                               const std::string& format, std::int64_t sequence_length) {
  const std::unique_ptr<text::Tokenizer> tokenizer = tokenizer_of(source);
  const bool kk = names_puzzles(data);
  if (tokenizer == nullptr && (kk || text::holds_text(data, format))) {
    throw ConfigError(
        fmt::format("--data {}: {}. Encode the text with the model's tokenizer, and give files of ids with "
                    "the format tokens",
                    data.front(), why_no_bytes(source)));
  }
  std::vector<std::int32_t> ids =
      kk ? puzzle_text(puzzle_options(), *tokenizer)
         : text::read_tokens(data, format, *text::make_tokenizer("byte"), source.config.vocab_size);
  text::Dataset::Options rows;
  // Text shorter than a row is one short row.
  rows.sequence_length = std::min(sequence_length, static_cast<std::int64_t>(ids.size()) - 1);
  if (rows.sequence_length < 1)
    throw ConfigError(fmt::format("{}: fewer than two tokens; nothing can be predicted", data.front()));
  rows.shuffle = false;
  const text::Dataset set(std::move(ids), rows, "--data");
  return set.step(1, set.training_rows());
}

Evaluation evaluate(const std::filesystem::path& model, const std::vector<std::string>& data,
                    const std::string& format, std::int64_t sequence_length, std::int64_t puzzles,
                    const Precision& precision, const Hardware& hardware) {
  const kernels::Context ctx = context_for(hardware);
  const weights::ModelSource source = weights::find_model(model);
  const precision::Policy policy = policy_for(precision);
  const text::StepData all = evaluation_rows(source, data, format, sequence_length);
  const bool bytes = names_puzzles(data) || text::holds_text(data, format);
  Evaluation e = finish(loss_of(source, policy, all, ctx), all.rows * all.sequence_length, bytes);
  if (names_puzzles(data) && puzzles > 0) {
    text::KkOptions options = puzzle_options();
    options.count = puzzles;
    answer_puzzles(source, policy, options, *tokenizer_of(source), ctx, e);
  }
  return e;
}

Evaluation evaluate(const Config& config, std::int64_t puzzles, const Hardware& hardware) {
  const config::RunConfig& run = config.impl().run;
  const kernels::Context ctx = context_for(hardware, run.run.threads);
  const std::filesystem::path model = std::filesystem::path(run.run.out) / "model";
  if (!std::filesystem::exists(model)) {
    throw FileError(fmt::format(
        "{}: there is no model yet; train the config first, or give a model directory", model.string()));
  }
  const weights::ModelSource source = weights::find_model(model);
  if (run.native_only)
    check_native(run, cost::compile_training(run, source.config, run.batch.micro_batch_size, ctx), {});
  const text::Dataset data = load_dataset(run, source.config, {});
  if (data.validation_rows() == 0)
    throw ConfigError("data.validation is 0: no rows are held out; set a share such as 0.02");
  const text::StepData rows = data.validation(0, data.validation_rows());
  const bool bytes = names_puzzles(run.data.source) || text::holds_text(run.data.source, run.data.format);
  const precision::Policy policy = run.policy.at_step(run.run.steps - 1);  // as the run's last loss was taken
  Evaluation e = finish(loss_of(source, policy, rows, ctx), rows.rows * rows.sequence_length, bytes);
  if (run.data.source.front() == "kk" && puzzles > 0) {
    text::KkOptions options;
    options.seed = run.run.seed;
    options.split = text::KkSplit::test;
    options.people_min = static_cast<int>(run.data.people_min);
    options.people_max = static_cast<int>(run.data.people_max);
    options.count = puzzles;
    answer_puzzles(source, policy, options, *text::make_tokenizer("byte"), ctx, e);
  }
  return e;
}

}  // namespace mantissa::api
