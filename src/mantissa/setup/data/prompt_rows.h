// The prompts of online objectives (train.objective = "rl"): their order in training, and those held out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/answer_text.h"
#include "mantissa/setup/data/chat_format.h"
#include "mantissa/setup/data/prompt_text.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {

struct Prompt : PromptText {
  nlohmann::ordered_json row;  // as in the file; of a generator as `mantissa data kk` writes it
  std::string where;           // "FILE:LINE", or text::GeneratedRows::where()
  std::int64_t people = 0;     // that the question is about; 0: the row does not say
};

/// Called for each row that is used, with its place. It may throw FileError.
using CheckRow = std::function<void(const nlohmann::ordered_json& row, const std::string& where)>;

/// Prompts are made when they are asked for: only their rows are in memory, and of generated rows only
/// their numbers. Safe to use from several threads.
class PromptSet {
 public:
  /// Reads the rows of [data] for a run with train.objective = "rl" (docs/post-training.md, "Prompts").
  /// Encodes every prompt once, calls `check` for each row that is used, and adds lines about the rows to
  /// `notes` unless it is null. Throws FileError with file and line for a row that is not a prompt, and
  /// ConfigError for prompts that are too long, for ids that are not in the model's vocabulary, and if no row
  /// is left.
  PromptSet(const config::RunConfig& config, const model::ModelConfig& model, const CheckRow& check = {},
            std::vector<std::string>* notes = nullptr);
  PromptSet(PromptSet&&) noexcept;
  ~PromptSet();

  /// Returns prompt `i` of rollout `rollout`, both from 0: i < rl.prompts_per_step. Each epoch has all
  /// training prompts, in an order that depends only on (run.seed, epoch), or with data.shuffle = false in
  /// that of the data; several sources take turns by data.weights. A rollout may cross the end of an epoch.
  Prompt at(std::int64_t rollout, std::int64_t i) const;

  std::int64_t training_count() const;
  std::int64_t held_out_count() const;
  /// Return prompt `i` in the order of the data.
  Prompt training(std::int64_t i) const;
  Prompt held_out(std::int64_t i) const;

  /// Returns the number of ids of the longest prompt.
  std::int64_t longest() const;
  /// Returns answer_text() of `prompt` and the ids that continue it.
  AnswerText answer(const Prompt& prompt, std::vector<std::int32_t> ids) const;

  const tokenizer::Tokenizer& tokenizer() const;
  /// Returns the template, or null for data.template = "none".
  const ChatFormat* format() const;
  /// Returns the bytes of the rows in memory.
  std::size_t bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mantissa::data
