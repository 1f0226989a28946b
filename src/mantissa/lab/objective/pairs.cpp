// Objectives of pairs: dpo and reward. Rows 2i are chosen, rows 2i + 1 rejected.
#include <fmt/format.h>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/lab/objective/parts.h"
#include "mantissa/setup/objective/preference.h"
#include "mantissa/setup/objective/rl_loss.h"

namespace mantissa::lab {
namespace {

/// Throws ShapeError unless the rows are pairs.
std::size_t pairs_of(const Inputs& inputs, std::string_view name, std::int64_t rows) {
  if (rows % 2 == 0) return static_cast<std::size_t>(rows / 2);
  throw ShapeError("{}: {} has {} rows; rows 2i are chosen and rows 2i + 1 rejected, so their number is even",
                   inputs.file(), name, rows);
}

/// The report on pairs.
struct Summary {
  double right = 0;   // pairs whose chosen answer has the larger reward
  double margin = 0;  // Σ of the differences of the rewards
  void add(double chosen, double rejected) {
    right += chosen > rejected ? 1 : 0;
    margin += chosen - rejected;
  }
  void report(ObjectiveResult& out, std::size_t pairs) const {
    const auto count = static_cast<double>(pairs);
    out.json = {{"pairs", pairs}, {"accuracy", right / count}, {"margin", margin / count}};
    out.text = fmt::format("pairs      {}, {:.1f} % in the right order, mean margin {:.6g}\n", pairs,
                           100 * right / count, margin / count);
  }
};

}  // namespace

ObjectiveResult replay_dpo(const Inputs& inputs, const config::DpoSection& dpo) {
  const objective::PreferenceSettings settings = objective::preference_settings(dpo);
  const Shape shape{"[N, T]", inputs.sizes("log_probs", 2, "[N, T]")};
  const std::size_t pairs = pairs_of(inputs, "log_probs", shape.sizes[0]);
  const std::vector<float> mask = inputs.mask(shape);
  const auto read = [&](const char* name, const char* why) {
    std::vector<double> values = inputs.numbers(name, shape, why);
    inputs.check_finite(name, values, mask);
    return values;
  };
  const std::vector<double> log_probs = read("log_probs", "");
  std::vector<double> ref_log_probs(log_probs.size());
  if (settings.has_reference())
    ref_log_probs = read("ref_log_probs", "by dpo: it compares with the reference");
  const auto length = static_cast<std::size_t>(shape.sizes[1]);
  const auto row = [&](const auto& tensor, std::size_t r) {
    return std::span(tensor).subspan(r * length, length);
  };
  const auto sum = [&](const std::vector<double>& tensor, std::size_t r) {
    return objective::masked_sum(row(tensor, r), row(mask, r));
  };
  ObjectiveResult out;
  OutputTensor gradient{"grad.log_probs", shape.sizes, std::vector<double>(mask.size())};
  Summary summary;
  const auto count = static_cast<double>(pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::size_t chosen = 2 * i, rejected = 2 * i + 1;
    const objective::PreferencePair pair{sum(log_probs, chosen),
                                         sum(log_probs, rejected),
                                         sum(ref_log_probs, chosen),
                                         sum(ref_log_probs, rejected),
                                         objective::counted_tokens(row(mask, chosen)),
                                         objective::counted_tokens(row(mask, rejected))};
    if (settings.nll_coef != 0 && pair.chosen_tokens == 0) {
      throw ConfigError("{}: the mask of row {} is 0, but dpo.nll_coef needs a token of every chosen answer",
                        inputs.file(), chosen);
    }
    if (!settings.has_reference() && (pair.chosen_tokens == 0 || pair.rejected_tokens == 0)) {
      throw ConfigError("{}: the mask of row {} is 0, but dpo.loss = \"{}\" needs a token of every answer",
                        inputs.file(), pair.chosen_tokens == 0 ? chosen : rejected, dpo.loss);
    }
    const objective::PairLoss loss = objective::preference_loss(pair, settings);
    out.loss += loss.loss / count;
    for (std::size_t t = 0; t < length; ++t) {
      const std::size_t c = chosen * length + t, r = rejected * length + t;
      gradient.values[c] = mask[c] != 0 ? loss.d_chosen / count : 0;
      gradient.values[r] = mask[r] != 0 ? loss.d_rejected / count : 0;
    }
    const auto [better, worse] = objective::implicit_rewards(pair, settings);
    summary.add(better, worse);
  }
  summary.report(out, pairs);
  out.tensors.push_back(std::move(gradient));
  out.largest = "the log-probabilities of a pair are too large";
  return out;
}

ObjectiveResult replay_reward(const Inputs& inputs) {
  const Shape shape{"[N]", inputs.sizes("scores", 1, "[N]")};
  const std::size_t pairs = pairs_of(inputs, "scores", shape.sizes[0]);
  const std::vector<float> all(2 * pairs, 1);
  const std::vector<double> scores = inputs.numbers("scores", shape);
  inputs.check_finite("scores", scores, all);
  std::vector<double> margins(pairs);
  if (inputs.has("margin")) {
    margins = inputs.numbers("margin", {"[N/2]", {static_cast<std::int64_t>(pairs)}});
    inputs.check_finite("margin", margins, all);
  }
  ObjectiveResult out;
  OutputTensor gradient{"grad.scores", shape.sizes, std::vector<double>(2 * pairs)};
  Summary summary;
  const auto count = static_cast<double>(pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    const objective::PairLoss loss = objective::reward_loss(scores[2 * i], scores[2 * i + 1], margins[i]);
    out.loss += loss.loss / count;
    gradient.values[2 * i] = loss.d_chosen / count;
    gradient.values[2 * i + 1] = loss.d_rejected / count;
    summary.add(scores[2 * i], scores[2 * i + 1]);
  }
  summary.report(out, pairs);
  out.tensors.push_back(std::move(gradient));
  out.largest = "the scores of a pair are too far apart";
  return out;
}

std::vector<std::string> input_names(const std::string& name) {
  if (name == "reward") return {"scores", "margin"};
  if (name == "dpo") return {"log_probs", "ref_log_probs", "mask"};
  std::vector<std::string> names = {"log_probs", "old_log_probs",     "ref_log_probs", "mask",
                                    "rewards",   "rollout_log_probs", "entropy"};
  if (name == "ppo") {
    names.insert(names.end(), {"values", "old_values"});
  } else if (name != "reinforce++") {
    names.emplace_back("groups");
  }
  return names;
}

}  // namespace mantissa::lab
