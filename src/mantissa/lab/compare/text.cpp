// A comparison as text: the verdict, and two lines for each run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/quantities.h"
#include "mantissa/core/base/words.h"
#include "mantissa/lab/compare/compare.h"
#include "mantissa/lab/compare/measure.h"
#include "mantissa/lab/compare/verdict.h"

namespace mantissa::lab {
namespace {

constexpr std::size_t kScreen = 80, kIndent = 5;

template <class Text>
std::string or_dash(const std::optional<double>& value, const Text& text) {
  return value && std::isfinite(*value) ? text(*value) : "–";
}

/// Returns a share in percent, or a factor if it is large.
std::string share_or_dash(const std::optional<double>& value) {
  constexpr double kMostShare = 10;
  return or_dash(value,
                 [](double v) { return v >= kMostShare ? fmt::format("{:.2g} ×", v) : percent_text(v); });
}

std::string row(const std::string& number, const ComparedRun& run, const Measure& measure) {
  const std::optional<double>& value = run.mean_value ? run.mean_value : run.final_value;
  const std::string loss = or_dash(value, [&](double v) { return value_text(measure, v); });
  const bool is_reference = run.outcome == Outcome::reference;
  const std::string gap =
      is_reference ? "–" : or_dash(run.gap, [](double v) { return fmt::format("{:+.2g}", v); });
  const std::string error =
      is_reference ? "–" : or_dash(error_of(run), [](double v) { return fmt::format("{:.2g}", v); });
  const std::string speed = or_dash(run.tokens_per_second, [](double v) { return fmt::format("{:.0f}", v); });
  const std::string memory = or_dash(run.peak_bytes, human_bytes);
  return fmt::format("{:>3} {:>8} {:>9} {:>8} {:>8} {:>9} {:>7} {:>8} {:>8}\n", number, loss, gap, error,
                     speed, memory, run.skipped, share_or_dash(run.weight_distance),
                     share_or_dash(run.updates_lost));
}

/// Returns a line about sums over shards, or "".
std::string sums_text(const ComparedRun& run) {
  if (!run.reduce_flushed || !run.reduce_saturated) return "";
  std::string text = fmt::format("sums over shards: {} became zero, {} exceeded the range",
                                 percent_text(*run.reduce_flushed), percent_text(*run.reduce_saturated));
  if (run.sent_bytes) text += fmt::format("; {} a step from each rank", human_bytes(*run.sent_bytes));
  return text + "\n";
}

/// Returns "by seed 1: +0.0012, 2: -0.0004", or "" for one seed.
std::string by_seed(const ComparedRun& run) {
  if (!run.paired || run.paired->seeds.size() < 2) return "";
  std::vector<std::string> gaps;
  for (std::size_t i = 0; i < run.paired->seeds.size(); ++i)
    gaps.push_back(fmt::format("{}: {:+.2g}", run.paired->seeds[i], run.paired->gaps[i]));
  return fmt::format("gap by seed {}", fmt::join(gaps, ", "));
}

std::string described(const ComparedRun& run) {
  std::string text = printable(run.name);
  if (run.outcome == Outcome::reference && run.verdict == "the reference")
    text += ", the reference";
  else if (run.outcome != Outcome::unknown || run.verdict.find(run.name) == std::string::npos)
    text += ": " + printable(run.verdict);
  text += "\n";
  for (const std::string& finding : run.findings) text += printable(finding) + "\n";
  text += sums_text(run) + by_seed(run) + "\n";
  std::string lines;
  for (const std::string_view line : split_words(text, "\n"))
    lines += wrapped(std::string(kIndent, ' ') + std::string(line), kIndent, kScreen) + "\n";
  return lines;
}

}  // namespace

std::string to_text(const Comparison& c) {
  std::string text = wrapped(printable(c.verdict), 0, kScreen) + "\n\n";
  const char* heading = c.measure.is_share ? "right" : c.measure.online ? "reward" : "loss";
  text += fmt::format("{:>3} {:>8} {:>9} {:>8} {:>8} {:>9} {:>7} {:>8} {:>8}\n", "", heading, "gap", "±",
                      "tokens/s", "memory", "skipped", "distance", "lost");
  for (std::size_t i = 0; i < c.runs.size(); ++i) {
    text += row(fmt::format("{}", i + 1), c.runs[i], c.measure);
    text += described(c.runs[i]);
  }
  if (only_seeds_differ(c)) {
    for (const ComparedRun& run : c.reseeded) text += row("", run, c.measure) + described(run);
  }
  const std::string of = c.measure.online ? c.measure.words + ", mean of the last tenth of its measurements"
                                          : std::string("mean of the last tenth of the steps");
  text += wrapped(fmt::format(
                      "\n{}: {}, over the seeds. gap: from the reference with the same seed{}. ±: standard "
                      "error of the mean gap.",
                      heading, of, c.measure.online ? "" : ", in nats"),
                  0, kScreen) +
          "\n";
  text += wrapped(fmt::format("distance: {}. lost: updates that rounding left without effect.",
                              c.no_distance.empty()
                                  ? "of the final weights from the reference's, relative to the way that the "
                                    "reference moved"
                                  : "none, because " + c.no_distance),
                  0, kScreen) +
          "\n";
  return text;
}

}  // namespace mantissa::lab
