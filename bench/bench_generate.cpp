// Decoding of a model of the shape of SmolLM2-135M, or of an RWKV-7 of 191M parameters, with random weights:
// tokens per second of one stream and of sixteen, as a share of the limit by memory bandwidth if every weight
// is read once per step. Then the time by kind of op, in a second run whose ops are timed one by one. Medians
// over the steps.
//
//   bench_generate [--rwkv7] [THREADS [STREAMS…]]
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench.h"
#include "mantissa/generate/rollout/generate.h"
#include "mantissa/kernels/peak.h"
#include "mantissa/setup/programs/decoding.h"

namespace {

using namespace mantissa;  // NOLINT: a program, not a header
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kPrompt = 16;
constexpr std::int64_t kNew = 64;

model::ModelConfig smollm2_135m() {
  return model::parse_model_config({{"model_type", "llama"},
                                    {"vocab_size", 49152},
                                    {"hidden_size", 576},
                                    {"intermediate_size", 1536},
                                    {"num_hidden_layers", 30},
                                    {"num_attention_heads", 9},
                                    {"num_key_value_heads", 3},
                                    {"tie_word_embeddings", true}},
                                   "smollm2_135m");
}

model::ModelConfig rwkv7_191m() {
  return model::parse_model_config({{"model_type", "rwkv7"},
                                    {"vocab_size", 65536},
                                    {"hidden_size", 768},
                                    {"intermediate_size", 3072},
                                    {"num_hidden_layers", 12},
                                    {"head_dim", 64},
                                    {"tie_word_embeddings", false}},
                                   "rwkv7_191m");
}

/// Returns the bytes of the weight matrices that a step multiplies.
double bytes_read(const plan::Program& program) {
  double bytes = 0;
  for (const plan::Step& s : program.steps) {
    if (s.op->id != "matmul") continue;
    const plan::Buffer& weight = program.buffer(s.inputs[1].buffer);
    bytes += static_cast<double>(weight.shape.count()) * static_cast<double>(bytes_of(weight.type));
  }
  return bytes;
}

/// Records the seconds of each decoding step, between two sets of tokens, by kind of op.
class Stopwatch {
 public:
  explicit Stopwatch(std::size_t streams) : streams_(streams) {}

  void op(const std::string& kind) {
    const Clock::time_point now = Clock::now();
    spent_[kind] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }
  void token() {
    if (++tokens_ % streams_ != 0) return;
    op("choosing");
    double all = 0;
    for (auto& [kind, seconds] : spent_) {
      if (tokens_ > streams_) steps_[kind].push_back(seconds);  // the first step processed the prompts
      all += seconds;
      seconds = 0;
    }
    if (tokens_ > streams_) steps_["all"].push_back(all);
  }
  std::map<std::string, double> medians() const {
    std::map<std::string, double> out;
    for (const auto& [kind, seconds] : steps_) out[kind] = bench::median(seconds);
    return out;
  }

 private:
  std::size_t streams_, tokens_ = 0;
  Clock::time_point last_ = Clock::now();
  std::map<std::string, double> spent_;
  std::map<std::string, std::vector<double>> steps_;
};

void measure(const model::ModelConfig& config, const char* policy, std::int64_t streams,
             const kernels::Context& ctx) {
  const auto device = runtime::cpu(ctx);
  const auto compiled =
      programs::compile_decode(config, precision::Policy::parse(policy), kPrompt + kNew, *device, streams);
  const plan::Program& program = *compiled;
  const auto weights = std::make_shared<runtime::WeightSet>(program, *device);
  weights->initialize(1);
  rollout::interleave_weights(*weights, program);
  runtime::Session session(compiled, weights);
  std::vector<rollout::Request> requests;
  for (std::int64_t s = 0; s < streams; ++s)
    requests.push_back({std::vector<std::int32_t>(kPrompt, static_cast<std::int32_t>(s)), s});
  const auto medians = [&](bool by_op) {
    Stopwatch watch(static_cast<std::size_t>(streams));
    if (by_op) {
      session.executor().after_step = [&](const plan::Step& step, const graph::Call&) {
        watch.op(step.scope == "lm_head" ? "matmul, head" : std::string(step.op->id));
      };
    }
    rollout::GenerateOptions options;
    options.max_new_tokens = kNew;
    options.on_token = [&](std::size_t, std::int32_t, double) {
      watch.token();
      return true;
    };
    rollout::generate(session, config, requests, options);
    return watch.medians();
  };
  const double before = kernels::measure_read_bandwidth(ctx);
  const double step = medians(false).at("all");
  const double bandwidth = (before + kernels::measure_read_bandwidth(ctx)) / 2;
  const double limit = bytes_read(program) / bandwidth;
  std::map<std::string, double> ops = medians(true);  // longer together, because each op runs alone
  ops.erase("all");
  fmt::print(
      "{:<11} {:>2} streams  {:7.1f} tokens/s  {:6.2f} ms per step, {:6.2f} by memory ({:.1f} GB/s): {:.0f} "
      "%\n",
      policy, streams, static_cast<double>(streams) / step, 1e3 * step, 1e3 * limit, bandwidth / 1e9,
      100 * limit / step);
  for (const auto& [op, seconds] : ops) fmt::print("    {:<14} {:7.3f} ms\n", op, 1e3 * seconds);
}

}  // namespace

int main(int argc, char** argv) {
  const bool rwkv = argc > 1 && std::string_view(argv[1]) == "--rwkv7";
  if (rwkv) --argc, ++argv;
  const kernels::Context ctx = bench::context(argc, argv);
  std::vector<std::int64_t> streams;
  for (int i = 2; i < argc; ++i) streams.push_back(std::atoi(argv[i]));
  if (streams.empty()) streams = {1, 16};
  fmt::print("{}, {} threads, {}\n", rwkv ? "RWKV-7 191M" : "SmolLM2-135M", ctx.threads,
             kernels::name(ctx.simd));
  for (const char* policy : {"32-true", "bf16-true"}) {
    for (const std::int64_t s : streams) measure(rwkv ? rwkv7_191m() : smollm2_135m(), policy, s, ctx);
  }
}
