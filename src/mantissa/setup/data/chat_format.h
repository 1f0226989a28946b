// The chat template of a model or a config: from messages to text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/chat/template.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {

class ChatFormat {
 public:
  /// `name` is "auto" for the template of `source` (without one model::Family::chat_template, and for
  /// llama.cpp's name "rwkv-world" the built-in `rwkv`), the name of a built-in template, or the path of a
  /// Jinja file. `option` begins messages about the name: "--template" or "data.template =". Throws
  /// ConfigError if `source` has no template or the name is unknown, and FileError or chat::TemplateError for
  /// a missing or damaged file. The template's special tokens are those of the tokenizer_config.json of
  /// `source` or, without one, the eos_token that a run writes for `tokenizer` (text/tokenizer/settings.h),
  /// if it is found in a text.
  ChatFormat(const weights::ModelSource& source, const std::string& name, const std::string& option,
             const tokenizer::Tokenizer& tokenizer);

  /// The template data.template of a run, with the date of fix_date(). Throws as above.
  ChatFormat(const config::RunConfig& config, const model::ModelConfig& model,
             const tokenizer::Tokenizer& tokenizer);

  /// Makes `strftime_now` give the 26 July 2024, the date of Llama's templates without a clock, so that data
  /// rendered on another day are the same.
  void fix_date();

  /// Renders messages, an array of objects with `role` and `content`. Throws chat::TemplateError.
  chat::Rendered render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                        const nlohmann::ordered_json& tools = nullptr) const;

  /// Returns the texts before which an answer ends, for a template that ends turns by text: with the built-in
  /// `rwkv` the beginning of the next user's message.
  std::vector<std::string> turn_ends() const;

  /// Throws the chat::TemplateError that is being handled as a FileError about the row at `where`.
  [[noreturn]] void rethrow_at(const std::string& where) const;

  /// Returns the template's file or built-in name, and its text.
  const std::string& name() const { return template_.name(); }
  const std::string& source() const { return source_; }

 private:
  struct Chosen {
    std::string source, name;
  };
  ChatFormat(Chosen chosen, nlohmann::ordered_json special_tokens);
  static Chosen choose(const weights::ModelSource& source, const std::string& name,
                       const std::string& option);

  std::string source_;
  nlohmann::ordered_json special_tokens_;
  chat::Template template_;
  chat::RenderOptions options_;
};

/// Returns the place of the template and the special tokens of a config: that of its tokenizer.
weights::ModelSource chat_source(const config::RunConfig& config, const model::ModelConfig& model);

}  // namespace mantissa::data
