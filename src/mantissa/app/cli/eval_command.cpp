// mantissa eval
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/eval_report.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/app/cli/together.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/look.h"

namespace mantissa::cli {
namespace {

constexpr std::int64_t kMany = std::int64_t{1} << 40;

/// Returns true if `text` is a policy. Commas belong to some spellings, such as p=f32,c=bf16,o=f32.
bool is_policy(const std::string& text) {
  try {
    api::read_precision({.policy = text, .rules = {}, .deepspeed = {}});
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

/// Returns the policies of --precision, each with the rules, or one without it.
std::vector<api::Precision> precisions_of(const Arguments& a) {
  std::vector<std::optional<std::string>> policies;
  for (const std::string& value : a.texts("--precision")) {
    if (is_policy(value) || value.find(',') == std::string::npos) {
      policies.emplace_back(trimmed(value));
      continue;
    }
    for (std::string& policy : api::split_values(value)) {
      if (policy.empty()) throw ConfigError("--precision {}: a policy is empty. Fix: write A,B,C", value);
      policies.emplace_back(std::move(policy));
    }
  }
  if (policies.empty()) policies.emplace_back();
  std::vector<api::Precision> all;
  for (std::optional<std::string>& policy : policies)
    all.push_back({std::move(policy), a.texts("--rule"), a.text("--deepspeed")});
  return all;
}

/// Notes that several policies share are printed once.
class Notes {
 public:
  explicit Notes(const Arguments& a) : a_(a) {}
  void tell(const std::vector<std::string>& notes, const std::vector<std::string>& warnings) {
    cli::tell(a_, fresh(notes, notes_), fresh(warnings, warnings_));
  }

 private:
  static std::vector<std::string> fresh(const std::vector<std::string>& all, std::vector<std::string>& told) {
    std::vector<std::string> result;
    for (const std::string& text : all) {
      if (std::ranges::find(told, text) != told.end()) continue;
      told.push_back(text);
      result.push_back(text);
    }
    return result;
  }
  const Arguments& a_;
  std::vector<std::string> notes_, warnings_;
};

/// The subject of an evaluation: the held-out rows of a config, or a model over files.
class Subject {
 public:
  /// Reads the policies, so that a misspelt one is an error before the first of them runs.
  Subject(const Arguments& a, const std::vector<api::Precision>& precisions) : a_(a) {
    const std::filesystem::path what = a.at(0), of_run = what / "config.toml";
    const bool given = a.has("--data") || a.has("--last-word") || a.has("--multiple-choice");
    const bool run = !is_config(what) && !given && disk::exists(of_run);
    puzzles_ = a.integer("--puzzles", 0, kMany);
    if (a.has("--people-min") && a.has("--people-max") &&
        a.integer("--people-min", 1, kMany) > a.integer("--people-max", 1, kMany))
      throw ConfigError("--people-min {}: must be at most --people-max, which is {}", a.text("--people-min"),
                        a.text("--people-max"));
    if (a.has("--limit") && !a.has("--last-word") && !a.has("--multiple-choice")) {
      throw ConfigError(
          "--limit: limits the passages of --last-word and the questions of --multiple-choice; remove it, or "
          "give one of them");
    }
    if (a.has("--stride") && !a.has("--window")) throw ConfigError("--stride: requires --window W");
    Notes notes(a);
    if (is_config(what) || run) {
      refuse_given(a, {"--adapter", "--base"},
                   "{0}: a run has its own adapter and base; give a model directory, or remove {0}");
      refuse_given(a,
                   {"--data", "--last-word", "--multiple-choice", "--window", "--documents", "--people-min",
                    "--people-max", "--template", "--max-new-tokens", "--id-type", "--fields"},
                   "{0}: a config has its own data; give a model directory, or remove {0}");
      std::vector<std::string> set = a.texts("--set");
      if (run) set.insert(set.begin(), "run.out=" + what.string());
      for (const api::Precision& precision : precisions) {
        configs_.push_back(allowed(a, api::Config::load(run ? of_run : what, set, precision)));
        notes.tell(configs_.back().notes(), configs_.back().warnings());
      }
      // Of rl, all held-out prompts are answered unless a number is given.
      if (configs_.front().objective() == "rl" && !a.has("--puzzles")) puzzles_ = 0;
      data_ = {"the held-out rows of " + (run ? of_run : what).string(), "", ""};
      return;
    }
    if (a.has("--set")) throw ConfigError("--set: eval of a model directory has no config; remove --set");
    if (!given) {
      throw ConfigError(
          "eval: requires a config, a run, or a model directory with --data FILES (or kk), --last-word FILE "
          "or --multiple-choice FILE");
    }
    options_.data = a.texts("--data");
    options_.format = a.text("--format");
    options_.id_type = a.text("--id-type");
    options_.fields = a.text("--fields");
    if (a.has("--sequence-length"))
      options_.sequence_length = a.integer("--sequence-length", 1, std::int64_t{1} << 24);
    if (a.has("--template")) {
      if (!a.has("--data")) throw ConfigError("--template: is for conversations; give --data FILES");
      options_.chat_template = a.text("--template");
    }
    const bool generated = options_.data == std::vector<std::string>{"kk"};
    if (generated || a.has("--puzzles")) options_.puzzles = puzzles_;
    if (a.has("--fields") && options_.data.empty())
      throw ConfigError("--fields: names the fields of --data FILES, which is missing");
    if (options_.puzzles > 0 && options_.data.empty())
      throw ConfigError("--puzzles: requires --data FILES (or kk)");
    constexpr int kMostPeople = 1000;  // of a file; the generator refuses its own
    if (a.has("--people-min"))
      options_.people_min = static_cast<int>(a.integer("--people-min", 1, generated ? 8 : kMostPeople));
    if (a.has("--people-max"))
      options_.people_max = static_cast<int>(a.integer("--people-max", 1, generated ? 8 : kMostPeople));
    if (a.has("--max-new-tokens"))
      options_.longest_answer = a.integer("--max-new-tokens", 1, std::int64_t{1} << 24);
    options_.last_words = a.text("--last-word");
    options_.multiple_choice = a.text("--multiple-choice");
    if (a.has("--window")) {
      if (options_.data.empty()) throw ConfigError("--window: requires --data FILES");
      if (a.has("--sequence-length"))
        throw ConfigError("--sequence-length: --window replaces the rows; remove one of them");
      options_.window = a.integer("--window", 2, std::int64_t{1} << 24);
      if (a.has("--stride")) options_.stride = a.integer("--stride", 1, options_.window);
    }
    if (a.has("--documents")) {
      if (options_.data.empty()) throw ConfigError("--documents: requires --data FILES");
      refuse_given(a, {"--stride", "--sequence-length", "--template", "--puzzles"},
                   "{0}: --documents has its own rows, of --window W tokens; remove one of them");
      options_.documents = true;
    }
    if (a.has("--limit")) options_.passage_limit = a.integer("--limit", 1, kMany);
    for (const api::Precision& precision : precisions) {
      const api::Reading reading = api::read_precision(precision);
      notes.tell(reading.notes, reading.warnings);
    }
    tell_model(a);
    data_ = {list_of(options_.data), options_.last_words, options_.multiple_choice};
  }

  /// Evaluates under policy `i`.
  api::Evaluation under(std::size_t i, const api::Precision& precision, const std::stop_token& stop) const {
    if (!configs_.empty()) return api::evaluate(configs_[i], puzzles_, hardware_of(a_), {}, stop, ranks());
    return api::evaluate(model_of(a_), options_, precision, hardware_of(a_), stop, ranks());
  }

  const EvaluatedData& data() const { return data_; }
  /// Returns the name of a policy that the user did not give.
  std::string policy() const { return configs_.empty() ? "32-true" : configs_.front().policy(); }

 private:
  const Arguments& a_;
  std::vector<api::Config> configs_;  // one for each policy
  api::EvaluateOptions options_;
  std::int64_t puzzles_ = 0;
  EvaluatedData data_;
};

bool has_results(const api::Evaluation& e) {
  return e.tokens > 0 || !e.last_words.empty() || !e.choices.empty() || !e.responses.empty();
}

int report_stop(const Arguments& a, const SignalStop& signals, bool results) {
  const bool more = a.has("--last-word") || a.has("--multiple-choice");
  const char* what = more ? "the figures are those of the completed rows, passages and questions"
                          : "the loss is that of the completed rows";
  return report_interrupt(signals, results ? what : "no row was completed");
}

/// Evaluates under one policy.
int evaluate_one(const Arguments& a, const Subject& subject, const api::Precision& precision,
                 const SignalStop& signals) {
  const api::Evaluation e = subject.under(0, precision, signals.token());
  tell(a, e.notes, {});
  if (has_results(e)) fmt::print("{}", a.has("--json") ? evaluation_json(e) + "\n" : evaluation_text(e));
  return e.interrupted ? report_stop(a, signals, has_results(e)) : 0;
}

/// Evaluates under each policy. One that fails after the first does not lose the results of the others.
int evaluate_policies(const Arguments& a, const Subject& subject,
                      const std::vector<api::Precision>& precisions, const SignalStop& signals) {
  constexpr int kStopped = 1, kBadInput = 2;
  std::vector<PolicyResult> results;
  bool interrupted = false;
  for (std::size_t i = 0; i < precisions.size() && !interrupted; ++i) {
    PolicyResult r{precisions[i].policy.value_or(subject.policy()), std::nullopt};
    if (!a.has("--quiet") && !a.has("--json"))
      print_error(fmt::format("policy {} of {}: {}\n", i + 1, precisions.size(), r.name));
    const auto failed = [&](const Error& e, int code) {
      r.failure = e.message();
      r.code = code;
    };
    try {
      api::Evaluation e = subject.under(i, precisions[i], signals.token());
      if (i == 0) tell(a, e.notes, {});  // the rows are the same under every policy
      interrupted = e.interrupted;
      if (interrupted && !has_results(e)) break;
      r.evaluation = std::move(e);
    } catch (const RunStopped& e) {
      failed(e, kStopped);
    } catch (const ResourceError& e) {
      failed(e, kStopped);
    } catch (const Error& e) {
      if (results.empty()) throw;  // most likely of the input, which all policies share
      failed(e, kBadInput);
    }
    results.push_back(std::move(r));
  }
  if (!results.empty())
    fmt::print("{}",
               a.has("--json") ? policies_json(results) + "\n" : policies_text(results, subject.data()));
  flush_output();
  int code = 0;
  for (const PolicyResult& r : results) {
    if (r.failure.empty()) continue;
    print_message(Message::error, fmt::format("mantissa: {}: {}\n", r.name, r.failure));
    code = std::max(code, r.code);
  }
  return interrupted ? report_stop(a, signals, !results.empty()) : code;
}

int eval(const Arguments& a) {
  if (a.has("--needle")) return eval_needle(a);
  refuse_given(a, {"--lengths", "--depths", "--trials", "--haystack", "--page"}, "{0}: requires --needle");
  const SignalStop signals;
  const std::vector<api::Precision> precisions = precisions_of(a);
  const Subject subject(a, precisions);
  return precisions.size() == 1 ? evaluate_one(a, subject, precisions.front(), signals)
                                : evaluate_policies(a, subject, precisions, signals);
}

}  // namespace

Commands eval_commands() {
  return {
      {.name = "eval",
       .summary = "measure loss, bits per byte, last words and puzzles, under one or several policies",
       .positionals = {{"MODEL|CONFIG", "a model directory, a GGUF file, a run, or a run's config (.toml)"}},
       .details = "A config, and a run without --data and --last-word, are measured over the held-out rows "
                  "of the config's data, a model over --data, the passages of --last-word and the "
                  "questions of --multiple-choice. Several policies give one table, with the changes from "
                  "the first and their standard errors.",
       .options =
           {kAdapter,
            kData,
            data_format("--format", "format of the data files"),
            kFields,
            kIdType,
            {"--last-word", one, "FILE",
             "passages whose last word is predicted, as in LAMBADA: JSON or CSV with \"text\", or plain "
             "lines (.txt)"},
            {"--template", one, "NAME|FILE",
             "chat template of conversations, of which only the answers count: auto, none, a built-in one, "
             "or a Jinja file"},
            {"--multiple-choice", one, "FILE",
             "questions: JSON with \"query\", \"choices\" and \"gold\", scored as in "
             "lm-evaluation-harness"},
            {"--limit", one, "N", "only the first N passages and questions"},
            {"--window", one, "W", "perplexity by a sliding window of W tokens, instead of rows"},
            {"--stride", one, "S", "tokens between the beginnings of windows; default: half a window"},
            {"--documents",
             "each document alone, in parts of W tokens, as lm-evaluation-harness measures texts"},
            {"--precision", each, "A,B,…", "one or several policies; changes are from the first; repeatable"},
            {"--needle", "whether the model finds a number in a long text, by length and depth"},
            {"--lengths", one, "L,L,…", "tokens of the prompts of --needle", "256,512,1024"},
            {"--depths", one, "D,D,…", "shares of the text before the number", "0,0.25,0.5,0.75,1"},
            {"--trials", one, "N", "prompts for each length and depth", "4"},
            {"--haystack", one, "FILE", "the long text; default: a short one, repeated"},
            {"--page", one, "FILE", "write the heat map of --needle as HTML"},
            {"--puzzles", one, "N",
             "puzzles to answer: held-out ones (kk), or rows of Logic-RL in the files, if N is given", "20"},
            {"--people-min", one, "N", "fewest people in these puzzles, for a model; default: 2 for kk"},
            {"--people-max", one, "N", "most people in these puzzles, for a model; default: 3 for kk"},
            {"--max-new-tokens", one, "N", "largest number of tokens of an answer to a puzzle", "768"},
            {"--sequence-length", one, "T",
             "tokens per row of the data; default: 256, and for conversations the model's positions"}},
       .groups = {kRules, kSet, kAllowPrograms, kHardware, kResults},
       .run = eval,
       .shared = true}};
}

}  // namespace mantissa::cli
