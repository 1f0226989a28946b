// A conversation with a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/model.h"
#include "mantissa/app/api/precision.h"

namespace mantissa::api {

struct ChatOptions {
  /// "auto": the chat template of the model directory; a built-in one: chatml, llama3, qwen, mistral, gemma,
  /// rwkv; or a Jinja file.
  std::string chat_template = "auto";
  std::string system = {};  // the system message; empty: none
  std::int64_t max_new_tokens = 512;
  double temperature = 0;  // 0: the most likely token
  std::int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;                    // as in GenerateOptions
  double repetition_penalty = 1;       // of the ids of the whole conversation
  std::vector<std::string> stop = {};  // an answer ends before the first of these strings
  std::uint64_t seed = 1;
  Precision precision = {};
  Hardware hardware = {};
};

struct ChatMessage {
  std::string role;  // system, user, assistant
  std::string content;
};

struct ChatAnswer {
  std::string text;               // without special tokens
  std::vector<std::int32_t> ids;  // with the token that ends the answer
  std::vector<double> log_probs;  // of each id, under the distribution without temperature
  std::int64_t prompt_tokens = 0;
  std::int64_t kept_tokens = 0;  // of these, the ones whose keys and values were still in the cache
  double seconds = 0;
  std::string end;  // turn, max_new_tokens, context, interrupted, stop
};

/// The messages of a conversation, and the model that answers. Keeps the key-value cache from one answer to
/// the next: only tokens after the common prefix are computed, and the results have the same bits as without
/// the cache. Use an object from one thread at a time.
class Chat {
 public:
  /// Reads the tokenizer and the template; the weights are read for the first answer. Throws ConfigError if
  /// the model has no tokenizer or no template, FileError if a file is damaged.
  Chat(const Model& model, const ChatOptions& options);
  ~Chat();
  Chat(Chat&&) noexcept;
  Chat& operator=(Chat&&) noexcept;

  /// Appends the user's message and the answer, which ends at the model's end-of-turn token, a limit or a
  /// stop. `on_text` receives the answer in parts of whole characters while it is made, on the caller's
  /// thread. Throws ConfigError if the conversation fills the model's context; then the messages are
  /// unchanged.
  ChatAnswer ask(const std::string& text, const std::function<void(std::string_view)>& on_text = {},
                 std::stop_token stop = {});

  /// Returns the prompt that ask(text) would give to the model: the conversation as the template renders it.
  std::string prompt_of(const std::string& text) const;

  /// Removes all messages but the system message.
  void reset();
  /// Replaces the system message, or removes it if `text` is empty.
  void set_system(const std::string& text);
  std::vector<ChatMessage> messages() const;
  /// Writes one line of JSON, {"messages": [{"role": …, "content": …}, …], "saved_by": "mantissa chat"}: a
  /// row of training data. Replaces an earlier one. Throws FileError, also for a file that it has not
  /// written, or ResourceError.
  void save(const std::filesystem::path& file) const;
  /// Writes the messages and the model's states after them to a file that load_state() reads. Returns false
  /// and writes nothing before the first answer, and after an answer that was stopped if the model's states
  /// cannot rewind. Throws FileError or ResourceError.
  bool save_state(const std::filesystem::path& file);
  /// Throws FileError unless save_state() can write to `file`: a new file, or an earlier file of states.
  void check_place(const std::filesystem::path& file) const;
  /// Continues the conversation of a file, whose tokens are not computed again. Throws FileError for another
  /// kind of file or model, DtypeError for states of another policy.
  void load_state(const std::filesystem::path& file);
  /// Returns the file or built-in name of the template.
  const std::string& template_name() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mantissa::api
