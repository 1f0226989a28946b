#include "mantissa/app/api/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "mantissa/app/api/internal.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/lab/compare/directories.h"
#include "mantissa/lab/compare/training.h"
#include "mantissa/precision/policy/supported.h"
#include "mantissa/setup/config/ranks.h"

namespace mantissa::api {
namespace {

/// Settings of a run: all, and those that name it because they vary.
struct Settings {
  std::vector<std::string> all;  // "optimizer.lr=1e-3"
  std::vector<std::string> named;
};

/// Returns every combination of the values in `vary`; the last key varies first.
std::vector<Settings> combinations(const std::vector<std::string>& vary) {
  std::vector<Settings> all = {{}};
  for (const std::string& entry : vary) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0)
      throw ConfigError("--vary {}: expected a key and its values. Fix: --vary optimizer.lr=1e-3,3e-4",
                        in_quotes(entry));
    const std::vector<std::string> values = split_values(std::string_view(entry).substr(equals + 1));
    if (std::ranges::any_of(values, &std::string::empty))
      throw ConfigError("--vary {}: a value is empty. Fix: section.key=A,B", in_quotes(entry));
    std::vector<Settings> next;
    for (const Settings& before : all) {
      for (const std::string& value : values) {
        const std::string setting = entry.substr(0, equals + 1) + value;
        Settings& made = next.emplace_back(before);
        made.all.push_back(setting);
        if (values.size() > 1) made.named.push_back(setting);
      }
    }
    all = std::move(next);
    constexpr std::size_t kMost = 1000;
    if (all.size() > kMost)
      throw ConfigError("--vary: expected at most {} combinations, got {}. Fix: fewer values", kMost,
                        all.size());
  }
  return all;
}

/// Takes run.seed out of `vary`, and returns its values: seeds are not settings to compare.
std::vector<std::string> take_seeds(std::vector<std::string>& vary) {
  constexpr std::string_view kSeed = "run.seed=";
  std::vector<std::string> seeds;
  for (const std::string& entry : vary) {
    if (!entry.starts_with(kSeed)) continue;
    for (std::string& value : split_values(std::string_view(entry).substr(kSeed.size()))) {
      if (value.empty())
        throw ConfigError("--vary {}: a value is empty. Fix: section.key=A,B", in_quotes(entry));
      if (std::ranges::find(seeds, value) != seeds.end())
        throw ConfigError("--vary {}: expected different seeds, got {} twice. Fix: each seed once",
                          in_quotes(entry), in_quotes(value));
      seeds.push_back(std::move(value));
    }
  }
  std::erase_if(vary, [&](const std::string& entry) { return entry.starts_with(kSeed); });
  return seeds;
}

/// Loads configs, and opens a device for each number of threads.
class Planner {
 public:
  Planner(const std::filesystem::path& path, const CompareOptions& options)
      : path_(path), options_(options) {}

  /// Returns the run under a policy, or under the config's own.
  lab::PlannedRun planned(const std::optional<std::string>& policy, const Settings& settings) {
    std::vector<std::string> overrides = options_.overrides;
    overrides.insert(overrides.end(), settings.all.begin(), settings.all.end());
    const Config config = loaded(overrides, policy, settings);
    config::RunConfig run = config.impl().run;
    precision::check_supported(run.policy);
    for (const std::vector<std::string>& told :
         {config.notes(), config.warnings(), {config::use_whole_rows(run)}}) {
      for (const std::string& note : told) {
        if (!note.empty() && std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
      }
    }
    std::vector<std::string> names = settings.named;
    if (policy) names.insert(names.begin(), *policy);
    const std::int64_t threads = run.run.threads;
    std::shared_ptr<const runtime::Device>& device = devices_[threads];
    if (!device) device = device_for(options_.hardware, threads, options_.ranks.local_size());
    return {fmt::format("{}", fmt::join(names, ", ")), settings.all, std::move(run), device};
  }

  std::vector<std::string> notes;

 private:
  /// Loads the config. An error about a setting that varies names --vary.
  Config loaded(const std::vector<std::string>& overrides, const std::optional<std::string>& policy,
                const Settings& settings) const {
    try {
      Config config = Config::load(path_, overrides, {policy, options_.rules, options_.deepspeed});
      return options_.allow_programs ? config.allow_programs() : config;
    } catch (const ConfigError& e) {
      const std::string text = e.what();
      constexpr std::string_view kSet = "--set";
      const auto about = [&](const std::string& setting) {
        return text.starts_with(fmt::format("{} {}", kSet, in_quotes(setting)));
      };
      if (std::ranges::none_of(settings.all, about) || std::ranges::any_of(options_.overrides, about)) throw;
      throw ConfigError("--vary" + text.substr(kSet.size()));
    }
  }

  const std::filesystem::path& path_;
  const CompareOptions& options_;
  std::map<std::int64_t, std::shared_ptr<const runtime::Device>> devices_;
};

CompareReport report_of(const lab::Comparison& c) {
  return {.verdict = c.verdict,
          .text = lab::to_text(c),
          .json = lab::to_json(c),
          .html = lab::to_html(c),
          .csv = lab::to_csv(c),
          .notes = {},
          .runs = static_cast<std::int64_t>(c.runs.size() + c.reseeded.size()),
          .interrupted = false};
}

}  // namespace

