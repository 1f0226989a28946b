// Forecasts for a training run: memory by purpose, arithmetic, time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/plan/rules.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/engine/runtime/process.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/forecast/product_rates.h"
#include "mantissa/setup/programs/training.h"

namespace mantissa::forecast {

/// Bytes by purpose. `frozen` are weights in quantized blocks and those of an adapter's base, of which a run
/// holds what steps read; mapped files count. `carried` are the states that rows continue. `reference` are
/// the weights of other models, `observer` is what log.observe takes. `peak` is the peak memory of the
/// process, including its code and the data.
struct MemoryForecast {
  std::size_t masters = 0, copies = 0, frozen = 0, reference = 0, moments = 0, compensation = 0,
              gradients = 0, activations = 0, shard_sums = 0, work = 0, carried = 0, tables = 0, observer = 0,
              data = 0, process = 0;
  std::size_t peak() const {
    return masters + copies + frozen + reference + moments + compensation + gradients + shard_sums +
           activations + work + carried + tables + observer + data + process;
  }
};

/// Measured rates, the base of shares of peak and of forecast times.
struct Machine {
  double flops_per_second = 0;  // rate of fused multiply-adds in the program's arithmetic, on all threads
  double bytes_per_second = 0;
  std::vector<ProductRate> products = {};  // of the program; a typical share of the peak for others
  std::vector<UnitRate> units = {};        // that the program uses; FMA has flops_per_second

  /// Returns the peak of a unit.
  double peak_of(kernels::UnitId unit) const;
};
/// Measures the device's rates: the peaks of units, and square products as the program computes them. Each
/// rate is the best of two measurements, and of one more after each of `rests` pauses of 50 ms, because a
/// shared machine is sometimes slower for a while. Peaks and products are measured once per process for each
/// arithmetic, instruction set and number of threads, so a program that trains or explains several models
/// waits only once. Measuring takes about `free_bytes` of memory, or a few hundred KB if that is less.
Machine measure_machine(const runtime::Device& device, const plan::Program& program, std::size_t free_bytes,
                        int rests = 0);

/// Forecasts the memory of a program. `data_bytes` is the size of the token ids in memory, `process_bytes`
/// that of the process before it.
MemoryForecast forecast_memory(const plan::Program& program, std::size_t data_bytes,
                               std::size_t process_bytes = runtime::baseline_bytes());
/// Forecasts the peak of a run: within one of its parts, or between two parts, when the weights of both exist
/// without an arena.
MemoryForecast forecast_memory(std::span<const programs::RunPart> parts, std::size_t data_bytes,
                               std::size_t process_bytes = runtime::baseline_bytes());

/// Returns the seconds of one micro-batch if all products ran at the peak of their units and nothing else
/// took time, the base of the share of peak. Of attention the causal half counts, recomputed work counts
/// once.
double seconds_at_peak(const plan::Program& program, const Machine& machine, const runtime::Device& device);

/// Returns the seconds of one step of a plan at capacity: its arithmetic at the share of peak that its kind
/// reaches, or its bytes at bandwidth, whichever is longer. `longest_leaf` is in tokens.
double step_seconds(const plan::Program& program, const plan::Step& step, std::int64_t longest_leaf,
                    const Machine& machine);

/// Returns the seconds of one optimizer step: every step of the plan for every micro-batch, and the update.
double forecast_seconds(const plan::Program& program, const config::RunConfig& config,
                        const Machine& machine);

/// Returns the peak memory of `run` with micro-batches of `rows` sequences instead, for the same data and
/// process.
std::size_t peak_with_rows(const config::RunConfig& config, const model::ModelConfig& model,
                           std::int64_t rows, const MemoryForecast& run, const runtime::Device& device);

/// Returns the largest divisor of the global batch size whose run fits `memory_bytes`, or 0.
std::int64_t largest_micro_batch(const config::RunConfig& config, const model::ModelConfig& model,
                                 std::size_t memory_bytes, const MemoryForecast& run,
                                 const runtime::Device& device);

/// Returns the largest number of sequences in a micro-batch that fits `memory_bytes`, for any global batch,
/// or 0. Compiles a few programs.
std::int64_t rows_that_fit(const config::RunConfig& config, const model::ModelConfig& model,
                           std::size_t memory_bytes, const MemoryForecast& run,
                           const runtime::Device& device);

/// Returns the seconds of the update and the work before it: the sum over shards, and the norm.
double update_seconds(const plan::Program& program, const Machine& machine);

/// Returns the bytes that the sum over shards, the norm and the update read and write.
double update_bytes(const plan::Program& program);

/// Returns the bytes of partial sums of shards.
std::size_t shard_sum_bytes(const plan::Program& program);

/// Returns the bytes that each of `ranks` ranks sends in a step for the gradients (comm::sent_bytes).
std::int64_t sent_bytes(const plan::Program& program, std::int64_t ranks);

}  // namespace mantissa::forecast
