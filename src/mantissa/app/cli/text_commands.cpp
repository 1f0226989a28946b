// mantissa generate
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

/// Parses "1,2,3".
std::vector<std::int32_t> ids_of(const std::string& text) {
  std::vector<std::int32_t> ids;
  if (trimmed(text).empty())
    throw ConfigError("--prompt-ids: is empty; give at least one token id: --prompt-ids 1,2,3");
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view part = std::string_view(text).substr(at, comma - at);
    const std::vector<std::string_view> words = split_words(part, " ");
    if (words.empty())
      throw ConfigError("--prompt-ids {}: a token id is missing; write 1,2,3", in_quotes(text));
    for (const std::string_view word : words) {
      const auto id = number_in<std::int32_t>(word);
      if (!id) throw ConfigError("--prompt-ids {}: {} is not a token id; write 1,2,3", text, in_quotes(word));
      ids.push_back(*id);
    }
    at = comma + 1;
  }
  return ids;
}

std::vector<api::Prompt> prompts_of(const Arguments& a) {
  int given = 0;
  for (const char* option : {"--prompt", "--prompt-file", "--prompts", "--prompt-ids"})
    given += a.has(option) ? 1 : 0;
  if (given == 0 && a.has("--state")) return {{}};
  if (given != 1) {
    throw ConfigError("generate: give exactly one of --prompt, --prompt-file, --prompts and --prompt-ids");
  }
  std::vector<api::Prompt> prompts;
  if (a.has("--prompts")) prompts = api::read_prompts(a.text("--prompts"));
  for (const std::string& text : a.texts("--prompt")) prompts.push_back({text, {}});
  for (const std::string& file : a.texts("--prompt-file")) prompts.push_back({api::read_prompt(file), {}});
  for (const std::string& ids : a.texts("--prompt-ids")) prompts.push_back({{}, ids_of(ids)});
  return prompts;
}

nlohmann::json to_json(const api::Generation& g) {
  return {{"prompt_ids", g.prompt_ids},
          {"ids", g.ids},
          {"text", g.text},
          {"log_probs", g.log_probs},
          {"log_prob", g.total_log_prob}};
}

/// Returns the text, or the ids for a model without text.
std::string shown(const api::Generation& g) {
  if (!g.text.empty()) return g.text;
  std::string ids;
  for (const std::int32_t id : g.ids) ids += fmt::format("{} ", id);
  return ids;
}

/// With `best`, the objects of several sequences also have the numbers of their prompt and sample.
void print_json(const api::Generations& made, bool best) {
  const bool single = made.all.size() == 1;
  nlohmann::json out = single ? to_json(made.all.front()) : nlohmann::json::object();
  if (!single) {
    for (const api::Generation& g : made.all) {
      nlohmann::json of = to_json(g);
      if (best) of.update({{"prompt", g.prompt}, {"sample", g.sample}});
      out["generations"].push_back(std::move(of));
    }
  }
  out["tokens_per_second"] = made.tokens_per_second;
  if (made.interrupted) out["interrupted"] = true;
  fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_text(const api::Generations& made, bool best) {
  for (std::size_t i = 0; i < made.all.size(); ++i) {
    const api::Generation& g = made.all[i];
    if (made.all.size() > 1) {
      fmt::print("{}==> prompt {}, sample {}{} <==\n", i == 0 ? "" : "\n", g.prompt + 1, g.sample + 1,
                 best ? fmt::format(", log-probability {:.3f}", g.total_log_prob) : "");
    }
    fmt::print("{}\n", shown(g));
  }
}

/// Prints the text of each token at once.
bool print_token(const api::Token& token) {
  fmt::print("{}", token.text);
  flush_output();
  return true;
}

int generate(const Arguments& a) {
  const std::vector<api::Prompt> prompts = prompts_of(a);
  api::GenerateOptions options;
  options.samples = a.integer("--samples", 1, std::int64_t{1} << 20);
  options.streams = a.integer("--streams", 1, 1024);
  read_sampling(a, options);
  if (a.has("--best")) options.best = a.integer("--best", 1, options.samples);
  options.state = given_file(a, "--state");
  options.save_state = given_file(a, "--save-state");
  options.overwrite = a.has("--overwrite");
  const bool stream = a.has("--stream");
  if (stream && (prompts.size() > 1 || options.samples > 1 || a.has("--json")))
    throw ConfigError(
        "--stream: prints the text of one sequence; give one prompt and one sample, without --json");
  if (stream) options.on_token = print_token;
  tell_policy(a);
  tell_model(a);
  const SignalStop signals;
  const api::Generations made = api::generate(model_of(a), prompts, options, signals.token());
  if (a.has("--json")) {
    print_json(made, options.best > 0);
  } else if (stream && !made.all.front().text.empty()) {
    fmt::print("\n");
  } else {
    print_text(made, options.best > 0);
  }
  return made.interrupted ? report_interrupt(signals, options.save_state.empty()
                                                          ? "the text ends at the last complete token"
                                                          : "the text ends at the last complete token, "
                                                            "and no states were written")
                          : 0;
}

}  // namespace

Commands generate_commands() {
  return {
      {.name = "generate",
       .summary = "generate text, with the log-probability of each token",
       .positionals = {{"MODEL", "a Hugging Face directory, a GGUF file, or a run"}},
       .details =
           "Give exactly one of --prompt, --prompt-file, --prompts and --prompt-ids. With --state, the "
           "prompt may be missing.",
       .options = {{"--prompt", each, "TEXT", "text to continue; repeatable"},
                   {"--prompt-file", each, "FILE", "file with a prompt, read byte for byte; repeatable"},
                   {"--prompts", one, "FILE", "prompts: JSON or CSV with \"prompt\", or plain lines (.txt)"},
                   {"--prompt-ids", each, "IDS", "token ids of a prompt: 1,2,3; repeatable"},
                   {"--max-new-tokens", one, "N", "largest number of new tokens", "128"},
                   kSampling,
                   {"--samples", one, "N", "continuations of each prompt", "1"},
                   {"--best", one, "K", "print only the K most likely samples of each prompt"},
                   {"--stream", "print the text while it is made"},
                   {"--streams", one, "N", "largest number of sequences decoded at once; changes no bit",
                    "16"},
                   kSeed,
                   {"--state", one, "FILE", "continue the sequence of a file that --save-state wrote"},
                   {"--save-state", one, "FILE", "write the states after the sequence"},
                   {"--overwrite", "--save-state may replace a file of another kind"},
                   kAdapter},
       .groups = {kPrecision, kRules, kHardware, kResults},
       .run = generate}};
}

}  // namespace mantissa::cli
