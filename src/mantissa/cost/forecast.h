// What a training run will need, before it runs: memory by purpose, arithmetic, time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mantissa/config/run_config.h"
#include "mantissa/cost/update_program.h"
#include "mantissa/model/config.h"
#include "mantissa/plan/program.h"
#include "mantissa/plan/rules.h"
#include "mantissa/runtime/device.h"

namespace mantissa::cost {

/// Bytes by purpose. `peak` is what the process holds at most, its own code and the data included.
struct MemoryForecast {
  std::size_t masters = 0, copies = 0, moments = 0, compensation = 0, gradients = 0, activations = 0,
              shard_sums = 0, work = 0, tables = 0, data = 0, process = 0;
  std::size_t peak() const {
    return masters + copies + moments + compensation + gradients + shard_sums + activations + work + tables +
           data + process;
  }
};

/// Measured: what the shares of peak and the times are relative to.
struct Machine {
  double flops_per_second = 0;  // of fused multiply-adds in the program's arithmetic, all threads
  double bytes_per_second = 0;
};
/// The peak is the best of two looks and one more after each of `rests` pauses of 50 ms: a shared machine
/// gives less at times.
Machine measure_machine(const runtime::Device& device, const plan::Program& program, int rests = 0);

/// The training program of `config` for micro-batches of `rows` rows, under the policy of its step `step`,
/// from 0 on, with its update.
plan::Program compile_training(const config::RunConfig& config, const model::ModelConfig& model,
                               std::int64_t rows, const runtime::Device& device, bool fold = true,
                               bool fuse = true, std::int64_t step = 0);

/// A stretch of a run's steps in which the same rules hold.
struct Part {
  std::int64_t first = 0;  // its first step, counted from 0
  std::shared_ptr<const plan::Program> program;
  std::vector<optim::Number> numbers;  // that its update reads
};
std::vector<Part> compile_parts(const config::RunConfig& config, const model::ModelConfig& model,
                                const runtime::Device& device);

/// The training program of `config` under a policy, with its update: what its rules are judged by.
plan::Lower lower_run(const config::RunConfig& config, const model::ModelConfig& model);

/// `data_bytes`: of the token ids in memory.
MemoryForecast forecast_memory(const plan::Program& program, std::size_t data_bytes);
/// The most of a run: in one of its parts, or between two of them, when the weights of both are there and no
/// arena is.
MemoryForecast forecast_memory(std::span<const Part> parts, std::size_t data_bytes);

/// Flops of one micro-batch that count for the share of peak: products, and attention's causal half. What is
/// recomputed counts once.
double product_flops(const plan::Program& program);

/// Seconds of one step of a plan at capacity: its arithmetic at the share of peak that its kind reaches, or
/// its bytes at bandwidth, whichever is longer. `longest_leaf`: tokens.
double step_seconds(const plan::Program& program, const plan::Step& step, std::int64_t longest_leaf,
                    const Machine& machine);

/// Seconds of one optimizer step: every step of the plan, micro-batch by micro-batch, and the update.
double forecast_seconds(const plan::Program& program, const config::RunConfig& config,
                        const Machine& machine);

/// What `run` takes with micro-batches of `rows` sequences. Data and process take what they take in `run`.
std::size_t peak_with_rows(const config::RunConfig& config, const model::ModelConfig& model,
                           std::int64_t rows, const MemoryForecast& run, const runtime::Device& device);

/// The largest divisor of the global batch size whose run fits `memory_bytes`; 0 where none does.
std::int64_t largest_micro_batch(const config::RunConfig& config, const model::ModelConfig& model,
                                 std::size_t memory_bytes, const MemoryForecast& run,
                                 const runtime::Device& device);

/// The most sequences of a micro-batch whose run fits `memory_bytes`, whatever the global batch is; 0 where
/// not one does. Takes compiling a few programs.
std::int64_t rows_that_fit(const config::RunConfig& config, const model::ModelConfig& model,
                           std::size_t memory_bytes, const MemoryForecast& run,
                           const runtime::Device& device);

/// Seconds of the update and of what goes before it: the sum over shards and the norm.
double update_seconds(const plan::Program& program, const Machine& machine);

/// Bytes that the sum over shards, the norm and the update read and write.
double update_bytes(const plan::Program& program);

/// Bytes of the sums of shards that wait for others.
std::size_t shard_sum_bytes(const plan::Program& program);

}  // namespace mantissa::cost
