// mantissa generate, eval, trace, explain, data, doctor
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "mantissa/api/error.h"
#include "mantissa/cli/options.h"

namespace mantissa::cli {
namespace {

bool is_config(const std::string& path) {
  return path.ends_with(".toml");
}

void refuse_set(const CommonOptions& common, const char* command) {
  if (!common.set.empty())
    throw ConfigError(fmt::format("--set: {} of a model directory has no config; leave it out", command));
}

struct GenerateArguments {
  std::string model;
  std::vector<std::string> prompts, prompt_files;
  std::vector<std::int32_t> ids;
  api::GenerateOptions options;
};

std::vector<api::Prompt> prompts_of(const GenerateArguments& a) {
  const int given = (a.prompts.empty() ? 0 : 1) + (a.prompt_files.empty() ? 0 : 1) + (a.ids.empty() ? 0 : 1);
  if (given != 1) throw ConfigError("generate: give exactly one of --prompt, --prompt-file, --prompt-ids");
  std::vector<api::Prompt> prompts;
  for (const std::string& text : a.prompts) prompts.push_back({text, {}});
  for (const std::string& file : a.prompt_files) prompts.push_back({api::read_prompt(file), {}});
  if (!a.ids.empty()) prompts.push_back({{}, a.ids});
  return prompts;
}

nlohmann::json to_json(const api::Generation& g) {
  return {{"prompt_ids", g.prompt_ids}, {"ids", g.ids}, {"text", g.text}, {"log_probs", g.log_probs}};
}

/// The text, or the ids where the model has no text.
std::string shown(const api::Generation& g) {
  if (!g.text.empty()) return g.text;
  std::string ids;
  for (const std::int32_t id : g.ids) ids += fmt::format("{} ", id);
  return ids;
}

int run_generate(GenerateArguments& a, const CommonOptions& common) {
  refuse_set(common, "generate");
  const std::vector<api::Prompt> prompts = prompts_of(a);
  a.options.precision = common.policy();
  a.options.hardware = common.hardware();
  common.tell_policy();
  const api::Generations made = api::generate(a.model, prompts, a.options);
  const bool single = made.all.size() == 1;
  if (common.json) {
    nlohmann::json out = single ? to_json(made.all.front()) : nlohmann::json::object();
    if (!single) {
      for (const api::Generation& g : made.all) out["generations"].push_back(to_json(g));
    }
    out["tokens_per_second"] = made.tokens_per_second;
    fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  const auto samples = static_cast<std::size_t>(a.options.samples);
  for (std::size_t i = 0; i < made.all.size(); ++i) {
    if (!single) {
      fmt::print("{}==> prompt {}, sample {} <==\n", i == 0 ? "" : "\n", i / samples + 1, i % samples + 1);
    }
    fmt::print("{}\n", shown(made.all[i]));
  }
  return 0;
}

struct EvalArguments {
  std::string what, format = "auto";
  std::vector<std::string> data;
  std::int64_t sequence_length = 256, puzzles = 20;
};

int run_eval(const EvalArguments& a, const CommonOptions& common) {
  api::Evaluation e;
  if (is_config(a.what)) {
    if (!a.data.empty())
      throw ConfigError("--data: a config names its own data; give a model directory, or leave it out");
    const api::Config config = api::Config::load(a.what, common.set, common.policy());
    common.tell(config.notes(), config.warnings());
    e = api::evaluate(config, a.puzzles, common.hardware());
  } else {
    refuse_set(common, "eval");
    if (a.data.empty())
      throw ConfigError("eval: give --data FILES (or kk) with a model directory, or a config");
    if (a.sequence_length < 1)
      throw ConfigError(fmt::format("--sequence-length {}: must be at least 1", a.sequence_length));
    common.tell_policy();
    e = api::evaluate(a.what, a.data, a.format, a.sequence_length, a.puzzles, common.policy(),
                      common.hardware());
  }
  if (common.json) {
    nlohmann::json out = {{"tokens", e.tokens}, {"loss", e.loss}, {"perplexity", e.perplexity}};
    if (e.bits_per_byte > 0) out["bits_per_byte"] = e.bits_per_byte;
    if (e.puzzles > 0)
      out.update({{"puzzles", e.puzzles}, {"well_formed", e.well_formed}, {"accuracy", e.accuracy}});
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("loss        {:.4f} over {} tokens\nperplexity  {:.3f}\n", e.loss, e.tokens, e.perplexity);
  if (e.bits_per_byte > 0) fmt::print("bits/byte   {:.3f}\n", e.bits_per_byte);
  if (e.puzzles > 0) {
    fmt::print("puzzles     {} held out: {:.0f} % in the right form, {:.0f} % right\n", e.puzzles,
               100 * e.well_formed, 100 * e.accuracy);
  }
  return 0;
}

struct DataArguments {
  std::string out, split = "train";
  api::PuzzleOptions options;
};

int run_puzzles(DataArguments& a) {
  if (a.split != "train" && a.split != "test")
    throw ConfigError(fmt::format("--split {}: one of train, test", a.split));
  a.options.held_out = a.split == "test";
  const std::vector<std::string> rows = api::puzzles(a.options);
  if (a.out.empty()) {
    for (const std::string& row : rows) fmt::print("{}\n", row);
    return 0;
  }
  std::ofstream out(a.out, std::ios::binary);
  for (const std::string& row : rows) out << row << '\n';
  out.flush();
  if (!out) throw ResourceError(fmt::format("{}: cannot be written; check the folder and the disk", a.out));
  return 0;
}

int run_explain(const std::string& what, const CommonOptions& common) {
  api::Plan plan;
  if (is_config(what)) {
    plan = api::explain(api::Config::load(what, common.set, common.policy(true)), common.hardware(),
                        common.targets);
  } else {
    refuse_set(common, "explain");
    plan = api::explain_model(what, common.policy(true), common.hardware(), common.targets);
  }
  fmt::print("{}\n", common.json ? plan.json : plan.text);
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, CommonOptions& common, Run& run) {
  CLI::App* command =
      app.add_subcommand("generate", "Text from a model directory, with the log-probability of each token");
  auto a = std::make_shared<GenerateArguments>();
  command->add_option("MODEL", a->model, "Hugging Face directory")->required();
  // One value each time: a word after it is another argument.
  command->add_option("--prompt", a->prompts, "Text to go on from; may be repeated")->allow_extra_args(false);
  command->add_option("--prompt-file", a->prompt_files, "File with it, taken byte for byte; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--prompt-ids", a->ids, "Token ids instead: 1,2,3")->delimiter(',');
  command->add_option("--samples", a->options.samples, "Continuations of each prompt")->capture_default_str();
  command->add_option("--streams", a->options.streams, "Sequences decoded at once at most (changes no bit)")
      ->capture_default_str();
  command->add_option("--max-new-tokens", a->options.max_new_tokens, "At most this many tokens")
      ->capture_default_str();
  command->add_option("--temperature", a->options.temperature, "0: the most likely token")
      ->capture_default_str();
  command->add_option("--top-k", a->options.top_k, "Draw from the k most likely; 0: all")
      ->capture_default_str();
  command->add_option("--top-p", a->options.top_p, "Draw from the fewest that hold this probability")
      ->capture_default_str();
  command->add_option("--seed", a->options.seed, "Of the draws")->capture_default_str()->check(whole_seed());
  common.add_to(*command);
  command->callback([a, &common, &run] { run = [a, &common] { return run_generate(*a, common); }; });
}

void add_eval(CLI::App& app, CommonOptions& common, Run& run) {
  CLI::App* command =
      app.add_subcommand("eval", "Loss, perplexity, bits per byte, and the share of puzzles answered");
  auto a = std::make_shared<EvalArguments>();
  command->add_option("MODEL|CONFIG", a->what, "Model directory, or a run's config (.toml)")->required();
  command->add_option("--data", a->data, "Files, or kk for held-out puzzles");
  command->add_option("--format", a->format, "auto, text, jsonl, tokens")->capture_default_str();
  command->add_option("--sequence-length", a->sequence_length, "Tokens of a row")->capture_default_str();
  command->add_option("--puzzles", a->puzzles, "Held-out puzzles to answer")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  common.add_to(*command);
  command->callback([a, &common, &run] { run = [a, &common] { return run_eval(*a, common); }; });
}

void add_trace(CLI::App& app, CommonOptions& common, Run& run) {
  CLI::App* command =
      app.add_subcommand("trace", "One forward (and backward) pass written out for comparison");
  auto t = std::make_shared<api::TraceOptions>();
  command->add_option("MODEL", t->model, "Hugging Face directory")->required();
  command->add_option("--tokens", t->tokens, "safetensors with input_ids [B, T], and labels if wanted")
      ->required();
  command->add_option("--out", t->out, "safetensors to write")->required();
  command->add_flag("--grads", t->grads, "Gradients of every weight too");
  command->add_option("--values", t->values, "Glob of plan values to write too");
  command
      ->add_option("--unconverted", t->unconverted,
                   "Name or glob of tensors that keep the format they were rounded to; may be repeated")
      ->allow_extra_args(false);
  common.add_to(*command);
  command->callback([t, &common, &run] {
    run = [t, &common] {
      refuse_set(common, "trace");
      if (t->tokens.empty() || t->out.empty())
        throw ConfigError("trace: --tokens and --out name files; one of them is empty");
      t->precision = common.policy();
      t->hardware = common.hardware();
      common.tell_policy();
      const api::Trace r = api::trace(*t);
      if (r.predicted == 0) {
        fmt::print(
            stderr,
            "mantissa: warning: {}: every label is masked (-100), so that the loss and all gradients are 0; "
            "leave labels out to predict each next id\n",
            t->tokens.string());
      }
      if (common.json) {
        fmt::print(
            "{}\n",
            nlohmann::json{{"loss", r.loss}, {"predicted", r.predicted}, {"out", t->out.string()}}.dump());
      } else if (!common.quiet) {
        fmt::print("loss {:.9g}, written to {}\n", r.loss, t->out.string());
      }
      return 0;
    };
  });
}

void add_explain(CLI::App& app, CommonOptions& common, Run& run) {
  CLI::App* command =
      app.add_subcommand("explain", "The precision plan, memory and time before anything runs");
  auto what = std::make_shared<std::string>();
  command->add_option("CONFIG|MODEL", *what, "A run's config (.toml), or a model directory")->required();
  common.add_to(*command);
  command->callback([what, &common, &run] { run = [what, &common] { return run_explain(*what, common); }; });
}

void add_data(CLI::App& app, CommonOptions& common, Run& run) {
  CLI::App* data = app.add_subcommand("data", "Data sources");
  data->require_subcommand(1);
  CLI::App* kk = data->add_subcommand("kk", "Knights-and-Knaves puzzles as JSONL");
  auto a = std::make_shared<DataArguments>();
  kk->add_option("--count", a->options.count, "How many")->capture_default_str();
  kk->add_option("--people-min", a->options.people_min, "At least this many people")->capture_default_str();
  kk->add_option("--people-max", a->options.people_max, "At most this many, up to 8")->capture_default_str();
  kk->add_option("--seed", a->options.seed, "Of the puzzles")->capture_default_str()->check(whole_seed());
  kk->add_option("--split", a->split, "train, or test: held out from every training set")
      ->capture_default_str();
  kk->add_option("--style", a->options.style, "short, or logic-rl")->capture_default_str();
  kk->add_option("--out", a->out, "File to write; standard output where left out");
  common.add_to(*kk);
  kk->callback([a, &run] { run = [a] { return run_puzzles(*a); }; });
}

void add_doctor(CLI::App& app, CommonOptions& common, Run& run) {
  CLI::App* command = app.add_subcommand(
      "doctor", "What this machine can do, what each format costs, and which preset to take");
  common.add_to(*command);
  command->callback([&common, &run] {
    run = [&common] {
      const api::Doctor d = api::doctor(common.hardware());
      fmt::print("{}\n", common.json ? d.json : d.text);
      return 0;
    };
  });
}

}  // namespace mantissa::cli
