#include "mantissa/train/forecast.h"

#include <algorithm>

#include "mantissa/kernels/head.h"
#include "mantissa/kernels/peak.h"
#include "mantissa/model/llama.h"
#include "mantissa/plan/compile.h"
#include "mantissa/runtime/process.h"

namespace mantissa::train {
namespace {

/// Shares of the FMA peak that the kernels reach at training shapes (bench/ measures them).
constexpr double kProductShare = 0.7;
constexpr double kAttentionShare = 0.45;

bool is_product(const plan::Step& s) {
  return s.op->op == "matmul" || s.op->op == "log_prob";
}

/// Where leaves are too long for their logits to be kept, the head makes them twice.
double logits_made_again(const plan::Program& program, const plan::Step& s, std::int64_t longest_leaf) {
  if (s.op->id == "log_prob.grad") return 3.0 / 2.0;
  if (s.op->id != "log_prob.training") return 1.0;
  const std::int64_t vocabulary = program.buffer(s.inputs[1].buffer).shape.dim(0).size;
  return kernels::keeps_logits(longest_leaf, vocabulary) ? 1.0 : 4.0 / 3.0;
}

/// What `run` takes with micro-batches of `rows` sequences.
std::size_t peak_with_rows(const RunConfig& config, const model::ModelConfig& model, std::int64_t rows,
                           const MemoryForecast& run, const kernels::Context& ctx) {
  MemoryForecast f = forecast_memory(compile_training(config, model, rows, ctx), run.data);
  f.process = run.process;
  return f.peak();
}

}  // namespace

Machine measure_machine(const kernels::Context& ctx, const plan::Program& program) {
  // Less memory than the run will take, so that measuring does not raise the peak.
  const std::size_t bytes = program.memory.arena() + program.memory.weights();
  return {kernels::measure_fma_peak(ctx, program.arithmetic), kernels::measure_bandwidth(ctx, bytes / 2)};
}

plan::Program compile_training(const RunConfig& config, const model::ModelConfig& model, std::int64_t rows,
                               const kernels::Context& ctx, bool fold, bool fuse) {
  const std::int64_t length = config.data.sequence_length;
  plan::CompileOptions options;
  options.longest_row = length;
  options.longest_leaf = length * config.batch.leaf;
  options.one_micro_batch = rows == config.batch.global_batch_size;
  options.recompute = plan::parse_recompute(config.batch.recompute);
  options.fold = fold;
  options.fuse = options.join_head = fuse;
  return plan::compile(model::build_log_prob(model, rows * length, length, true), config.policy, options,
                       ctx);
}

std::size_t moment_bytes(const plan::Program& program) {
  std::size_t bytes = 0;
  for (const plan::Slot& slot : program.slots)
    bytes += 2 * aligned(static_cast<std::size_t>(slot.shape.count()) * bytes_of(slot.moments));
  return bytes;
}

std::size_t compensation_bytes(const plan::Program& program) {
  std::size_t bytes = 0;
  for (const plan::Slot& slot : program.slots) {
    if (slot.compensated)
      bytes += aligned(static_cast<std::size_t>(slot.shape.count()) * bytes_of(slot.master));
  }
  return bytes;
}

MemoryForecast forecast_memory(const plan::Program& program, std::size_t data_bytes) {
  MemoryForecast f;
  f.masters = program.memory.masters;
  f.copies = program.memory.copies;
  f.moments = moment_bytes(program);
  f.compensation = compensation_bytes(program);
  f.gradients = program.memory.gradients;
  f.activations = program.memory.activations;
  f.work = program.memory.work;
  f.tables = program.memory.inputs + program.memory.constants + program.memory.states;
  f.data = data_bytes;
  f.process = runtime::baseline_bytes();
  return f;
}

double product_flops(const plan::Program& program) {
  double flops = 0;
  for (const plan::Step& s : program.steps) {
    if (s.phase == graph::Phase::evaluate || s.recomputed) continue;
    if (is_product(s) || s.op->op == "attention") flops += s.flops;
  }
  return flops;
}

double update_bytes(const plan::Program& program) {
  // The norm reads the gradients; the sweep reads them again, reads and writes masters, moments and
  // compensations, and writes the copies.
  const plan::MemoryRegions& m = program.memory;
  return static_cast<double>(2 * m.gradients + 2 * m.masters + 2 * moment_bytes(program) +
                             2 * compensation_bytes(program) + m.copies);
}

double forecast_seconds(const plan::Program& program, const RunConfig& config, const Machine& machine) {
  double micro = 0;
  for (const plan::Step& s : program.steps) {
    if (s.phase == graph::Phase::evaluate) continue;
    const double share = is_product(s) ? kProductShare : s.op->op == "attention" ? kAttentionShare : 1.0;
    const double flops =
        s.flops * logits_made_again(program, s, config.batch.leaf * config.data.sequence_length);
    const double compute =
        is_product(s) || s.op->op == "attention" ? flops / (share * machine.flops_per_second) : 0;
    micro += std::max(compute, s.bytes / machine.bytes_per_second);
  }
  const double micros = static_cast<double>(config.batch.global_batch_size) /
                        static_cast<double>(config.batch.micro_batch_size);
  return micros * micro + update_bytes(program) / machine.bytes_per_second;
}

std::int64_t largest_micro_batch(const RunConfig& config, const model::ModelConfig& model,
                                 std::size_t memory_bytes, const MemoryForecast& run,
                                 const kernels::Context& ctx) {
  std::vector<std::int64_t> sizes;  // that a micro-batch may have
  for (std::int64_t rows = config.batch.leaf; rows <= config.batch.global_batch_size;
       rows += config.batch.leaf) {
    if (config.batch.global_batch_size % rows == 0) sizes.push_back(rows);
  }
  const auto fits = [&](std::int64_t rows) {
    return peak_with_rows(config, model, rows, run, ctx) <= memory_bytes;
  };
  // All rows at once need less than their share: a tied embedding then has one accumulator.
  if (fits(sizes.back())) return sizes.back();
  const auto first_too_large = std::partition_point(sizes.begin(), sizes.end(), fits);
  return first_too_large == sizes.begin() ? 0 : *std::prev(first_too_large);
}

std::int64_t rows_that_fit(const RunConfig& config, const model::ModelConfig& model, std::size_t memory_bytes,
                           const MemoryForecast& run, const kernels::Context& ctx) {
  const std::int64_t most =
      (std::int64_t{1} << 30) / config.data.sequence_length;  // ids are counted in 32 bits
  const auto peak = [&](std::int64_t rows) { return peak_with_rows(config, model, rows, run, ctx); };
  const std::size_t one = peak(1), two = peak(2);
  if (one > memory_bytes) return 0;
  // Memory grows by about the same with every row: a guess, and then the bracket that it needs.
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

}  // namespace mantissa::train
