// Loss over held-out text, last words of passages, and answers to held-out puzzles.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/app/api/config.h"
#include "mantissa/app/api/data.h"
#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/model.h"
#include "mantissa/app/api/precision.h"
#include "mantissa/app/api/ranks.h"

namespace mantissa::api {

/// The loss of one row: nats per token, and the sum of the tokens' weights.
struct RowLoss {
  double loss = 0;
  double weight = 0;
};

/// The last word of a passage.
struct LastWord {
  bool right = false;   // every token is the most likely one after those before it
  double log_prob = 0;  // sum over its tokens
};

/// The answer to a multiple-choice question.
struct ChoiceAnswer {
  std::vector<double> log_probs;  // of the choices
  std::int64_t gold = 0;          // the right one
  // the largest log-probability, the largest per character, and the largest per byte
  std::int64_t chosen = 0, chosen_norm = 0, chosen_bytes = 0;
};

/// The answer to a Knights-and-Knaves puzzle.
struct PuzzleAnswer {
  std::int64_t people = 0;
  bool well_formed = false, right = false;
  std::string text;
};

/// Answered puzzles with one number of people.
struct PeopleScore {
  std::int64_t people = 0, puzzles = 0, well_formed = 0, right = 0;
};

/// The response of a policy to a held-out prompt of rl, with its score by rl.reward.
struct ScoredResponse {
  std::string prompt, text;
  double reward = 0;
  std::optional<bool> right;  // null if the rule does not say
  std::int64_t people = 0;    // in the puzzle; 0: it is not one
  std::int64_t tokens = 0;
  bool truncated = false;  // at rl.max_new_tokens
};

struct Evaluation {
  std::int64_t tokens = 0;  // predicted tokens of the rows
  double loss = 0;          // nats per token; for weighted rows Σ weight · (−log p) / Σ weight
  double perplexity = 0;
  std::int64_t bytes = 0;    // of the text of the predicted tokens; 0 if the data are not text
  double bits_per_byte = 0;  // 0 without bytes
  std::int64_t words = 0;    // of documents that are measured alone; otherwise 0
  std::vector<RowLoss> rows;
  std::vector<LastWord> last_words;  // of the passages, in their order
  std::int64_t last_words_right = 0;
  double last_word_accuracy = 0;      // their share
  double last_word_perplexity = 0;    // exp(−mean log-probability of a word)
  std::vector<ChoiceAnswer> choices;  // of the questions, in their order
  // shares of right answers, as acc, acc_norm and acc_bytes of lm-evaluation-harness, and the standard error
  // √(p(1 − p) / (n − 1)) of the first two
  double choice_accuracy = 0, choice_accuracy_norm = 0, choice_accuracy_bytes = 0;
  double choice_error = 0, choice_error_norm = 0;
  std::int64_t puzzles = 0;  // number of answered Knights-and-Knaves puzzles
  double well_formed = 0;    // share of answers in the right form
  double accuracy = 0;       // share of right answers
  std::vector<PeopleScore> by_people;
  std::vector<PuzzleAnswer> answers;  // in the order of the puzzles
  // Of a run of rl, in the order of the held-out prompts; then `accuracy` is the share of right ones if the
  // rule says which are right, and `by_people` has those of puzzles.
  std::vector<ScoredResponse> responses;
  double reward = 0;  // their mean
  // by a stop: the loss is over the completed rows (0 without any), the last words are those of the completed
  // passages, and no puzzles were scored
  bool interrupted = false;
  std::uint64_t weight_bytes = 0;  // of the weights that the computation reads, in its formats
  double seconds = 0;              // of the rows and the last words, without reading the weights
  double tokens_per_second = 0;
  std::vector<std::string> notes;  // about the rows of conversations
};

struct EvaluateOptions {
  std::vector<std::string> data;  // files, or {"kk"} for held-out puzzles; none: no loss
  std::string format = "auto";
  std::string fields = {};       // the names of fields, as ShardOptions::fields (app/api/data.h)
  std::string id_type = "auto";  // of ids without a header: auto (by the vocabulary), uint16 or uint32
  // Tokens of a row; 0: 256, and for conversations as many as the model has positions. Longer conversations
  // lose tokens on their left.
  std::int64_t sequence_length = 0;
  /// The template of conversations, of which only the answers count: "auto" (the model's own), "none", a
  /// built-in one or a Jinja file. Empty: "auto" for rows that are conversations, and text otherwise.
  std::string chat_template;
  // Number of puzzles to answer: held-out ones if `data` is {"kk"}, otherwise rows of Logic-RL in `data`, the
  // first ones of each number of people in equal shares. If the rows are conversations or a template is
  // given, the loss is that of the answers to the same puzzles.
  std::int64_t puzzles = 0;
  std::string last_words;          // a file of passages, one per line (docs/cli/eval.md); empty: none
  std::string multiple_choice;     // a file of questions, one per line (docs/cli/eval.md); empty: none
  std::int64_t passage_limit = 0;  // evaluate only the first passages and questions; 0: all
  // Above 0: instead of rows, windows of this many tokens that begin every `stride` tokens (0: half a
  // window).
  std::int64_t window = 0, stride = 0;
  // Instead, each document alone, after the token that begins a text, in parts of `window` tokens (0: of the
  // model's positions), as lm-evaluation-harness measures texts.
  bool documents = false;
  int people_min = 0, people_max = 0;  // in the puzzles; 0: 2 and 3 for {"kk"}, all of a file
  std::int64_t longest_answer = 0;     // tokens of an answer to a puzzle; 0: 768
};

/// Evaluates a model over files and passages. All overloads throw ConfigError, FileError, and RunStopped for
/// a non-finite loss, with the row and the first such value. `ranks` share the work: each calls it alike, and
/// has the same result, except for times.
Evaluation evaluate(const Model& model, const EvaluateOptions& options, const Precision& precision = {},
                    const Hardware& hardware = {}, std::stop_token stop = {}, const Ranks& ranks = Ranks());
/// Evaluates a model over files, or over held-out puzzles if `data` is {"kk"}; then `puzzles` of them are
/// also answered.
Evaluation evaluate(const Model& model, const std::vector<std::string>& data, const std::string& format,
                    std::int64_t sequence_length, std::int64_t puzzles, const Precision& precision,
                    const Hardware& hardware = {}, std::stop_token stop = {});
/// Evaluates a model over tokens or rows in memory: sequences of `sequence_length` tokens, or rows with at
/// most one more. `data.next` and `data.held_out` are only for training.
Evaluation evaluate(const Model& model, const Data& data, std::int64_t sequence_length,
                    const Precision& precision = {}, const Hardware& hardware = {},
                    std::stop_token stop = {});
/// Evaluates the model of the config's run, or its newest state without one, over the held-out rows of the
/// config. If the config's source is "kk", `puzzles` held-out puzzles are also answered. `data` is the data
/// given to train() in place of the source. With train.objective = "rl" the first `puzzles` held-out prompts
/// are answered, all for 0, and scored by rl.reward.
Evaluation evaluate(const Config& config, std::int64_t puzzles, const Hardware& hardware = {},
                    const Data& data = {}, std::stop_token stop = {}, const Ranks& ranks = Ranks());

/// The mean of differences by row or passage. Both evaluations see the same text, so the standard error of
/// this mean is much smaller than those of the two means.
struct PairedMean {
  double difference = 0;
  std::optional<double> standard_error;  // null for one pair
  std::int64_t pairs = 0;
};

/// The differences of an evaluation from another one of the same data.
struct PairedChange {
  std::optional<PairedMean> loss;           // over rows, weighted by their tokens
  std::optional<PairedMean> accuracy;       // of last words, a share of 1
  std::optional<PairedMean> word_log_prob;  // of last words, nats
  std::int64_t gained = 0, lost = 0;        // last words that only one of them has right
};

/// Compares the rows and last words that both have completed.
PairedChange paired_change(const Evaluation& first, const Evaluation& other);

}  // namespace mantissa::api
