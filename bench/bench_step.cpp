// A training step by kind of op: time, and share of the machine's measured FMA peak, for the models of
// docs/performance.md. Each step of the plan counts with its fastest run and the peak with its highest, so
// that the shares are the kernels' and not those of what else the machine did.
//
//   bench_step [THREADS [SHAPE…]]      SHAPE: 5M, 24M, 124M×64, 124M×256 (all)
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
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

constexpr int kRounds = 6;

struct Model {
  std::string_view name;
  std::int64_t hidden, intermediate, layers, heads, vocabulary;
  bool tied;
  std::int64_t rows, length;
};
constexpr Model kModels[] = {{"5M", 256, 688, 6, 4, 256, false, 8, 256},
                             {"24M", 512, 1376, 6, 8, 4096, false, 8, 256},
                             {"124M×64", 768, 2048, 12, 12, 50304, true, 4, 64},
                             {"124M×256", 768, 2048, 12, 12, 50304, true, 4, 256}};

model::ModelConfig config_of(const Model& s) {
  model::ModelConfig c;
  c.hidden_size = s.hidden;
  c.intermediate_size = s.intermediate;
  c.num_hidden_layers = s.layers;
  c.num_attention_heads = c.num_key_value_heads = s.heads;
  c.head_dim = s.hidden / s.heads;
  c.vocab_size = s.vocabulary;
  c.tie_word_embeddings = s.tied;
  return c;
}

struct Spent {
  double seconds = 0, flops = 0;
};

/// Runs forward and backward a few times and prints what each kind of op took.
void measure(const Model& shape, const char* policy, const kernels::Context& ctx) {
  plan::CompileOptions options;
  options.longest_row = options.longest_leaf = shape.length;
  options.join_head = true;
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
  double peak = 0;
  for (int i = 0; i < kRounds; ++i) {
    peak = std::max(peak, kernels::measure_fma_peak(ctx, Scalar::f32));
    for (const graph::Phase phase : {graph::Phase::forward, graph::Phase::backward}) {
      last = Clock::now();
      executor.run(phase, batch.extent());
    }
  }
  std::map<std::string, Spent> spent;
  Spent all;
  for (const auto& [step, seconds] : fastest) {
    for (Spent* s : {&spent[std::string(step->op->id)], &all}) {
      s->seconds += seconds;
      s->flops += step->flops;
    }
  }
  fmt::print("{} {}, {:.0f} GFLOP/s peak\n{:<18} {:>9} {:>7} {:>10} {:>7}\n", shape.name, policy, peak / 1e9,
             "op", "ms/step", "share", "GFLOP/s", "peak");
  const auto line = [&](std::string_view op, const Spent& s) {
    fmt::print("{:<18} {:>9.2f} {:>6.1f}% {:>10.1f} {:>6.1f}%", op, 1e3 * s.seconds,
               100 * s.seconds / all.seconds, s.flops / s.seconds / 1e9, 100 * s.flops / s.seconds / peak);
  };
  for (const auto& [op, s] : spent) {
    line(op, s);
    fmt::print("\n");
  }
  line("all", all);
  fmt::print("   {:.0f} tokens/s without the update\n\n",
             static_cast<double>(shape.rows * shape.length) / all.seconds);
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
        argc <= 2 || std::any_of(argv + 2, argv + argc, [&](const char* a) { return shape.name == a; });
    if (!asked) continue;
    for (const char* policy : {"32-true", "bf16-mixed"}) measure(shape, policy, ctx);
  }
}
