// Chat templates: the text that a model expects for a conversation. The language is the part of Jinja that
// the `chat_template`s of Hugging Face models use, with the settings of transformers' apply_chat_template
// (docs/chat.md).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/format.h"
#include "mantissa/text/chat/meter.h"

namespace mantissa::chat {

struct Program;

struct RenderOptions {
  /// The time that `strftime_now` formats. By default the machine's local time.
  std::function<LocalTime()> clock = {};
  Limits limits = {};
};

struct Rendered {
  std::string text;
  /// Byte ranges [first, second) of the text that `{% generation %}` blocks wrote: what the assistant says.
  std::vector<std::pair<std::size_t, std::size_t>> generations = {};
  /// A generation block ran inside a macro or a `set` block, so that its range is unknown.
  bool lost_generation = false;
};

/// A parsed template. It can be copied and used by several threads.
class Template {
 public:
  /// Parses a template, whose name appears in errors. Throws a TemplateError.
  static Template parse(std::string_view source, std::string name);

  /// Renders a conversation. The context is an object of variables: `messages`, `add_generation_prompt`,
  /// `tools`, `bos_token`, … Throws a RaisedByTemplate if the template rejects the conversation, else a
  /// TemplateError.
  Rendered render(const nlohmann::ordered_json& context, const RenderOptions& options = {}) const;

  const std::string& name() const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

/// Returns the context of transformers' apply_chat_template. `tools` and `documents` may be null, and
/// `special_tokens` are those of the tokenizer: bos_token, eos_token, … A message's `reasoning_content`,
/// `thinking` or `reasoning` is given under the first two names. Throws a ConfigError if the messages are not
/// an array of objects.
nlohmann::ordered_json chat_context(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                                    const nlohmann::ordered_json& special_tokens,
                                    const nlohmann::ordered_json& tools = nullptr,
                                    const nlohmann::ordered_json& documents = nullptr);

}  // namespace mantissa::chat
