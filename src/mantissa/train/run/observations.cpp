#include "mantissa/train/run/observations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/words.h"
#include "mantissa/precision/policy/coverage.h"
#include "mantissa/precision/policy/rule.h"
#include "mantissa/setup/config/observed.h"
#include "mantissa/setup/forecast/observed.h"

namespace mantissa::run {
std::string observation_line(std::int64_t step, const plan::Program& program,
                             const runtime::ObservedValue& value) {
  std::string line = fmt::format(
      R"({{"step":{},"scope":{},"op":"{}","pass":"{}","name":{},"format":"{}","count":{})", step,
      nlohmann::json(value.step->scope).dump(), value.step->op->op, precision::name(runtime::pass_of(value)),
      nlohmann::json(runtime::name_of(program, value)).dump(), runtime::format_name(value),
      value.counts.count);
  for (const auto& [key, figure] : runtime::figures(value))
    line += fmt::format(",\"{}\":{:.9g}", key, figure);
  std::string binades;
  for (int e = Binades::kLeast; e <= Binades::kMost; ++e) {
    if (const std::uint64_t n = value.counts.binades.at(e))
      binades += fmt::format("{}\"{}\":{}", binades.empty() ? "" : ",", e, n);
  }
  return line + ",\"binades\":{" + binades + "}}";
}

Observations::Observations(const config::RunConfig& config, const std::filesystem::path& out,
                           std::int64_t step)
    : interval_(config.log.observe_interval), selected_(config::parse_observed(config.log.observe)) {
  if (!selected_.empty()) log_.emplace(report::append_after(out / "observations.jsonl", step));
}

std::vector<std::string> Observations::unmatched(const plan::Program& program) const {
  std::vector<std::string> warnings;
  for (const precision::Rule& rule : selected_) {
    const bool matches = std::ranges::any_of(program.steps, [&](const plan::Step& s) {
      return forecast::is_observed(std::span(&rule, 1), s, std::nullopt);
    });
    if (matches) continue;
    std::vector<precision::Place> places;
    for (const plan::Step& s : program.steps)
      places.push_back({s.scope, std::string(s.op->op), plan::pass_of(s.phase)});
    const std::string why =
        rule.names_update() ? "updates are observed by audit only" : precision::why_unmatched(rule, places);
    warnings.push_back(fmt::format("log.observe {} matches nothing{}", in_quotes(rule.match),
                                   why.empty() ? "; explain lists the scopes and ops" : ": " + why));
  }
  return warnings;
}

void Observations::begin(train::Trainer& trainer) {
  const std::int64_t step = trainer.step() + 1;
  if (!log_ || (step % interval_ != 0 && step != 1)) return;
  observer_.emplace(trainer.next_executor(),
                    [&](const plan::Step& s) { return forecast::is_observed(selected_, s, step - 1); });
}

void Observations::end(train::Trainer& trainer, bool completed) {
  if (!observer_) return;
  std::string lines;
  const std::int64_t at = trainer.step() - 1;  // completed steps before this one
  observer_->take([&](const runtime::ObservedValue& value) {
    if (value.counts.count > 0 && forecast::is_observed(selected_, *value.step, runtime::pass_of(value), at))
      lines += observation_line(trainer.step(), trainer.program(), value) + '\n';
  });
  observer_.reset();
  if (completed) log_->file.write(lines);
}

void Observations::sync() {
  if (log_) log_->file.sync();
}

}  // namespace mantissa::run
