#include "mantissa/lab/compare/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/quantities.h"
#include "mantissa/lab/compare/measure.h"
#include "mantissa/lab/median.h"

namespace mantissa::lab {
namespace {

using Runs = std::vector<const ComparedRun*>;

/// Returns the name of a run and, in short, how it differs.
std::string in_short(const Comparison& c, const ComparedRun& run) {
  const auto after = [&](std::string_view mark) {
    return run.verdict.substr(std::min(run.verdict.size(), run.verdict.find(mark) + mark.size()));
  };
  const std::string who = name_in_text(c, run);
  switch (run.outcome) {
    case Outcome::worse:
    case Outcome::better:
      return fmt::format("{} ({})", who, run.verdict.substr(run.verdict.find("by ")));
    case Outcome::diverged:
    case Outcome::uncertain:
    case Outcome::uninformative:
    case Outcome::unknown:
      return fmt::format("{} ({})", who, after(": "));
    case Outcome::stopped:
      return run.verdict.starts_with("did not start") ? who + " (did not start)"
                                                      : fmt::format("{} (at step {})", who, run.stopped_at);
    default:
      return who;
  }
}

/// Joins the first five; a sentence with more is not read.
std::string joined(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 5;
  const std::size_t shown = std::min(names.size(), kMost);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), "; "));
  if (shown < names.size()) text += fmt::format("; and {} more", names.size() - shown);
  return text;
}

bool has_findings(const Comparison& c, std::size_t run) {
  return std::ranges::any_of(seeds_of(c, run), [](const ComparedRun* r) { return !r->findings.empty(); });
}

/// Returns the names of the runs in which rounding lost something, with the share of lost updates.
std::string unhealthy(const Comparison& c) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < c.runs.size(); ++i) {
    const ComparedRun& run = c.runs[i];
    if (!has_findings(c, i)) continue;
    names.push_back(run.updates_lost ? fmt::format("{} ({} of its last updates were lost)",
                                                   name_in_text(c, run), percent_text(*run.updates_lost))
                                     : name_in_text(c, run));
  }
  return joined(names);
}

std::string what_of(const Measure& measure) {
  return measure.is_share ? "accuracy" : measure.online ? "reward" : "loss";
}

/// Tells by how much chance in the choice of prompts changes the largest gap, or "".
std::string prompts_text(const Comparison& c) {
  double most = 0;
  for (const ComparedRun& run : c.runs) most = std::max(most, kPromptErrors * run.gap_error.value_or(0));
  if (most == 0) return "";
  return fmt::format(" Other prompts may change a difference by up to {}: two standard errors.",
                     difference_text(c.measure, most));
}

/// Tells from how many seeds the differences are, and what another seed changes.
std::string seeds_text(const Comparison& c) {
  std::size_t most = 0;
  for (const ComparedRun& run : c.runs) most = std::max(most, run.paired ? run.paired->seeds.size() : 0);
  std::string text =
      most > 1 ? fmt::format(
                     " Differences are means over {} seeds, each of which trained both runs, ± their "
                     "standard error.",
                     most)
               : " With one seed, any difference may be chance.";
  if (c.noise)
    text += fmt::format(" Another seed changes the {} of the reference by up to {}.", what_of(c.measure),
                        difference_text(c.measure, *c.noise));
  return text + prompts_text(c);
}

/// Tells that seeds are not policies, and how far apart they are.
std::string only_seeds_text(const Comparison& c) {
  const Runs all = seeds_of(c, 0);
  std::string text = fmt::format(
      "These {} runs of {} differ only in their seed: this is the noise of seeds, and not a comparison of "
      "policies.",
      all.size(), name_in_text(c, c.runs.front()));
  if (!c.runs.front().mean_value) return text;
  double squares = 0;
  std::int64_t count = 0;
  for (const ComparedRun* run : all) {
    if (!run->final_value || !run->stopped.empty()) continue;
    squares += std::pow(*run->final_value - *c.runs.front().mean_value, 2);
    ++count;
  }
  text += fmt::format(" Their mean final {} is {}", what_of(c.measure),
                      value_text(c.measure, *c.runs.front().mean_value));
  if (count > 1)
    text += fmt::format(", with a standard deviation of {}",
                        difference_text(c.measure, std::sqrt(squares / static_cast<double>(count - 1))));
  return text + ".";
}

/// Returns true if the run is not worse than the reference, as far as its runs tell.
bool is_sound(const ComparedRun& run) {
  return run.outcome == Outcome::same || run.outcome == Outcome::better;
}

/// Returns the sound run for which `less` holds against all others, or the end.
template <class Less>
std::size_t best_run(const Comparison& c, std::optional<double> ComparedRun::*member, const Less& less) {
  std::size_t best = c.runs.size();
  for (std::size_t i = 0; i < c.runs.size(); ++i) {
    if (!is_sound(c.runs[i]) || has_findings(c, i) || !(c.runs[i].*member)) continue;
    if (best == c.runs.size() || less(*(c.runs[i].*member), *(c.runs[best].*member))) best = i;
  }
  return best;
}

