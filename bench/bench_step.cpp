// One training step of a 5M-parameter model on bytes, by kind of op: time, and share of the machine's
// measured FMA peak.
//
//   bench_step [THREADS]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

#include "mantissa/kernels/peak.h"
#include "mantissa/kernels/thread_pool.h"
#include "mantissa/model/llama.h"
#include "mantissa/plan/compile.h"
#include "mantissa/runtime/batch.h"
#include "mantissa/runtime/executor.h"

namespace {

using namespace mantissa;  // NOLINT: a program of its own
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kRows = 8;
constexpr std::int64_t kLength = 256;
constexpr int kSteps = 5;

model::ModelConfig five_million() {
  model::ModelConfig c;
  c.hidden_size = 256;
  c.intermediate_size = 688;
  c.num_hidden_layers = 6;
  c.num_attention_heads = c.num_key_value_heads = 4;
  c.head_dim = 64;
  return c;
}

struct Spent {
  double seconds = 0, flops = 0;
};

/// Runs forward and backward a few times and prints what each kind of op took.
void measure(const char* policy, const kernels::Context& ctx, double peak) {
  plan::CompileOptions options;
  options.longest_row = options.longest_leaf = kLength;
  const plan::Program program =
      plan::compile(model::build_log_prob(five_million(), kRows * kLength, kLength, true),
                    precision::Policy::parse(policy), options, ctx);
  runtime::WeightSet weights(program);
  weights.initialise(1, ctx);
  runtime::Executor executor(program, weights, ctx);
  for (std::size_t i = 0; i < executor.integers("ids").size(); ++i) {
    executor.integers("ids")[i] = static_cast<std::int32_t>(i * 31 % 256);
    executor.integers("targets")[i] = static_cast<std::int32_t>(i * 17 % 256);
  }
  const runtime::Batch batch(kRows, kLength, 1);
  std::map<std::string, Spent> spent;
  Clock::time_point last;
  executor.after_step = [&](const plan::Step& step, const graph::Call&) {
    const Clock::time_point now = Clock::now();
    Spent& s = spent[std::string(step.op->id)];
    s.seconds += std::chrono::duration<double>(now - last).count();
    s.flops += step.flops;
    last = now;
  };
  for (int i = 0; i <= kSteps; ++i) {
    if (i == 1) spent.clear();  // the first run warms up
    last = Clock::now();
    executor.run(graph::Phase::forward, batch.extent());
    executor.run(graph::Phase::backward, batch.extent());
  }
  Spent all;
  for (const auto& [op, s] : spent) {
    all.seconds += s.seconds;
    all.flops += s.flops;
  }
  fmt::print("{}\n{:<18} {:>9} {:>7} {:>10} {:>7}\n", policy, "op", "ms/step", "share", "GFLOP/s", "peak");
  for (const auto& [op, s] : spent) {
    fmt::print("{:<18} {:>9.2f} {:>6.1f}% {:>10.1f} {:>6.1f}%\n", op, 1e3 * s.seconds / kSteps,
               100 * s.seconds / all.seconds, s.flops / s.seconds / 1e9, 100 * s.flops / s.seconds / peak);
  }
  fmt::print("{:<18} {:>9.2f} {:>6.1f}% {:>10.1f} {:>6.1f}%   {:.0f} tokens/s without the update\n\n", "all",
             1e3 * all.seconds / kSteps, 100.0, all.flops / all.seconds / 1e9,
             100 * all.flops / all.seconds / peak,
             static_cast<double>(kRows * kLength * kSteps) / all.seconds);
}

}  // namespace

int main(int argc, char** argv) {
  kernels::Context ctx;
  ctx.simd = kernels::best_simd();
  ctx.threads =
      argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  ctx.pool = std::make_shared<kernels::ThreadPool>(ctx.threads);
  const double peak = kernels::measure_fma_peak(ctx, Scalar::f32);
  fmt::print("{} threads, {}, {:.0f} GFLOP/s peak\n\n", ctx.threads, kernels::name(ctx.simd), peak / 1e9);
  for (const char* policy : {"32-true", "bf16-mixed"}) measure(policy, ctx, peak);
}