std::vector<std::string> split_values(std::string_view text) {
  std::vector<std::string> values = {""};
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{' || c == '(') {
      ++depth;
    } else if (c == ']' || c == '}' || c == ')') {
      --depth;
    }
    if (c == ',' && quote == 0 && depth <= 0) {
      values.emplace_back();
    } else {
      values.back() += c;
    }
  }
  for (std::string& value : values) value = trimmed(value);
  return values;
}

CompareReport compare(const std::filesystem::path& path, const CompareOptions& options,
                      const OnCompareStep& on_step, std::stop_token stop) {
  Planner planner(path, options);
  std::vector<std::optional<std::string>> policies(options.policies.begin(), options.policies.end());
  if (policies.empty()) policies.emplace_back();
  std::vector<std::string> vary = options.vary;
  std::vector<std::string> seeds = take_seeds(vary);
  const bool only_seeds = seeds.size() > 1 && policies.size() == 1 && vary.empty();
  std::vector<Settings> settings = combinations(vary);
  if (!seeds.empty()) {
    for (Settings& values : settings) values.all.push_back("run.seed=" + seeds.front());
  }
  lab::PlannedComparison plan;
  plan.title = path.filename().string();
  plan.steps = options.steps;
  for (const std::optional<std::string>& policy : policies) {
    for (const Settings& values : settings) plan.runs.push_back(planner.planned(policy, values));
  }
  if (plan.runs.size() < 2 && !only_seeds)
    throw ConfigError("compare: there is only one run. Fix: give --precision A,B or --vary section.key=a,b");
  if (plan.runs.front().name.empty()) plan.runs.front().name = path.filename().string();
  if (seeds.empty()) {
    for (std::int64_t i = 0; i < options.seeds; ++i)
      seeds.push_back(fmt::format("{}", plan.runs.front().config.run.seed + static_cast<std::uint64_t>(i)));
  }
  for (std::size_t i = 1; i < seeds.size(); ++i) {
    std::size_t of = 0;
    for (const std::optional<std::string>& policy : policies) {
      for (Settings values : settings) {
        values.all.push_back("run.seed=" + seeds[i]);
        values.named.push_back(values.all.back());
        plan.reseeded.push_back(planner.planned(policy, values));
        plan.reseeded.back().of = of++;
      }
    }
  }
  const lab::Comparison found = lab::train_and_compare(
      plan,
      [&](const lab::ComparisonProgress& p) {
        if (on_step) on_step({p.run, p.number, p.runs, p.step, p.steps, p.loss});
      },
      stop, &options.ranks.communicator());
  CompareReport report = report_of(found);
  report.notes = std::move(planner.notes);
  report.interrupted = found.interrupted;
  return report;
}

CompareReport compare(const std::vector<std::filesystem::path>& runs, const Hardware& hardware) {
  if (runs.size() < 2)
    throw ConfigError(
        "compare: expected a config, or at least two runs, got one run. Fix: mantissa compare RUN RUN");
  return report_of(lab::compare_directories(runs, *device_for(hardware)));
}

}  // namespace mantissa::api