/// The speeds of a policy's runs, which have equal work: they show how much a busy machine changes it.
struct Range {
  double least = 0, middle = 0, most = 0;
};
Range speeds_of(const Runs& runs) {
  std::vector<double> speeds;
  for (const ComparedRun* run : runs) {
    if (run->tokens_per_second) speeds.push_back(*run->tokens_per_second);
  }
  if (speeds.empty()) return {};
  return {std::ranges::min(speeds), *median(speeds), std::ranges::max(speeds)};
}

/// Tells which sound run is the fastest, with every seed, and which needs the least memory.
std::string savings(const Comparison& c) {
  constexpr double kLeastSpeedup = 1.02, kLeastSaving = 0.99;
  const ComparedRun& reference = c.runs.front();
  std::vector<std::string> parts;
  const std::size_t fast = best_run(c, &ComparedRun::tokens_per_second, std::greater<>());
  if (fast < c.runs.size() && reference.tokens_per_second.value_or(0) > 0) {
    const Range fastest = speeds_of(seeds_of(c, fast)), own = speeds_of(seeds_of(c, 0));
    const double ratio = fastest.middle / own.middle;
    if (fastest.least > kLeastSpeedup * own.most)
      parts.push_back(fmt::format("{} is the fastest ({:.2f} × the speed of the reference)",
                                  name_in_text(c, c.runs[fast]), ratio));
  }
  const std::size_t small = best_run(c, &ComparedRun::peak_bytes, std::less<>());
  if (small < c.runs.size() && reference.peak_bytes.value_or(0) > 0) {
    const double ratio = *c.runs[small].peak_bytes / *reference.peak_bytes;
    if (ratio < kLeastSaving)
      parts.push_back(fmt::format("{} needs the least memory ({:.2f} × that of the reference)",
                                  name_in_text(c, c.runs[small]), ratio));
  }
  if (parts.empty()) return "";
  return fmt::format(" Of the runs that did at least as well as the reference, {}.",
                     fmt::join(parts, ", and "));
}

/// Warns that held-out losses of other rows stand side by side.
std::string held_out_text(const Comparison& c) {
  if (is_held_out(c.measure)) return "";
  std::vector<std::string> names;
  for (std::size_t i = 1; i < c.runs.size(); ++i) {
    const std::string why = other_held_out(c.runs[i], c.runs.front());
    if (!why.empty()) names.push_back(fmt::format("{} ({})", name_in_text(c, c.runs[i]), why));
  }
  if (names.empty()) return "";
  return fmt::format(" Measurements on held-out rows cannot be compared, because the rows are others: {}.",
                     joined(names));
}

/// A group of runs in a headline.
struct Group {
  std::vector<std::string> names;

  /// Returns "a", "a and b", or "a and 2 more runs", followed by the verb of its number.
  std::string with(std::string_view one, std::string_view several) const {
    if (names.size() == 1) return fmt::format("{} {}", names.front(), one);
    if (names.size() == 2) return fmt::format("{} and {} {}", names[0], names[1], several);
    return fmt::format("{} and {} more runs {}", names.front(), names.size() - 1, several);
  }
};

Group group_of(const Comparison& c, Outcome outcome) {
  Group group;
  for (const ComparedRun& run : c.runs) {
    if (run.outcome == outcome) group.names.push_back(name_in_text(c, run));
  }
  return group;
}

/// Returns what rounding lost, in the order in which the runs lost it: "updates and gradients".
std::string lost_text(const Comparison& c, Group& group) {
  std::vector<std::string> lost;
  for (std::size_t i = 0; i < c.runs.size(); ++i) {
    if (!has_findings(c, i)) continue;
    group.names.push_back(name_in_text(c, c.runs[i]));
    for (const ComparedRun* run : seeds_of(c, i)) {
      for (const std::string& what : run->losses) {
        if (std::ranges::find(lost, what) == lost.end()) lost.push_back(what);
      }
    }
  }
  return lost.empty() ? "values" : fmt::format("{}", fmt::join(lost, " and "));
}

}  // namespace

std::optional<double> error_of(const ComparedRun& run) {
  const std::optional<double> seeds = run.paired ? run.paired->standard_error : std::nullopt;
  return seeds && run.gap_error ? std::max(*seeds, *run.gap_error) : seeds ? seeds : run.gap_error;
}

std::string stop_text(const ComparedRun& run) {
  if (run.stopped_at == 0) return "did not start: " + run.stopped;
  const std::string place = fmt::format("step {}: ", run.stopped_at);
  const std::string why = run.stopped.starts_with(place) ? run.stopped.substr(place.size()) : run.stopped;
  return fmt::format("stopped at step {}: {}", run.stopped_at, why);
}

std::string name_in_text(const Comparison& c, const ComparedRun& run) {
  constexpr std::size_t kMost = 60;  // bytes
  if (run.name.size() > kMost) return fmt::format("run {}", &run - c.runs.data() + 1);
  return run.name.find_first_of(";,:()") == std::string::npos && !run.name.empty() ? run.name
                                                                                   : "“" + run.name + "”";
}

