#include "mantissa/setup/objective/advantages.h"

#include <cmath>
#include <map>

#include "mantissa/setup/objective/kl.h"

namespace mantissa::objective {
namespace {

/// Positions of the rows in [N, T].
struct Rows {
  const Responses& of;
  std::size_t begin(std::int64_t row) const { return static_cast<std::size_t>(row * of.length); }
  std::size_t end(std::int64_t row) const { return begin(row + 1); }
  bool counts(std::size_t at) const { return of.mask[at] != 0; }
  std::size_t tokens(std::int64_t row) const {
    std::size_t count = 0;
    for (std::size_t at = begin(row); at < end(row); ++at) count += counts(at) ? 1 : 0;
    return count;
  }
};

/// Returns the reward of each token.
std::vector<double> token_rewards(const Responses& r, const RlSettings& settings) {
  const Rows rows{r};
  const bool of_rows = r.rewards.size() == static_cast<std::size_t>(r.rows);
  std::vector<double> rewards(r.mask.size());
  for (std::int64_t row = 0; row < r.rows; ++row) {
    bool last = true;
    for (std::size_t at = rows.end(row); at-- > rows.begin(row);) {
      if (!rows.counts(at)) continue;
      if (!of_rows) {
        rewards[at] = r.rewards[at];
      } else if (last) {
        rewards[at] = r.rewards[static_cast<std::size_t>(row)];
      }
      last = false;
      if (settings.kl_in_reward())
        rewards[at] -=
            settings.kl_coef * kl_term(settings.kl, r.old_log_probs[at], r.ref_log_probs[at]).value;
    }
  }
  return rewards;
}

/// Generalized advantage estimation.
Advantages estimate(const Responses& r, const RlSettings& settings, const std::vector<double>& rewards) {
  const Rows rows{r};
  Advantages out{std::vector<double>(r.mask.size()), std::vector<double>(r.mask.size())};
  for (std::int64_t row = 0; row < r.rows; ++row) {
    double next_value = 0, next_advantage = 0;
    for (std::size_t at = rows.end(row); at-- > rows.begin(row);) {
      if (!rows.counts(at)) continue;
      const double delta = rewards[at] + settings.gamma * next_value - r.old_values[at];
      next_advantage = delta + settings.gamma * settings.lambda * next_advantage;
      next_value = r.old_values[at];
      out.advantages[at] = next_advantage;
      out.returns[at] = next_advantage + next_value;
    }
  }
  return out;
}

/// Discounted sums of the later rewards.
Advantages reverse_returns(const Responses& r, const RlSettings& settings,
                           const std::vector<double>& rewards) {
  const Rows rows{r};
  std::vector<double> returns(r.mask.size());
  for (std::int64_t row = 0; row < r.rows; ++row) {
    double sum = 0;
    for (std::size_t at = rows.end(row); at-- > rows.begin(row);) {
      sum = rows.counts(at) ? rewards[at] + settings.gamma * sum : 0;
      returns[at] = sum;
    }
  }
  return {returns, returns};
}

struct Group {
  double count = 0, sum = 0, squares = 0;  // squares of the differences from the mean
  double mean() const { return sum / count; }
};

double compared(double total, const Group& group, Algorithm algorithm) {
  if (group.count < 2) return 0;
  if (algorithm == Algorithm::rloo) return total - (group.sum - total) / (group.count - 1);
  const double difference = total - group.mean();
  if (algorithm != Algorithm::grpo) return difference;
  return difference / (std::sqrt(group.squares / (group.count - 1)) + kGroupEpsilon);
}

/// Compares each response with the others to its prompt.
Advantages group_advantages(const Responses& r, const RlSettings& settings,
                            const std::vector<double>& rewards) {
  const Rows rows{r};
  std::vector<double> totals(static_cast<std::size_t>(r.rows));
  std::map<std::int64_t, Group> groups;
  const auto each_row = [&](const auto& use) {
    for (std::int64_t row = 0; row < r.rows; ++row) {
      const auto i = static_cast<std::size_t>(row);
      if (rows.tokens(row) > 0) use(row, totals[i], groups[r.groups[i]]);
    }
  };
  each_row([&](std::int64_t row, double& total, Group& group) {
    for (std::size_t at = rows.begin(row); at < rows.end(row); ++at) total += rewards[at];
    group.sum += total;
    group.count += 1;
  });
  each_row([&](std::int64_t /*row*/, double& total, Group& group) {
    group.squares += (total - group.mean()) * (total - group.mean());
  });
  std::vector<double> advantages(r.mask.size());
  each_row([&](std::int64_t row, double& total, Group& group) {
    const double advantage = compared(total, group, settings.algorithm);
    for (std::size_t at = rows.begin(row); at < rows.end(row); ++at)
      advantages[at] = rows.counts(at) ? advantage : 0;
  });
  return {advantages, advantages};
}

void whiten(std::vector<double>& values, std::span<const float> mask) {
  double count = 0, sum = 0, squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (mask[i] == 0) continue;
    count += 1;
    sum += values[i];
  }
  if (count == 0) return;
  const double mean = sum / count;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (mask[i] != 0) squares += (values[i] - mean) * (values[i] - mean);
  }
  const double variance = count > 1 ? squares / (count - 1) : 0;
  const double scale = 1 / std::sqrt(variance + kWhitenEpsilon);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = mask[i] != 0 ? (values[i] - mean) * scale : 0;
}

}  // namespace

Advantages advantages(const Responses& responses, const RlSettings& settings) {
  const std::vector<double> rewards = token_rewards(responses, settings);
  Advantages out = settings.needs_groups()   ? group_advantages(responses, settings, rewards)
                   : settings.needs_values() ? estimate(responses, settings, rewards)
                                             : reverse_returns(responses, settings, rewards);
  if (settings.whiten) whiten(out.advantages, responses.mask);
  return out;
}

}  // namespace mantissa::objective
