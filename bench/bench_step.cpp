// A training step by kind of op: its time, its share of the machine's measured FMA peak, its bandwidth, and
// the plan's prediction, for the models below. Each step of the plan counts with its fastest run and the peak
// with its highest, so the figures exclude other load on the machine. With --observed every second run is
// observed as under log.observe = "*", and a column has the time of an observed step.
//
//   bench_step [--by-shape] [--observed] [--threads=N] [MODEL…] [POLICY…]
//   MODEL: demo, 5M, wide, 24M, 124Mx64, 124Mx256, rwkv24M, and rwkv191M and llama191M, also with x4096
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/plan/compile.h"
#include "mantissa/engine/runtime/batch.h"
#include "mantissa/engine/runtime/observer.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/setup/forecast/forecast.h"

namespace {

using namespace mantissa;  // NOLINT: a program, not a header
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 12;

struct Model {
  std::string name;
  std::int64_t hidden, intermediate, layers, heads, kv_heads, vocabulary;
  bool tied;
  std::int64_t rows, length;
  bool peer;  // also measured with PyTorch
  const char* family = "llama";
};
const std::vector<Model> kModels = {
    {"demo", 128, 352, 4, 8, 4, 256, true, 4, 320, false},
    {"5M", 256, 688, 6, 4, 4, 256, false, 8, 256, true},
    {"wide", 64, 1024, 2, 1, 1, 1000, false, 16, 128, false},
    {"24M", 512, 1376, 6, 8, 8, 4096, false, 8, 256, true},
    {"124Mx64", 768, 2048, 12, 12, 12, 50304, true, 4, 64, true},
    {"124Mx256", 768, 2048, 12, 12, 12, 50304, true, 4, 256, true},
    {"rwkv24M", 512, 2048, 6, 8, 8, 4096, false, 8, 256, false, "rwkv7"},
    {"rwkv191M", 768, 3072, 12, 12, 12, 65536, false, 2, 512, false, "rwkv7"},
    {"llama191M", 768, 2240, 12, 12, 12, 65536, false, 2, 512, false},
    {"rwkv191Mx4096", 768, 3072, 12, 12, 12, 65536, false, 1, 4096, false, "rwkv7"},
    {"llama191Mx4096", 768, 2240, 12, 12, 12, 65536, false, 1, 4096, false}};

model::ModelConfig config_of(const Model& s) {
  return model::parse_model_config({{"model_type", s.family},
                                    {"head_dim", s.hidden / s.heads},
                                    {"hidden_size", s.hidden},
                                    {"intermediate_size", s.intermediate},
                                    {"num_hidden_layers", s.layers},
                                    {"num_attention_heads", s.heads},
                                    {"num_key_value_heads", s.kv_heads},
                                    {"vocab_size", s.vocabulary},
                                    {"tie_word_embeddings", s.tied}},
                                   s.name);
}

plan::Program program_of(const Model& shape, const std::string& policy, const kernels::Context& ctx) {
  plan::CompileOptions options;
  options.longest_row = options.longest_leaf = shape.length;
  options.join_head = options.one_micro_batch = true;
  return plan::compile(model::build_log_prob(config_of(shape), shape.rows * shape.length, shape.length, true),
                       precision::Policy::parse(policy), options, ctx);
}

/// Rows of ids and targets spread over the vocabulary.
runtime::Batch batch_of(const Model& shape) {
  runtime::Batch batch;
  std::vector<std::int32_t> ids, targets;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    ids.clear();
    targets.clear();
    for (std::int64_t i = row * shape.length; i < (row + 1) * shape.length; ++i) {
      ids.push_back(static_cast<std::int32_t>(i * 31 % shape.vocabulary));
      targets.push_back(static_cast<std::int32_t>(i * 17 % shape.vocabulary));
    }
    batch.add({.ids = ids, .targets = targets});
  }
  return batch;
}

/// Returns "matmul", or with its inputs' sizes "matmul 1280·128 · 352·128".
std::string kind_of(const plan::Program& program, const plan::Step& s, bool by_shape) {
  std::string kind(s.parts.empty() ? s.op->id : "fused");
  for (std::size_t i = 0; by_shape && i < std::min<std::size_t>(s.inputs.size(), 2); ++i) {
    const Shape& shape = program.buffer(s.inputs[i].buffer).shape;
    const std::int64_t width = shape.dim(shape.rank() - 1).size;
    kind += fmt::format(" {}·{}", shape.count() / width, width);
  }
  return kind;
}

/// What to measure.
struct Options {
  bool by_shape = false;
  bool observed = false;
};

struct Spent {
  double seconds = 0, observed = 0, predicted = 0, flops = 0, bytes = 0;
  int count = 0;
};