std::string headline_of(const Comparison& c) {
  if (c.runs.empty()) return "No run ended";
  if (only_seeds_differ(c)) return "Not a comparison of policies: only the seed differs";
  if (c.runs.size() == 1) return "No run to compare with the reference";
  const std::string reference = name_in_text(c, c.runs.front());
  if (!c.runs.front().stopped.empty()) return reference + ", the reference, stopped";
  std::vector<std::string> parts;
  if (const Group g = group_of(c, Outcome::stopped); !g.names.empty())
    parts.push_back(g.with("stopped", "stopped"));
  if (const Group g = group_of(c, Outcome::diverged); !g.names.empty())
    parts.push_back(g.with("diverged", "diverged"));
  Group losing;
  const std::string lost = lost_text(c, losing);
  const Group worse = group_of(c, Outcome::worse);
  const bool both = !losing.names.empty() && losing.names == worse.names;
  if (both) {
    const std::string end = fmt::format("worse than {} and lost {}", reference, lost);
    parts.push_back(worse.with("is " + end, "are " + end));
  } else {
    if (!losing.names.empty()) parts.push_back(losing.with("lost " + lost, "lost " + lost));
    if (!worse.names.empty())
      parts.push_back(worse.with("is worse than " + reference, "are worse than " + reference));
  }
  if (const Group g = group_of(c, Outcome::uninformative); !g.names.empty()) {
    const auto first = std::ranges::find(c.runs, Outcome::uninformative, &ComparedRun::outcome);
    parts.push_back("not" + first->verdict.substr(std::string("not").size()));
  }
  if (const Group g = group_of(c, Outcome::unknown); !g.names.empty())
    parts.push_back(g.with("is not comparable", "are not comparable"));
  if (const Group g = group_of(c, Outcome::uncertain); !g.names.empty())
    parts.push_back(g.names.size() + 1 == c.runs.size() ? std::string("not enough runs to tell")
                                                        : "not enough runs to tell about " + g.with("", ""));
  if (const Group g = group_of(c, Outcome::better); !g.names.empty())
    parts.push_back(g.with("is better than " + reference, "are better than " + reference));
  if (const Group g = group_of(c, Outcome::same); !g.names.empty())
    parts.push_back(g.with("is as good as " + reference, "are as good as " + reference));
  constexpr std::size_t kMost = 2;
  if (parts.size() > kMost) parts.resize(kMost);
  std::string text = fmt::format("{}", fmt::join(parts, "; "));
  while (text.ends_with(' ')) text.pop_back();
  if (text.starts_with("not ")) text.front() = 'N';
  if (text.starts_with("run ")) text.front() = 'R';
  return text;
}

std::string verdict_of(const Comparison& c) {
  if (only_seeds_differ(c)) return only_seeds_text(c);
  const ComparedRun& reference = c.runs.front();
  const std::string what = what_of(c.measure);
  const std::size_t seeds = seeds_of(c, 0).size();
  std::string text =
      reference.mean_value
          ? fmt::format("{} is the reference; its final {} is {}{}.", name_in_text(c, reference), what,
                        value_text(c.measure, *reference.mean_value),
                        seeds > 1 ? fmt::format(", the mean over {} seeds", seeds) : "")
          : fmt::format("{} is the reference, but has no final {}.", name_in_text(c, reference), what);
  if (c.measure.online) text += " " + judged_by(c.measure);
  if (!reference.stopped.empty())
    text += fmt::format(" It {}. The differences are those of the steps before.", stop_text(reference));
  if (constexpr std::string_view kDiverged = ", which diverged: ";
      reference.verdict.find(kDiverged) != std::string::npos) {
    text += fmt::format(" It diverged: {}. The differences from it say little about the others.",
                        reference.verdict.substr(reference.verdict.find(kDiverged) + kDiverged.size()));
  }
  text += seeds_text(c);
  const std::pair<Outcome, std::string_view> kParts[] = {{Outcome::same, "The same"},
                                                         {Outcome::better, "Better"},
                                                         {Outcome::worse, "Worse"},
                                                         {Outcome::uncertain, "Not enough runs to tell"},
                                                         {Outcome::uninformative, "Not informative"},
                                                         {Outcome::diverged, "Diverged"},
                                                         {Outcome::stopped, "Stopped"},
                                                         {Outcome::unknown, "Not comparable"}};
  for (const auto& [outcome, words] : kParts) {
    std::vector<std::string> names;
    for (const ComparedRun& run : c.runs) {
      if (run.outcome == outcome) names.push_back(in_short(c, run));
    }
    if (!names.empty()) text += fmt::format(" {}: {}.", words, joined(names));
  }
  if (const std::string names = unhealthy(c); !names.empty())
    text += fmt::format(" Whatever the {}, numeric health has findings for {}.", what, names);
  text += held_out_text(c) + savings(c);
  if (text.starts_with("run ")) text.front() = 'R';
  return text;
}

}  // namespace mantissa::lab
