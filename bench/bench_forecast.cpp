// The forecast of time beside what is measured, step by step of a plan: where `explain` is off, this says in
// which op and at which shape.
//
//   bench_forecast [THREADS [SHAPE…]]      SHAPE: demo, 5M, 24M, 124M×64, wide (all but 124M×64)
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include "mantissa/kernels/thread_pool.h"
#include "mantissa/model/llama.h"
#include "mantissa/plan/compile.h"
#include "mantissa/runtime/batch.h"
#include "mantissa/runtime/executor.h"
#include "mantissa/train/forecast.h"

namespace {

using namespace mantissa;  // NOLINT: a program of its own
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 6;

struct Model {
  std::string_view name;
  std::int64_t hidden, intermediate, layers, heads, kv_heads, vocabulary;
  bool tied;
  std::int64_t rows, length;
};
constexpr Model kModels[] = {{"demo", 128, 352, 4, 8, 4, 256, true, 4, 320},
                             {"5M", 256, 688, 6, 4, 4, 256, false, 8, 256},
                             {"wide", 64, 1024, 2, 1, 1, 1000, false, 16, 128},
                             {"24M", 512, 1376, 6, 8, 8, 4096, false, 8, 256},
                             {"124M×64", 768, 2048, 12, 12, 12, 50304, true, 4, 64}};

model::ModelConfig config_of(const Model& s) {
  model::ModelConfig c;
  c.hidden_size = s.hidden;
  c.intermediate_size = s.intermediate;
  c.num_hidden_layers = s.layers;
  c.num_attention_heads = s.heads;
  c.num_key_value_heads = s.kv_heads;
  c.head_dim = s.hidden / s.heads;
  c.vocab_size = s.vocabulary;
  c.tie_word_embeddings = s.tied;
  return c;
}

/// "matmul 1280·128 · 352·128": an op with its inputs' sizes.
std::string kind_of(const plan::Program& program, const plan::Step& s) {
  std::string kind(s.op->id);
  if (!s.parts.empty()) kind = "fused";
  for (std::size_t i = 0; i < std::min<std::size_t>(s.inputs.size(), 2); ++i) {
    const Shape& shape = program.buffer(s.inputs[i].buffer).shape;
    const std::int64_t width = shape.dim(shape.rank() - 1).size;
    kind += fmt::format(" {}·{}", shape.count() / width, width);
  }
  return kind;
}

struct Times {
  double measured = 0, forecast = 0, flops = 0, bytes = 0;
  int count = 0;
};

void measure(const Model& shape, const char* policy, const kernels::Context& ctx) {
  plan::CompileOptions options;
  options.longest_row = options.longest_leaf = shape.length;
  options.join_head = options.one_micro_batch = true;
  const plan::Program program =
      plan::compile(model::build_log_prob(config_of(shape), shape.rows * shape.length, shape.length, true),
                    precision::Policy::parse(policy), options, ctx);
  runtime::WeightSet weights(program);
  weights.initialise(1, ctx);
  runtime::Executor executor(program, weights, ctx);
  for (std::size_t i = 0; i < executor.integers("ids").size(); ++i) {
    executor.integers("ids")[i] =
        static_cast<std::int32_t>(i * 31 % static_cast<std::size_t>(shape.vocabulary));
    executor.integers("targets")[i] =
        static_cast<std::int32_t>(i * 17 % static_cast<std::size_t>(shape.vocabulary));
  }
  const runtime::Batch batch(shape.rows, shape.length, 1);
  std::map<const plan::Step*, double> fastest;
  Clock::time_point last;
  executor.after_step = [&](const plan::Step& step, const graph::Call&) {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last).count();
    const auto [at, fresh] = fastest.try_emplace(&step, seconds);
    if (!fresh) at->second = std::min(at->second, seconds);
    last = now;
  };
  train::Machine machine = train::measure_machine(ctx, program);
  for (int i = 0; i < kRounds; ++i) {
    const train::Machine again = train::measure_machine(ctx, program);
    machine.flops_per_second = std::max(machine.flops_per_second, again.flops_per_second);
    machine.bytes_per_second = std::max(machine.bytes_per_second, again.bytes_per_second);
    for (const graph::Phase phase : {graph::Phase::forward, graph::Phase::backward}) {
      last = Clock::now();
      executor.run(phase, batch.extent());
    }
  }
  std::map<std::string, Times> kinds;
  for (const auto& [step, seconds] : fastest) {
    for (Times* t : {&kinds[kind_of(program, *step)], &kinds["~all"]}) {
      t->measured += seconds;
      t->forecast += train::step_seconds(program, *step, shape.length, machine);
      t->flops += step->flops;
      t->bytes += step->bytes;
      ++t->count;
    }
  }
  fmt::print("{} {}, {:.0f} GFLOP/s peak, {:.1f} GB/s\n{:<44} {:>5} {:>9} {:>9} {:>9} {:>9} {:>8}\n",
             shape.name, policy, machine.flops_per_second / 1e9, machine.bytes_per_second / 1e9, "op",
             "steps", "ms", "forecast", "of it", "GFLOP/s", "GB/s");
  for (const auto& [kind, t] : kinds) {
    fmt::print("{:<44} {:>5} {:>9.3f} {:>9.3f} {:>9.2f} {:>9.1f} {:>8.1f}\n", kind, t.count, 1e3 * t.measured,
               1e3 * t.forecast, t.forecast / t.measured, t.flops / t.measured / 1e9,
               t.bytes / t.measured / 1e9);
  }
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  kernels::Context ctx;
  ctx.simd = kernels::best_simd();
  ctx.threads =
      argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  ctx.pool = std::make_shared<kernels::ThreadPool>(ctx.threads);
  fmt::print("{} threads, {}\n\n", ctx.threads, kernels::name(ctx.simd));
  for (const Model& shape : kModels) {
    const bool asked =
        argc <= 2 ? shape.name != "124M×64"
                  : std::any_of(argv + 2, argv + argc, [&](const char* a) { return shape.name == a; });
    if (!asked) continue;
    for (const char* policy : {"32-true", "bf16-mixed", "64-true"}) measure(shape, policy, ctx);
  }
}
