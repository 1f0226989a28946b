// The quality of a model: its loss over held-out rows, the last words of passages, and its answers to
// questions.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/generate/eval/answers.h"
#include "mantissa/generate/eval/choices.h"
#include "mantissa/generate/eval/last_words.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/file_rows.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/rows/dataset.h"

namespace mantissa::eval {

/// The loss of one row: nats per token, and the sum of the tokens' weights.
struct RowLoss {
  double loss = 0;
  double weight = 0;
};

struct Evaluation {
  std::int64_t tokens = 0;  // 0 without rows
  double loss = 0;          // nats per token
  double perplexity = 0;
  std::int64_t bytes = 0;     // of the tokens' text; 0 if they have no known text
  double bits_per_byte = 0;   // 0 without bytes
  std::int64_t words = 0;     // of documents that are measured alone; otherwise 0
  std::vector<RowLoss> rows;  // of the completed rows
  LastWords last_words;       // none without passages
  ChoiceScores choices;       // none without questions
  AnswerScores answers;       // none without questions to answer
  // by a stop: the loss is over the completed rows (0 without any), and no answers were scored
  bool interrupted = false;
  std::size_t weight_bytes = 0;  // of the masters and copies that the steps read
  double seconds = 0;            // of the rows and the last words, without reading the weights
  double tokens_per_second = 0;
  std::vector<std::string> notes = {};  // about the rows of conversations
};

/// Files, or a generator for its held-out rows. Without names, no loss is computed.
struct Files {
  std::vector<std::string> names;
  text::FileFormat format = {};
  std::int64_t sequence_length = 0;  // of text 256 if 0; conversations: data::answer_rows()
  /// Questions to answer: held-out ones of a generator, or rows of files. If these rows are conversations or
  /// a template is given, the loss is that of the right answers to the same questions.
  std::int64_t questions = 0;
  PassageFile passages = {};
  /// The chat template of conversations, of which only the answers count. Empty: "auto" if the files hold
  /// conversations, otherwise the data are text.
  std::string chat_template = {};
  PassageFile choices = {};  // JSON lines (choices.h)
  /// Above 0: instead of rows of sequence_length, windows of this many tokens that begin every `stride`
  /// tokens; each token is predicted once, by the first window with tokens before it.
  std::int64_t window = 0;
  std::int64_t stride = 0;
  /// Instead, each document alone in parts of `window` tokens, or if that is 0 of the model's positions
  /// (data::document_rows()).
  bool documents = false;
  int people_min = 0, people_max = 0;            // in questions; 0: 2 and 3 of a generator, all of a file
  std::int64_t longest_answer = kLongestAnswer;  // tokens
};
/// Evaluates a model. `ranks`, of this and the next functions, share the rows, passages and questions: all
/// call it alike, and return the figures of one process, except for times. Null: this process alone.
Evaluation evaluate_model(const weights::ModelSource& source, const precision::Policy& policy,
                          const Files& files, const runtime::Device& device, const std::stop_token& stop = {},
                          comm::Communicator* ranks = nullptr);

/// Returns the loss over `rows`. Throws RunStopped for a non-finite loss.
Evaluation evaluate_rows(const weights::ModelSource& source, const precision::Policy& policy,
                         const text::StepData& rows, const runtime::Device& device,
                         const std::stop_token& stop = {}, comm::Communicator* ranks = nullptr);

/// The model of a run and the policy of its last step, without the parts that only training uses.
struct RunModel {
  weights::ModelSource source;
  precision::Policy policy;
};
/// Returns the model or adapter of the run of `config`, or its newest state without one. Throws FileError if
/// the run has neither.
RunModel find_run_result(const config::RunConfig& config, const runtime::Device& device);

/// Evaluates the model of the run of `config`, or its newest state without one, over the run's held-out rows.
/// Throws FileError if the run has neither, and ConfigError if no rows are held out.
Evaluation evaluate_run(const config::RunConfig& config, data::Memory memory, std::int64_t questions,
                        const runtime::Device& device, const std::stop_token& stop = {},
                        comm::Communicator* ranks = nullptr);

}  // namespace mantissa::eval
