// The prompts of online objectives (train.objective = "rl"), in training order, and those held out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/config/run_config.h"
#include "mantissa/data/chat_format.h"
#include "mantissa/model/config.h"
#include "mantissa/tokenizer/tokenizer.h"

namespace mantissa::data {

struct Prompt {
  std::vector<std::int32_t> ids;  // what the model continues: those of training on the row with "sft"
  std::string text;               // of the ids
  std::size_t answer = 0;         // byte of `text` at which the answer begins
  nlohmann::ordered_json row;     // as in the file; of a generated puzzle as `mantissa data kk` writes it
  std::string where;              // "FILE:LINE", or "puzzle N"
  std::int64_t people = 0;        // in the puzzle of the row; 0: it is not one

  /// Return the text before the answer, and the beginning of the answer in the prompt, such as "<think>".
  std::string_view question() const { return std::string_view(text).substr(0, answer); }
  std::string_view begun() const { return std::string_view(text).substr(answer); }
};

/// Called for each row that is used, with its place. It may throw FileError.
using CheckRow = std::function<void(const nlohmann::ordered_json& row, const std::string& where)>;

/// Prompts are made when they are asked for; only their rows are in memory. Safe to use from several threads.
class PromptSet {
 public:
  /// Reads the rows of [data] for a run with train.objective = "rl". Rows and rules: docs/post-training.md,
  /// "Prompts". Encodes every prompt once, calls `check` for its row, and adds lines about the rows to
  /// `notes` unless it is null. Throws FileError with file and line for a row that is not a prompt, and
  /// ConfigError for prompts that are too long, for ids that are not in the model's vocabulary, and if no row
  /// is left.
  PromptSet(const config::RunConfig& config, const model::ModelConfig& model, const CheckRow& check = {},
            std::vector<std::string>* notes = nullptr);
  PromptSet(PromptSet&&) noexcept;
  ~PromptSet();

  /// Returns prompt `i` of rollout `rollout`, both from 0: i < rl.prompts_per_step. Each epoch has all
  /// training prompts, in an order that depends only on (run.seed, epoch), or with data.shuffle = false in
  /// that of the data. A rollout may cross the end of an epoch.
  Prompt at(std::int64_t rollout, std::int64_t i) const;

  std::int64_t training_count() const;
  std::int64_t held_out_count() const;
  /// Return prompt `i` in the order of the data.
  Prompt training(std::int64_t i) const;
  Prompt held_out(std::int64_t i) const;

  /// Returns the ids of the longest prompt.
  std::int64_t longest() const;
  /// Returns the text of a response, without special tokens under a template: that of Prompt::begun() and of
  /// the ids that continue the prompt.
  std::string response(const Prompt& prompt, std::vector<std::int32_t> ids) const;

  const tokenizer::Tokenizer& tokenizer() const;
  /// Returns the template, or null for data.template = "none".
  const ChatFormat* format() const;
  /// Returns the bytes in memory.
  std::size_t bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mantissa::data
