// From the messages of a conversation to the ids that a model continues: its template, its tokenizer, and the
// ids that end an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "mantissa/setup/data/chat_format.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::dialog {

struct Message {
  std::string role;  // system, user, assistant
  std::string content;
};

/// Returns the messages as a JSON array of objects with `role` and `content`.
nlohmann::ordered_json to_json(const std::vector<Message>& messages);

/// Returns the ids that end an answer, ascending: with a template, `eos_token_id` of the
/// generation_config.json and config.json of `source`, the tokenizer's end token, and the special token that
/// the template writes after an answer; without one (null), the tokenizer's separator.
std::vector<std::int32_t> answer_ends(const tokenizer::Tokenizer& tokenizer, const data::ChatFormat* format,
                                      const weights::ModelSource& source);

/// How prompts of a chat template end, and the strings that end the answers to them.
struct AnswerForm {
  std::string begin;              // the last text of a prompt: "\n\nAssistant:"
  std::vector<std::string> ends;  // texts that end an answer; empty if tokens do, or without a template
  bool begins_after(std::string_view prompt) const { return !ends.empty() && prompt.ends_with(begin); }
};

/// Returns the form of the model's own template. A template that cannot be read counts as none.
AnswerForm answer_form(const tokenizer::Tokenizer& tokenizer, const weights::ModelSource& source);

class PromptFormat {
 public:
  /// Reads the tokenizer of `source` and a chat template. `template_name` is "auto" for the template of
  /// `source`, the name of a built-in template, or the path of a Jinja file. Throws ConfigError if `source`
  /// has no tokenizer or no template, or if the name is unknown, and FileError or chat::TemplateError if a
  /// file is missing or damaged.
  PromptFormat(const weights::ModelSource& source, const std::string& template_name);

  /// As ChatFormat::fix_date().
  void fix_date() { format_.fix_date(); }

  /// Returns the rendered conversation up to the place where the assistant's answer begins. The bytes of an
  /// assistant's message that are not UTF-8 stay as they are. Throws chat::TemplateError, for example if the
  /// template rejects a system message, or for a message of the user that is not UTF-8.
  std::string prompt_of(const std::vector<Message>& messages) const;

  /// Returns the ids of prompt_of(messages). Throws
  /// chat::TemplateError, for example if the template rejects a system message, and ConfigError for a token
  /// that is not in the model's vocabulary.
  std::vector<std::int32_t> ids_of(const std::vector<Message>& messages) const;

  /// Returns answer_ends().
  const std::vector<std::int32_t>& ends() const { return ends_; }

  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  const data::ChatFormat& format() const { return format_; }
  /// Returns the template's file or built-in name.
  const std::string& template_name() const { return format_.name(); }

 private:
  std::int64_t vocabulary_;  // of the model
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  data::ChatFormat format_;
  std::vector<std::int32_t> ends_;
};

}  // namespace mantissa::dialog
