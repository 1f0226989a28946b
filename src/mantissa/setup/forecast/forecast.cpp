#include "mantissa/setup/forecast/forecast.h"

#include <algorithm>

#include "mantissa/engine/comm/shard_sum.h"
#include "mantissa/engine/graph/weight_states.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/runtime/process.h"
#include "mantissa/engine/runtime/weights.h"
#include "mantissa/setup/config/observed.h"
#include "mantissa/setup/forecast/observed.h"
#include "mantissa/setup/forecast/ranks.h"
#include "mantissa/setup/objective/objective.h"

namespace mantissa::forecast {
namespace {

void add_weights(const plan::Program& program, MemoryForecast& f) {
  const std::vector<bool> held = runtime::held_weights(program);
  std::size_t rounded = 0;  // of one weight at a time, from which a copy with scales is computed
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const plan::Buffer& buffer = program.buffers[b];
    const bool master = buffer.home == plan::Home::master;
    if (!held[b] || (!master && buffer.home != plan::Home::copy)) continue;
    const bool frozen = buffer.quants || program.slots[static_cast<std::size_t>(buffer.slot)].fixed;
    (frozen ? f.frozen : master ? f.masters : f.copies) += aligned(buffer.bytes);
    if (buffer.scaled && buffer.served.format != WeightFormat::none)
      rounded = std::max(rounded, static_cast<std::size_t>(buffer.shape.count()) * sizeof(float));
  }
  f.copies += rounded;
}

void add_update_memory(const plan::Program& update, MemoryForecast& f) {
  for (const plan::Buffer& b : update.buffers) {
    if (b.home != plan::Home::kept) continue;
    (b.random == RandomUse::compensation ? f.compensation : f.moments) += aligned(b.bytes);
    // Validation keeps a master of another format aside (train/steps/evaluation_weights.h).
    const plan::Slot& slot = update.slots[static_cast<std::size_t>(b.slot)];
    if (b.random == RandomUse::average && b.type != slot.master)
      f.moments += update.buffer(slot.master_buffer).bytes;
  }
  // The update's values use the memory of the activations if there is room.
  if (update.memory.arena() > f.activations + f.work) f.work += update.memory.arena();
}

}  // namespace

std::size_t shard_sum_bytes(const plan::Program& program) {
  std::size_t bytes = 0;
  for (const plan::Slot& slot : program.slots)
    if (slot.gradient != plan::kNoBuffer)
      bytes += comm::shard_sum_bytes(slot.shape.count(), {0, program.shards}, program.shards, program.reduce);
  return bytes;
}

std::int64_t sent_bytes(const plan::Program& program, std::int64_t ranks) {
  std::int64_t count = 0;
  for (const plan::Slot& slot : program.slots) {
    if (slot.gradient != plan::kNoBuffer) count += slot.shape.count();
  }
  return comm::sent_bytes(count, ranks, program.reduce);
}

MemoryForecast forecast_memory(const plan::Program& program, std::size_t data_bytes,
                               std::size_t process_bytes) {
  MemoryForecast f;
  add_weights(program, f);
  f.gradients = program.memory.gradients;
  f.shard_sums = shard_sum_bytes(program);
  f.activations = program.memory.activations;
  f.work = program.memory.work;
  f.tables = program.memory.inputs + program.memory.constants;
  // Those before and after a step, and a trainer's own copy of the former.
  (program.update ? f.carried : f.tables) += program.memory.states;
  if (program.update) f.carried += program.memory.states / 2;
  f.data = data_bytes;
  f.process = process_bytes;
  if (program.update) add_update_memory(*program.update, f);
  return f;
}

MemoryForecast forecast_memory(std::span<const programs::RunPart> parts, std::size_t data_bytes,
                               std::size_t process_bytes) {
  MemoryForecast most, before;
  for (const programs::RunPart& part : parts) {
    MemoryForecast now = forecast_memory(*part.program, data_bytes, process_bytes);
    if (part.rank.ranks > 1) now.shard_sums = sums_bytes(part);
    now.observer = observed_bytes(config::parse_observed(part.observed), *part.program);
    MemoryForecast between = now;
    between.masters += before.masters;
    between.copies += before.copies;
    between.frozen += before.frozen;
    between.gradients = between.activations = between.work = between.carried = between.tables =
        between.observer = 0;
    for (const MemoryForecast& f : {now, between}) {
      if (f.peak() > most.peak()) most = f;
    }
    before = now;
  }
  return most;
}

std::size_t peak_with_rows(const config::RunConfig& config, const model::ModelConfig& model,
                           std::int64_t rows, const MemoryForecast& run, const runtime::Device& device) {
  const plan::Program program = programs::compile_training(config, model, rows, device);
  MemoryForecast f = forecast_memory(program, run.data, run.process);
  f.reference = run.reference;
  f.observer = observed_bytes(config::parse_observed(config.log.observe), program);
  return f.peak();
}

std::int64_t largest_micro_batch(const config::RunConfig& config, const model::ModelConfig& model,
                                 std::size_t memory_bytes, const MemoryForecast& run,
                                 const runtime::Device& device) {
  std::vector<std::int64_t> sizes;  // possible sizes of a micro-batch
  for (std::int64_t rows = config.batch.leaf; rows <= config.batch.global_batch_size;
       rows += config.batch.leaf) {
    if (config.batch.global_batch_size % rows == 0) sizes.push_back(rows);
  }
  const auto fits = [&](std::int64_t rows) {
    return peak_with_rows(config, model, rows, run, device) <= memory_bytes;
  };
  // All rows at once need less than proportional memory: a tied embedding then has only one accumulator.
  if (fits(sizes.back())) return sizes.back();
  const auto first_too_large = std::partition_point(sizes.begin(), sizes.end(), fits);
  return first_too_large == sizes.begin() ? 0 : *std::prev(first_too_large);
}

std::int64_t rows_that_fit(const config::RunConfig& config, const model::ModelConfig& model,
                           std::size_t memory_bytes, const MemoryForecast& run,
                           const runtime::Device& device) {
  const std::int64_t most = (std::int64_t{1} << 30) / programs::tokens_of(config, 1);  // 32-bit counts of ids
  const auto peak = [&](std::int64_t rows) { return peak_with_rows(config, model, rows, run, device); };
  const std::size_t one = peak(1), two = peak(2);
  if (one > memory_bytes) return 0;
  // Memory grows nearly linearly with the rows: start from a guess, then bracket the result.
  const double slope = static_cast<double>(std::max(two, one + 1) - one);
  const double guess = 1 + static_cast<double>(memory_bytes - one) / slope;
  std::int64_t fits = 1,
               beyond = std::clamp(static_cast<std::int64_t>(std::min(guess, 1e9)), std::int64_t{2}, most);
  while (beyond < most && peak(beyond) <= memory_bytes) {
    fits = beyond;
    beyond = std::min(most, beyond + beyond / 8 + 1);
  }
  while (fits + 1 < beyond) {
    const std::int64_t middle = fits + (beyond - fits) / 2;
    (peak(middle) <= memory_bytes ? fits : beyond) = middle;
  }
  return fits;
}

}  // namespace mantissa::forecast
