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
  // The norm reads the gradients; the sweep reads them again, reads and writes masters, moments and
  // compensations, and writes the copies.
  const plan::MemoryRegions& m = program.memory;
  const double update = static_cast<double>(2 * m.gradients + 2 * m.masters + 2 * moment_bytes(program) +
                                            2 * compensation_bytes(program) + m.copies);
  const double micros = static_cast<double>(config.batch.global_batch_size) /
                        static_cast<double>(config.batch.micro_batch_size);
  return micros * micro + update / machine.bytes_per_second;
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
    MemoryForecast f = forecast_memory(compile_training(config, model, rows, ctx), run.data);
    f.process = run.process;
    return f.peak() <= memory_bytes;
  };
  // All rows at once need less than their share: a tied embedding then has one accumulator.
  if (fits(sizes.back())) return sizes.back();
  const auto first_too_large = std::partition_point(sizes.begin(), sizes.end(), fits);
  return first_too_large == sizes.begin() ? 0 : *std::prev(first_too_large);
}

}  // namespace mantissa::train
