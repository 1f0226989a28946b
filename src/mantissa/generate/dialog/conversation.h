// A conversation with a model: its messages, and answers that are given while they are made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/generate/dialog/prompt_format.h"
#include "mantissa/generate/rollout/kept_sequence.h"
#include "mantissa/generate/rollout/sampler.h"
#include "mantissa/precision/policy/policy.h"

namespace mantissa::dialog {

/// The reason why an answer ended.
enum class End { turn, max_new_tokens, context, interrupted, stop };

/// Returns "turn", "max_new_tokens", "context", "interrupted" or "stop" (a stop string).
std::string_view name(End end);

struct Answer {
  std::string text;               // without special tokens
  std::vector<std::int32_t> ids;  // with the one that ends the answer
  std::vector<double> log_probs;  // of each id, without temperature
  std::int64_t prompt_tokens = 0;
  std::int64_t kept_tokens = 0;  // of these, the ones in the cache of the previous answer
  double seconds = 0;
  End end = End::turn;
};

struct Settings {
  std::string template_name = "auto";
  std::string system;  // empty: no system message
  std::int64_t max_new_tokens = 512;
  rollout::SamplingOptions sampling;
  std::vector<std::string> stop = {};  // an answer ends before the first of these strings
};

class Conversation {
 public:
  /// `device` must outlive the conversation. Throws as PromptFormat does, and ConfigError for settings out of
  /// range.
  Conversation(const weights::ModelSource& source, precision::Policy policy, Settings settings,
               const runtime::Device& device);

  /// Appends a user's message and the model's answer. `on_text` receives the parts of the answer, complete
  /// characters. If an error is thrown, the messages are as before: ConfigError if the conversation fills the
  /// model's context, chat::TemplateError, RunStopped for non-finite logits.
  Answer ask(std::string text, const std::function<void(std::string_view)>& on_text, std::stop_token stop);

  /// Returns the prompt that ask(text) would give to the model. Throws chat::TemplateError.
  std::string prompt_of(const std::string& text) const;

  /// Removes all messages but the system message.
  void reset();
  /// Replaces the system message, or removes it if `text` is empty. Later answers see the new one.
  void set_system(const std::string& text);

  /// Writes the messages and the states after them, as generate's --save-state does: answers can continue
  /// from the file without computing them again. Returns false and writes nothing before the first answer,
  /// and after an interrupt of a model whose states cannot rewind. Throws FileError, ResourceError.
  bool save_states(const std::filesystem::path& file);
  /// Throws FileError unless save_states() can write to `file`.
  void check_place(const std::filesystem::path& file) const;
  /// Replaces the messages and states by those of a file of save_states(). Throws FileError for another file
  /// or model, and DtypeError for states of another policy.
  void load_states(const std::filesystem::path& file);

  const std::vector<Message>& messages() const { return messages_; }
  const PromptFormat& format() const { return format_; }

 private:
  const rollout::StatesOrigin& origin();
  Answer answer(const std::function<void(std::string_view)>& on_text, std::stop_token stop);

  weights::ModelSource source_;
  precision::Policy policy_;
  const runtime::Device& device_;
  Settings settings_;
  PromptFormat format_;
  std::int64_t context_;  // positions of the model; 0: unlimited
  rollout::KeptSequence sequence_;
  std::optional<rollout::StatesOrigin> origin_;  // computed once, if it is needed
  std::vector<Message> messages_;
};

}  // namespace mantissa::dialog
