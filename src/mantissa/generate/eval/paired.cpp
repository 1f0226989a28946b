#include "mantissa/generate/eval/paired.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace mantissa::eval {
namespace {

using At = std::function<double(std::size_t)>;

std::optional<PairedMean> mean_of(std::size_t count, const At& difference, const At& weight) {
  double sum = 0, total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += weight(i) * difference(i);
    total += weight(i);
  }
  if (total <= 0) return std::nullopt;
  PairedMean mean{sum / total, std::nullopt, static_cast<std::int64_t>(count)};
  if (count < 2) return mean;
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double part = weight(i) * (difference(i) - mean.difference);
    squares += part * part;
  }
  const auto n = static_cast<double>(count);
  mean.standard_error = std::sqrt(squares * n / (n - 1)) / total;
  return mean;
}

}  // namespace

PairedChange paired_change(const Evaluation& first, const Evaluation& other) {
  const std::vector<LastWord>&a = first.last_words.words, &b = other.last_words.words;
  const std::size_t rows = std::min(first.rows.size(), other.rows.size()),
                    words = std::min(a.size(), b.size());
  const auto one = [](std::size_t) { return 1.0; };
  PairedChange change;
  change.loss = mean_of(
      rows, [&](std::size_t r) { return other.rows[r].loss - first.rows[r].loss; },
      [&](std::size_t r) { return first.rows[r].weight; });
  change.accuracy = mean_of(
      words, [&](std::size_t i) { return (b[i].right ? 1.0 : 0.0) - (a[i].right ? 1.0 : 0.0); }, one);
  change.word_log_prob = mean_of(
      words, [&](std::size_t i) { return b[i].log_prob - a[i].log_prob; }, one);
  for (std::size_t i = 0; i < words; ++i) {
    change.gained += b[i].right && !a[i].right ? 1 : 0;
    change.lost += a[i].right && !b[i].right ? 1 : 0;
  }
  return change;
}

}  // namespace mantissa::eval
