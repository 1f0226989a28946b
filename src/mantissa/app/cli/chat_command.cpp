// mantissa chat
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

constexpr std::string_view kChatCommands =
    "/reset         begin again\n"
    "/system TEXT   set the system message\n"
    "/save FILE     write the messages as JSON\n"
    "/help          print this\n"
    "/quit, /exit   end\n"
    "//…            a message that begins with /\n"
    "Ctrl-C         stop the answer\n"
    "Ctrl-D         end\n";

api::ChatOptions options_of(const Arguments& a) {
  api::ChatOptions options;
  options.chat_template = a.text("--template");
  options.system = a.text("--system");
  read_sampling(a, options);
  return options;
}

/// Prints the answer, and the prompt unless it is null.
void print_json(const api::ChatAnswer& answer, const std::optional<std::string>& prompt) {
  nlohmann::ordered_json out = {
      {"role", "assistant"},
      {"content", answer.text},
      {"ids", answer.ids},
      {"log_probs", answer.log_probs},
      {"prompt_tokens", answer.prompt_tokens},
      {"kept_tokens", answer.kept_tokens},
      {"end", answer.end},
      {"seconds", answer.seconds},
  };
  if (prompt) out["prompt"] = *prompt;
  fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  flush_output();
}

/// The dialog of one command line: lines of standard input, and answers on standard output.
class Dialog {
 public:
  Dialog(const Arguments& a, api::Chat chat)
      : chat_(std::move(chat)),
        json_(a.has("--json")),
        quiet_(a.has("--quiet")),
        shows_prompt_(a.has("--show-prompt")),
        save_state_(given_file(a, "--save-state")),
        typed_(isatty(STDIN_FILENO) != 0) {}

  int run() {
    if (typed_) note("/help lists the commands, Ctrl-C stops an answer, /quit or Ctrl-D ends.\n");
    std::string line;
    while (code_ == 0 && !ended_ && read(line)) {
      try {
        take(line);
      } catch (const Error& e) {
        if (!typed_) throw;  // a script stops at its first error
        print_message(Message::error, fmt::format("mantissa: {}\n", e.what()));
      }
    }
    return code_;
  }

 private:
  bool read(std::string& line) {
    if (typed_) note("> ");
    if (std::getline(std::cin, line)) return true;
    if (typed_) note("\n");
    return false;
  }

  void note(std::string_view text) const {
    if (!quiet_) print_error(text);
  }

  void take(const std::string& line) {
    if (line.empty()) return;
    if (line.starts_with("//")) return answer(line.substr(1));
    if (line.starts_with("/")) return obey(line);
    answer(line);
  }

  void obey(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string word = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (word == "/reset") {
      chat_.reset();
    } else if (word == "/system") {
      chat_.set_system(rest);
    } else if (word == "/save") {
      if (rest.empty()) throw ConfigError("/save: give a file: /save FILE");
      chat_.save(rest);
    } else if (word == "/help") {
      note(kChatCommands);
    } else if (word == "/quit" || word == "/exit") {
      ended_ = true;
    } else {
      throw ConfigError(fmt::format(
          "unknown command {}; /help lists the commands, and // begins a message with /", in_quotes(word)));
    }
  }

  static void show_prompt(std::string_view prompt) {
    while (!prompt.empty()) {
      const std::size_t end = std::min(prompt.find('\n'), prompt.size());
      print_error(printable(prompt.substr(0, end)) + "\n");
      prompt.remove_prefix(std::min(end + 1, prompt.size()));
    }
  }

  void answer(const std::string& text) {
    const SignalStop signals;
    const auto show = [&](std::string_view part) {
      if (json_) return;
      fmt::print("{}", part);
      flush_output();
    };
    std::optional<std::string> prompt;
    if (shows_prompt_) prompt = chat_.prompt_of(text);
    if (prompt && !json_) show_prompt(*prompt);
    const api::ChatAnswer made = chat_.ask(text, show, signals.token());
    if (json_) {
      print_json(made, prompt);
    } else {
      fmt::print("\n");
      flush_output();
    }
    if (!save_state_.empty() && !chat_.save_state(save_state_))
      note("mantissa: note: no states were written, because those of a stopped answer are not complete\n");
    if (made.end == "context") note("mantissa: note: the model's context is full; /reset begins again\n");
    if (made.end != "interrupted") return;
    const bool leaves = !typed_ || signals.reason() != std::string_view("^C");
    if (leaves) code_ = report_interrupt(signals, "the answer ends at the last complete token");
  }

  api::Chat chat_;
  bool json_, quiet_, shows_prompt_;
  std::string save_state_;  // the file; empty: none
  bool typed_;
  bool ended_ = false;  // by /quit
  int code_ = 0;
};

int chat(const Arguments& a) {
  tell_policy(a);
  tell_model(a);
  // The model's threads inherit that the signals are blocked, so that Ctrl-C reaches the answer's SignalStop.
  std::optional<SignalStop> signals(std::in_place);
  api::Chat opened(model_of(a), options_of(a));
  if (const std::string file = given_file(a, "--save-state"); !file.empty()) opened.check_place(file);
  if (const std::string file = given_file(a, "--state"); !file.empty()) {
    if (a.has("--system")) {
      throw ConfigError(
          "chat: --state continues a conversation with its own system message. Fix: remove --system, or "
          "set another one with /system");
    }
    opened.load_state(file);
  }
  Dialog dialog(a, std::move(opened));
  if (signals->token().stop_requested()) return report_interrupt(*signals, "no message was answered");
  signals.reset();
  return dialog.run();
}

}  // namespace

Commands chat_commands() {
  return {
      {.name = "chat",
       .summary = "talk to a model by its chat template",
       .positionals = {{"MODEL", "a Hugging Face directory, a GGUF file, or a run"}},
       .details =
           "Each line of standard input is a message. /reset begins again, /system TEXT sets the system "
           "message, /save FILE writes the messages as JSON; Ctrl-C stops an answer, Ctrl-D ends.",
       .options =
           {kSampling,
            kSeed,
            kAdapter,
            {"--template", one, "NAME|FILE",
             "the model's own chat template, a built-in one (chatml, llama3, qwen, mistral, gemma, rwkv), or a "
             "Jinja file",
             "auto"},
            {"--system", one, "TEXT", "system message"},
            {"--state", one, "FILE", "continue the conversation of a file that --save-state wrote"},
            {"--save-state", one, "FILE", "write the conversation and the model's states after each answer"},
            {"--show-prompt", "print the rendered prompt before each answer, to standard error"},
            {"--max-new-tokens", one, "N", "largest number of tokens of an answer", "512"}},
       .groups = {kPrecision, kRules, kHardware, kResults},
       .run = chat}};
}

}  // namespace mantissa::cli
