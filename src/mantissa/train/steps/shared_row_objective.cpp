#include "mantissa/train/steps/shared_row_objective.h"

#include <cstddef>
#include <span>
#include <vector>

#include "mantissa/core/tensor/row_blocks.h"
#include "mantissa/train/steps/output_bytes.h"

namespace mantissa::train {
namespace {

/// Calls each(block) for the tokens of part `part` of a row, with the row's padding.
template <class Each>
void for_blocks(std::int64_t length, int part, int parts, const Each& each) {
  const std::int64_t padded = shared_length(length, parts);
  each(block_of(padded, part, 2 * parts));
  each(block_of(padded, 2 * parts - 1 - part, 2 * parts));
}

std::size_t tokens_of(std::span<const std::int64_t> lengths, int part, int parts) {
  std::int64_t tokens = 0;
  for (const std::int64_t length : lengths)
    for_blocks(length, part, parts, [&](const TokenRange& block) { tokens += block.count(); });
  return static_cast<std::size_t>(tokens);
}

/// Copies the elements of this rank's tokens; those of padding stay.
void copy_part(std::span<const std::int64_t> lengths, int part, int parts, std::span<const double> from,
               std::span<double> to) {
  std::size_t own = 0;
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    for_blocks(length, part, parts, [&](const TokenRange& block) {
      for (std::int64_t t = block.begin; t < block.end; ++t, ++own) {
        if (t < length) to[own] = from[static_cast<std::size_t>(begin + t)];
      }
    });
    begin += length;
  }
}

}  // namespace

void SharedRowObjective::seeds(const objective::MicroBatch& micro, const objective::Outputs* outputs,
                               const objective::Seeds& seeds) {
  if (seeds_known()) return objective_.seeds(micro, outputs, seeds);
  const WholeRows whole = whole_();
  const int part = ranks_.rank() % parts_, first = ranks_.rank() - part;
  std::vector<std::vector<std::byte>> of_parts(static_cast<std::size_t>(parts_));
  append_outputs(of_parts[static_cast<std::size_t>(part)], *outputs);
  ranks_.run([&](comm::Messages& m) {
    for (int other = 0; other < parts_; ++other) {
      if (other == part) continue;
      std::vector<std::byte>& bytes = of_parts[static_cast<std::size_t>(other)];
      bytes.resize(output_bytes(*outputs, tokens_of(whole.lengths, other, parts_)));
      m.receive(first + other, bytes);
      m.send(first + other, of_parts[static_cast<std::size_t>(part)]);
    }
    m.complete();
  });
  std::vector<OutputReader> readers;
  for (std::vector<std::byte>& bytes : of_parts) readers.emplace_back(std::move(bytes));
  const objective::Outputs joined = joined_outputs(readers, whole.lengths);
  const auto tokens = static_cast<std::size_t>(whole.micro.batch.tokens());
  const auto of_rows = [&](std::span<double> own) { return std::vector<double>(own.empty() ? 0 : tokens); };
  std::vector<double> log_prob = of_rows(seeds.log_prob), entropy = of_rows(seeds.entropy),
                      value = of_rows(seeds.value);
  objective_.seeds(whole.micro, &joined, {log_prob, entropy, value});
  for (const auto& [from, to] : {std::pair(std::span<const double>(log_prob), seeds.log_prob),
                                 {entropy, seeds.entropy},
                                 {value, seeds.value}}) {
    if (!to.empty()) copy_part(whole.lengths, part, parts_, from, to);
  }
}

}  // namespace mantissa::train