void print(const std::string& kind, const Spent& s, const Spent& all, double peak) {
  fmt::print("{:<36} {:>5} {:>9.3f} {:>6.1f}% {:>9.1f} {:>6.1f}% {:>7.1f} {:>9.2f}", kind, s.count,
             1e3 * s.seconds, 100 * s.seconds / all.seconds, s.flops / s.seconds / 1e9,
             100 * s.flops / s.seconds / peak, s.bytes / s.seconds / 1e9, s.predicted / s.seconds);
  if (s.observed > 0) fmt::print(" {:>9.3f} {:>6.2f}×", 1e3 * s.observed, s.observed / s.seconds);
  fmt::print("\n");
}

/// The shortest time of each step of the plan.
using Fastest = std::map<const plan::Step*, double>;

void keep_fastest(Fastest& fastest, const plan::Step& step, double seconds) {
  const auto [at, fresh] = fastest.try_emplace(&step, seconds);
  if (!fresh) at->second = std::min(at->second, seconds);
}

/// Runs forward and backward a few times and prints the time of each kind of op.
void measure(const Model& shape, const std::string& policy, const Options& options,
             const kernels::Context& ctx) {
  const auto planned = std::make_shared<const plan::Program>(program_of(shape, policy, ctx));
  const plan::Program& program = *planned;
  const auto device = runtime::cpu(ctx);
  const auto weights = std::make_shared<runtime::WeightSet>(program, *device);
  weights->initialize(1);
  runtime::Session session(planned, weights);
  const runtime::Batch batch = batch_of(shape);
  session.feed(batch);
  Fastest plain, observed;
  std::optional<runtime::Observer> observer;
  Clock::time_point last;
  session.executor().after_step = [&](const plan::Step& step, const graph::Call&) {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last).count();
    keep_fastest(observer ? observed : plain, step, seconds);
    last = now;
  };
  forecast::Machine machine;
  for (int i = 0; i < kRounds; ++i) {
    const forecast::Machine now =
        forecast::measure_machine(*device, program, program.memory.arena() + program.memory.weights());
    machine.flops_per_second = std::max(machine.flops_per_second, now.flops_per_second);
    machine.bytes_per_second = std::max(machine.bytes_per_second, now.bytes_per_second);
    machine.products = now.products;  // measured once per process, as the peaks are
    machine.units = now.units;
    const auto run = [&] {
      for (const graph::Phase phase : {graph::Phase::forward, graph::Phase::backward}) {
        last = Clock::now();
        session.run(phase, batch.extent());
      }
    };
    run();
    if (!options.observed) continue;
    observer.emplace(session.executor(), [](const plan::Step&) { return true; });
    run();
    observer.reset();
  }
  std::map<std::string, Spent> spent;
  Spent all;
  for (const auto& [step, seconds] : plain) {
    for (Spent* s : {&spent[kind_of(program, *step, options.by_shape)], &all}) {
      s->seconds += seconds;
      if (options.observed) s->observed += observed.at(step);
      s->predicted += forecast::step_seconds(program, *step, shape.length, machine);
      s->flops += step->flops;
      s->bytes += step->bytes;
      ++s->count;
    }
  }
  fmt::print("{} {}, {:.0f} GFLOP/s peak, {:.1f} GB/s\n{:<36} {:>5} {:>9} {:>7} {:>9} {:>7} {:>7} {:>9}{}\n",
             shape.name, policy, machine.flops_per_second / 1e9, machine.bytes_per_second / 1e9, "op",
             "steps", "ms", "share", "GFLOP/s", "peak", "GB/s", "predicted",
             options.observed ? "  observed  ms" : "");
  for (const auto& [kind, s] : spent) print(kind, s, all, machine.flops_per_second);
  print("all", all, all, machine.flops_per_second);
  fmt::print("{:.0f} tokens/s without the update\n\n",
             static_cast<double>(shape.rows * shape.length) / all.seconds);
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 0;
  Options options;
  std::vector<const Model*> models;
  std::vector<std::string> policies;
  for (const std::string& argument : std::vector<std::string>(argv + 1, argv + argc)) {
    const auto model =
        std::find_if(kModels.begin(), kModels.end(), [&](const Model& m) { return m.name == argument; });
    if (argument == "--by-shape") {
      options.by_shape = true;
    } else if (argument == "--observed") {
      options.observed = true;
    } else if (argument.starts_with("--threads=")) {
      threads = std::atoi(argument.c_str() + std::string_view("--threads=").size());
    } else if (model != kModels.end()) {
      models.push_back(&*model);
    } else {
      policies.push_back(argument);
    }
  }
  if (models.empty()) {
    for (const Model& m : kModels) {
      if (m.peer) models.push_back(&m);
    }
  }
  if (policies.empty()) policies = {"32-true", "bf16-mixed"};

  const kernels::Context ctx = bench::context(threads);
  fmt::print("{} threads, {}\n\n", ctx.threads, kernels::name(ctx.simd));
  for (const Model* m : models) {
    for (const std::string& policy : policies) measure(*m, policy, options, ctx);
  }
}
