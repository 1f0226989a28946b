#include "mantissa/generate/eval/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/engine/comm/deal.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/plan/rules.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/state.h"
#include "mantissa/generate/eval/row_model.h"
#include "mantissa/setup/config/adapter.h"
#include "mantissa/setup/config/command_policy.h"
#include "mantissa/setup/data/chat_format.h"
#include "mantissa/setup/data/file_rows.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/setup/forecast/native.h"
#include "mantissa/setup/programs/evaluation.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/text/rows/sources.h"

namespace mantissa::eval {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds the time since `start` and the tokens computed in it to the speed of `e`.
void add_time(Evaluation& e, double seconds, std::int64_t tokens) {
  const double before = e.tokens_per_second * e.seconds;
  e.seconds += seconds;
  if (e.seconds > 0) e.tokens_per_second = (before + static_cast<double>(tokens)) / e.seconds;
}

/// Returns the bytes of text of the targets of the first `count` rows.
std::int64_t target_bytes(const text::StepData& rows, std::int64_t count,
                          const tokenizer::Tokenizer& tokenizer) {
  std::int64_t bytes = 0;
  for (std::int64_t r = 0; r < count; ++r) {
    const std::span<const std::int32_t> ids = std::span(rows.ids).subspan(
        static_cast<std::size_t>(rows.begin(r) + r), static_cast<std::size_t>(rows.length(r)) + 1);
    const std::span<const std::int32_t> targets = rows.row(r).targets;
    for (std::size_t t = 0; t < targets.size(); ++t) {
      const std::size_t first = t;
      while (t < targets.size() && targets[t] >= 0) ++t;
      // Target t is id t + 1 of the row.
      if (t > first) bytes += tokenizer::added_bytes(tokenizer, ids.first(t + 1), first + 1);
    }
  }
  return bytes;
}

/// Returns the loss over `rows`, and the bits per byte if `text` is the tokenizer of their text.
Evaluation loss_over(const weights::ModelSource& source, const precision::Policy& policy,
                     const text::StepData& rows, const tokenizer::Tokenizer* text,
                     const runtime::Device& device, const std::stop_token& stop, comm::Communicator* ranks) {
  const std::int64_t length = rows.longest();
  const auto program = programs::compile_row_log_probs(source.config, policy, length, device);
  plan::check_rules(*program);
  Evaluation e;
  e.weight_bytes = weights::read_bytes(*program, source).all;
  std::optional<RowModel> model;
  Clock::time_point start = Clock::now();
  const auto run = [&](std::int64_t r, const std::stop_token& stopped) -> std::optional<comm::Bytes> {
    if (!model) {
      model.emplace(program, source, device, "eval: the loss of");
      model->set_stop(stopped);
      start = Clock::now();
    }
    const double of_row = model->run(rows, r);
    if (stopped.stop_requested()) return std::nullopt;
    comm::Bytes bytes;
    comm::append(bytes, of_row);
    return bytes;
  };
  const std::vector<comm::Bytes> sums =
      comm::deal(ranks, rows.rows,
                 {policy.line(), comm::memory_of(rows.ids), comm::memory_of(rows.targets),
                  comm::memory_of(rows.weights)},
                 stop, run);
  const std::int64_t done = std::ssize(sums);
  double sum = 0;
  for (std::int64_t r = 0; r < done; ++r) {
    std::span<const std::byte> bytes = sums[static_cast<std::size_t>(r)];
    const auto of_row = comm::take<double>(bytes);
    sum += of_row;
    const double weight = rows.weight_of(r);
    e.rows.push_back({weight > 0 ? -of_row / weight : 0, weight});
  }
  add_time(e, std::chrono::duration<double>(Clock::now() - start).count(), rows.begin(done));
  e.interrupted = done < rows.rows;
  e.tokens = rows.predicted(done);
  e.loss = done == 0 ? 0 : -sum / rows.total_weight(done);
  e.perplexity = std::exp(e.loss);
  if (text != nullptr) e.bytes = target_bytes(rows, done, *text);
  if (e.bytes > 0) e.bits_per_byte = -sum / std::log(2.0) / static_cast<double>(e.bytes);
  return e;
}

/// Adds the last words of the passages to `e`.
void add_last_words(const weights::ModelSource& source, const precision::Policy& policy,
                    const PassageFile& file, std::span<const Passage> passages, const runtime::Device& device,
                    const std::stop_token& stop, comm::Communicator* ranks, Evaluation& e) {
  e.last_words = predict_last_words(source, policy, passages, file.name, device, stop, ranks);
  add_time(e, e.last_words.seconds, e.last_words.tokens);
  e.weight_bytes = std::max(e.weight_bytes, e.last_words.weight_bytes);
  e.interrupted = e.last_words.interrupted;
}

/// Adds the answers to `questions` to `e`.
void add_answers(const weights::ModelSource& source, const precision::Policy& policy,
                 const std::vector<AskedQuestion>& questions, const QuestionFormat& format,
                 std::int64_t longest, const runtime::Device& device, const std::stop_token& stop,
                 comm::Communicator* ranks, Evaluation& e) {
  e.answers = answer_questions(source, policy, questions, format, longest, device, stop, ranks);
  e.interrupted = e.answers.interrupted;
}

/// Returns the largest number of tokens of a part of a document.
std::int64_t document_window(const weights::ModelSource& source, const Files& files) {
  return files.window > 0 ? files.window : source.config.usual_positions();
}

/// Returns the questions of `files` that are to be answered.
std::vector<AskedQuestion> questions_of(const Files& files) {
  if (files.questions == 0 || files.names.empty()) return {};
  if (data::is_generated(files.names)) {
    text::GeneratedRows rows = data::held_out_rows();
    rows.count = files.questions;
    if (files.people_min > 0) rows.people_min = files.people_min;
    if (files.people_max > 0) rows.people_max = files.people_max;
    return generated_questions(rows);
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return read_questions(
      files.names,
      {files.questions, files.people_min, files.people_max > 0 ? std::int64_t{files.people_max} : kMost},
      files.format);
}

/// Adds the answers to the questions to `e`.
void add_choices(const weights::ModelSource& source, const precision::Policy& policy, const PassageFile& file,
                 std::span<const ChoiceQuestion> questions, const runtime::Device& device,
                 const std::stop_token& stop, comm::Communicator* ranks, Evaluation& e) {
  e.choices = answer_choices(source, policy, questions, file.name, device, stop, ranks);
  add_time(e, e.choices.seconds, e.choices.tokens);
  e.weight_bytes = std::max(e.weight_bytes, e.choices.weight_bytes);
  e.interrupted = e.choices.interrupted;
}

}  // namespace

Evaluation evaluate_model(const weights::ModelSource& source, const precision::Policy& policy,
                          const Files& files, const runtime::Device& device, const std::stop_token& stop,
                          comm::Communicator* ranks) {
  // All input is read before anything is computed.
  std::vector<Passage> passages;
  if (!files.passages.name.empty()) passages = read_passages(source, files.passages);
  std::vector<ChoiceQuestion> questions;
  if (!files.choices.name.empty()) questions = read_choices(source, files.choices);
  const std::vector<AskedQuestion> asked = questions_of(files);
  Evaluation e;
  const bool generated = data::is_generated(files.names);
  const bool answers = !files.names.empty() && !files.documents &&
                       (!files.chat_template.empty() || data::holds_conversations(files.names, files.format));
  const std::string chat_template = !files.chat_template.empty() ? files.chat_template
                                    : answers                    ? "auto"
                                                                 : "none";
  if (answers) {
    std::vector<std::string> notes;
    const text::StepData rows =
        asked.empty() ? data::answer_rows(source, files.names, files.format, chat_template,
                                          files.sequence_length, notes)
                      : data::answer_rows(source, {asked.begin(), asked.end()}, files.names.front(),
                                          chat_template, files.sequence_length, notes);
    e = loss_over(source, policy, rows, nullptr, device, stop, ranks);
    e.notes = std::move(notes);
  } else if (!files.names.empty()) {
    constexpr std::int64_t kTextLength = 256;
    const std::int64_t length = files.sequence_length > 0 ? files.sequence_length : kTextLength;
    std::int64_t words = 0;
    const text::StepData all =
        files.documents
            ? data::document_rows(source, files.names, files.format, document_window(source, files), words)
        : files.window > 0 ? data::file_windows(source, files.names, files.format, files.window, files.stride)
                           : data::file_rows(source, files.names, files.format, length);
    const bool text = generated || text::holds_text(files.names, files.format.name);
    const std::unique_ptr<tokenizer::Tokenizer> tokenizer = text ? data::tokenizer_of(source) : nullptr;
    e = loss_over(source, policy, all, tokenizer.get(), device, stop, ranks);
    if (!e.interrupted) e.words = words;
  }
  if (!passages.empty() && !e.interrupted)
    add_last_words(source, policy, files.passages, passages, device, stop, ranks, e);
  if (!questions.empty() && !e.interrupted)
    add_choices(source, policy, files.choices, questions, device, stop, ranks, e);
  if (!asked.empty() && !e.interrupted) {
    add_answers(source, policy, asked, QuestionFormat(source, chat_template), files.longest_answer, device,
                stop, ranks, e);
  }
  return e;
}

Evaluation evaluate_rows(const weights::ModelSource& source, const precision::Policy& policy,
                         const text::StepData& rows, const runtime::Device& device,
                         const std::stop_token& stop, comm::Communicator* ranks) {
  return loss_over(source, policy, rows, nullptr, device, stop, ranks);
}

RunModel find_run_result(const config::RunConfig& run, const runtime::Device& device) {
  const std::filesystem::path out = run.run.out,
                              model = out / (run.adapter.kind == "none" ? "model" : io::kAdapterFolder);
  const std::vector<io::FoundState> states = io::find_states(out);
  const bool finished = disk::exists(model);
  if (!finished && states.empty()) {
    throw FileError(fmt::format("{}: does not exist yet; train the config first, or give a model directory",
                                model.string()));
  }
  weights::ModelSource source = weights::find_model(finished ? model : out);
  if (run.native_only)
    forecast::check_native(programs::compile_training(run, source.config, run.batch.micro_batch_size, device),
                           device);
  // Use the policy of the run's last step, under which its last loss was measured.
  // A run also writes its adapter with each state.
  const bool complete = states.empty() || (finished && run.adapter.kind == "none");
  const std::int64_t steps = complete ? run.run.steps : states.back().step;
  return {std::move(source), config::without_training(
                                 config::adapted_policy(run.policy.at_step(steps - 1), run.adapter), false)};
}

Evaluation evaluate_run(const config::RunConfig& run, data::Memory memory, std::int64_t questions,
                        const runtime::Device& device, const std::stop_token& stop,
                        comm::Communicator* ranks) {
  const auto [source, policy] = find_run_result(run, device);
  const bool from_source = !memory.any(), generated = from_source && data::has_generated(run.data.source);
  const text::Dataset set = data::load_dataset(run, source.config, std::move(memory));
  if (set.validation_rows() == 0)
    throw ConfigError("data.validation is 0: no rows are held out; set a share such as 0.02");
  const text::StepData rows = set.validation(0, set.validation_rows());
  const bool text = from_source && data::holds_text(run.data.source, run.data.format);
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer =
      text ? data::tokenizer_of(run, source.config) : nullptr;
  const bool answers = from_source && run.train.objective == "sft";  // they have no bytes
  Evaluation e = loss_over(source, policy, rows, answers ? nullptr : tokenizer.get(), device, stop, ranks);
  if (generated && questions > 0 && !e.interrupted) {
    text::GeneratedRows made = data::held_out_rows(run);
    made.count = questions;
    const bool chat = answers && run.data.chat_template != "none";
    const QuestionFormat format =
        chat ? QuestionFormat(data::chat_source(run, source.config), run.data.chat_template)
             : QuestionFormat(data::tokenizer_of(run, source.config));
    add_answers(source, policy, generated_questions(made), format, kLongestAnswer, device, stop, ranks, e);
  }
  return e;
}

}  // namespace mantissa::eval
