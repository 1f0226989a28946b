// mantissa generate, eval, data kk
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "mantissa/api/error.h"
#include "mantissa/base/counted.h"
#include "mantissa/base/words.h"
#include "mantissa/cli/common.h"

namespace mantissa::cli {
namespace {

constexpr std::int64_t kMany = std::int64_t{1} << 40;

/// Parses "1,2,3", or several such words.
std::vector<std::int32_t> ids_of(const Arguments& a) {
  std::vector<std::int32_t> ids;
  for (const std::string& text : a.texts("--prompt-ids")) {
    for (const std::string_view word : split_words(text, ", ")) {
      std::int32_t id = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (error != std::errc() || end != word.data() + word.size())
        throw ConfigError(
            fmt::format("--prompt-ids {}: {} is not a token id; write 1,2,3", text, in_quotes(word)));
      ids.push_back(id);
    }
  }
  return ids;
}

std::vector<api::Prompt> prompts_of(const Arguments& a) {
  int given = 0;
  for (const char* option : {"--prompt", "--prompt-file", "--prompt-ids"}) given += a.has(option) ? 1 : 0;
  if (given != 1) throw ConfigError("generate: give exactly one of --prompt, --prompt-file, --prompt-ids");
  std::vector<api::Prompt> prompts;
  for (const std::string& text : a.texts("--prompt")) prompts.push_back({text, {}});
  for (const std::string& file : a.texts("--prompt-file")) prompts.push_back({api::read_prompt(file), {}});
  if (a.has("--prompt-ids")) prompts.push_back({{}, ids_of(a)});
  return prompts;
}

nlohmann::json to_json(const api::Generation& g) {
  return {{"prompt_ids", g.prompt_ids}, {"ids", g.ids}, {"text", g.text}, {"log_probs", g.log_probs}};
}

/// Returns the text, or the ids for a model without text.
std::string shown(const api::Generation& g) {
  if (!g.text.empty()) return g.text;
  std::string ids;
  for (const std::int32_t id : g.ids) ids += fmt::format("{} ", id);
  return ids;
}

void print_json(const api::Generations& made) {
  const bool single = made.all.size() == 1;
  nlohmann::json out = single ? to_json(made.all.front()) : nlohmann::json::object();
  if (!single) {
    for (const api::Generation& g : made.all) out["generations"].push_back(to_json(g));
  }
  out["tokens_per_second"] = made.tokens_per_second;
  if (made.interrupted) out["interrupted"] = true;
  fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_text(const api::Generations& made, std::size_t samples) {
  for (std::size_t i = 0; i < made.all.size(); ++i) {
    if (made.all.size() > 1) {
      fmt::print("{}==> prompt {}, sample {} <==\n", i == 0 ? "" : "\n", i / samples + 1, i % samples + 1);
    }
    fmt::print("{}\n", shown(made.all[i]));
  }
}

/// Evaluates a config, a run by its own config, or a model over --data.
api::Evaluation evaluated(const Arguments& a, const std::stop_token& stop) {
  const std::filesystem::path what = a.at(0), of_run = what / "config.toml";
  const std::int64_t puzzles = a.integer("--puzzles", 0, kMany);
  const bool run = !is_config(what) && !a.has("--data") && std::filesystem::exists(of_run);
  if (is_config(what) || run) {
    if (a.has("--data"))
      throw ConfigError("--data: a config has its own data; give a model directory, or remove --data");
    std::vector<std::string> set = a.texts("--set");
    if (run) set.insert(set.begin(), "run.out=" + what.string());
    const api::Config config = api::Config::load(run ? of_run : what, set, precision_of(a));
    tell(a, config.notes(), config.warnings());
    return api::evaluate(config, puzzles, hardware_of(a), {}, stop);
  }
  if (a.has("--set")) throw ConfigError("--set: eval of a model directory has no config; remove --set");
  if (!a.has("--data"))
    throw ConfigError("eval: requires a config, a run, or a model directory with --data FILES (or kk)");
  const std::int64_t length = a.integer("--sequence-length", 1, std::int64_t{1} << 24);
  tell_policy(a);
  return api::evaluate(what, a.texts("--data"), a.text("--format"), length, puzzles, precision_of(a),
                       hardware_of(a), stop);
}

void print_evaluation(const Arguments& a, const api::Evaluation& e) {
  if (a.has("--json")) {
    nlohmann::json out = {{"tokens", e.tokens}, {"loss", e.loss}, {"perplexity", e.perplexity}};
    if (e.bits_per_byte > 0) out["bits_per_byte"] = e.bits_per_byte;
    if (e.puzzles > 0)
      out.update({{"puzzles", e.puzzles}, {"well_formed", e.well_formed}, {"accuracy", e.accuracy}});
    if (e.interrupted) out["interrupted"] = true;
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("loss        {:.4f} over {}{}\nperplexity  {:.3f}\n", e.loss, counted(e.tokens, "token"),
             e.interrupted ? " (interrupted)" : "", e.perplexity);
  if (e.bits_per_byte > 0) fmt::print("bits/byte   {:.3f}\n", e.bits_per_byte);
  if (e.puzzles > 0) {
    fmt::print("puzzles     {} held out: {:.0f} % in the right form, {:.0f} % right\n", e.puzzles,
               100 * e.well_formed, 100 * e.accuracy);
  }
}

}  // namespace

int generate(const Arguments& a) {
  const std::vector<api::Prompt> prompts = prompts_of(a);
  api::GenerateOptions options;
  options.samples = a.integer("--samples", 1, std::int64_t{1} << 20);
  options.streams = a.integer("--streams", 1, 1024);
  options.max_new_tokens = a.integer("--max-new-tokens", 1, std::int64_t{1} << 24);
  options.temperature = a.number("--temperature");
  options.top_k = a.integer("--top-k", 0, kMany);
  options.top_p = a.number("--top-p");
  options.seed = a.seed();
  options.precision = precision_of(a);
  options.hardware = hardware_of(a);
  tell_policy(a);
  const SignalStop signals;
  const api::Generations made = api::generate(a.at(0), prompts, options, signals.token());
  if (a.has("--json")) {
    print_json(made);
  } else {
    print_text(made, static_cast<std::size_t>(options.samples));
  }
  return made.interrupted ? report_interrupt(signals, "the text ends at the last complete token") : 0;
}

int eval(const Arguments& a) {
  const SignalStop signals;
  const api::Evaluation e = evaluated(a, signals.token());
  if (e.tokens > 0) print_evaluation(a, e);
  if (!e.interrupted) return 0;
  return report_interrupt(signals,
                          e.tokens > 0 ? "the loss is that of the completed rows" : "no row was completed");
}

int data_kk(const Arguments& a) {
  const std::string split = a.text("--split"), out = a.text("--out");
  if (split != "train" && split != "test")
    throw ConfigError(fmt::format("--split {}: one of train, test", split));
  api::PuzzleOptions options;
  options.count = a.integer("--count", 0, kMany);
  options.people_min = static_cast<int>(a.integer("--people-min", 2, 8));
  options.people_max = static_cast<int>(a.integer("--people-max", 2, 8));
  options.seed = a.seed();
  options.held_out = split == "test";
  options.style = a.text("--style");
  if (!out.empty()) {
    api::write_puzzles(options, out, a.has("--overwrite"));
    return 0;
  }
  if (a.has("--overwrite"))
    throw ConfigError("--overwrite: standard output replaces no file; give --out FILE");
  for (const std::string& row : api::puzzles(options)) fmt::print("{}\n", row);
  return 0;
}

}  // namespace mantissa::cli
