#include "mantissa/rollout/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "mantissa/base/error.h"
#include "mantissa/kernels/head.h"
#include "mantissa/model/llama.h"
#include "mantissa/plan/compile.h"
#include "mantissa/tensor/extent.h"

namespace mantissa::rollout {
namespace {

/// Prompt tokens of one run: bounds the memory of a long prompt.
constexpr std::int64_t kPromptChunk = 256;

void check_prompt(std::span<const std::int32_t> prompt, std::int64_t vocabulary, std::int64_t capacity) {
  if (prompt.empty()) throw ConfigError("the prompt is empty; give at least one token");
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= vocabulary) {
      throw ConfigError(fmt::format("prompt id {} at place {} is not of this model's vocabulary (0 … {})",
                                    prompt[i], i, vocabulary - 1));
    }
  }
  if (static_cast<std::int64_t>(prompt.size()) >= capacity) {
    throw ConfigError(
        fmt::format("the prompt has {} tokens, but there is room for {} with one new token; shorten it",
                    prompt.size(), capacity - 1));
  }
}

/// One sequence in slot 0 of the cache.
class Decoder {
 public:
  Decoder(runtime::Executor& executor, std::int64_t vocabulary)
      : executor_(executor), vocabulary_(vocabulary) {}

  /// Appends tokens at the next positions; afterwards logits() are those of the last.
  void feed(std::span<const std::int32_t> tokens) {
    while (!tokens.empty()) {
      const auto n =
          std::min<std::size_t>(tokens.size(), static_cast<std::size_t>(executor_.program().token_capacity));
      feed_chunk(tokens.first(n));
      tokens = tokens.subspan(n);
    }
  }

  /// The last token's logits, as they are and widened.
  std::vector<double> logits() const {
    const Matrix m = executor_.buffer("logits");
    std::vector<double> out(static_cast<std::size_t>(vocabulary_));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = number(m, i);
    return out;
  }

  /// log-probability of `id`: the difference of two numbers of the arithmetic's format, rounded to it.
  double log_prob(std::int32_t id) const {
    const Matrix m = executor_.buffer("logits");
    if (m.type == Scalar::f64) {
      double lse = 0;
      kernels::log_sum_exp(executor_.context(), 1, vocabulary_, m, {&lse, Scalar::f64, 1});
      return number(m, static_cast<std::size_t>(id)) - lse;
    }
    float lse = 0;
    kernels::log_sum_exp(executor_.context(), 1, vocabulary_, m, {&lse, Scalar::f32, 1});
    return static_cast<double>(static_cast<float*>(m.data)[id] - lse);
  }

 private:
  static double number(Matrix m, std::size_t i) {
    return m.type == Scalar::f64 ? static_cast<double*>(m.data)[i]
                                 : static_cast<double>(static_cast<float*>(m.data)[i]);
  }

  void feed_chunk(std::span<const std::int32_t> tokens) {
    const auto n = static_cast<std::int64_t>(tokens.size());
    std::copy(tokens.begin(), tokens.end(), executor_.integers("ids").begin());
    executor_.integers("rows")[0] = static_cast<std::int32_t>(n - 1);
    const Row row{0, n};
    const Segment segment{0, n, position_, 0};
    executor_.run(graph::Phase::forward, {n, {&row, 1}, {&segment, 1}, 1});
    position_ += n;
  }

  runtime::Executor& executor_;
  std::int64_t vocabulary_;
  std::int64_t position_ = 0;
};

}  // namespace

plan::Program compile_decode(const model::ModelConfig& config, const precision::Policy& policy,
                             std::int64_t capacity, const kernels::Context& ctx) {
  const std::int64_t tokens = std::min(capacity, kPromptChunk);
  plan::CompileOptions options;
  options.longest_row = capacity;
  options.longest_leaf = tokens;
  return plan::compile(model::build_decode(config, tokens, 1, capacity), policy, options, ctx);
}

Generation generate(runtime::Executor& executor, const model::ModelConfig& config,
                    std::span<const std::int32_t> prompt, const GenerateOptions& options) {
  check(options.sampling);
  const plan::BufferId cos = executor.program().find("rope.cos");
  const std::int64_t capacity = executor.program().buffer(cos).shape.dim(0).size;
  check_prompt(prompt, config.vocab_size, capacity);
  const auto start = std::chrono::steady_clock::now();
  Decoder decoder(executor, config.vocab_size);
  decoder.feed(prompt);
  Generation g;
  const std::int64_t room =
      std::min(options.max_new_tokens, capacity - static_cast<std::int64_t>(prompt.size()));
  for (std::int64_t i = 0; i < room; ++i) {
    const std::int32_t id =
        sample(decoder.logits(), options.sampling, 0, static_cast<std::int64_t>(prompt.size()) + i);
    g.ids.push_back(id);
    g.log_probs.push_back(decoder.log_prob(id));
    const bool stop = std::find(options.stop.begin(), options.stop.end(), id) != options.stop.end();
    if ((options.on_token && !options.on_token(id)) || stop || i + 1 == room) break;
    decoder.feed({&id, 1});
  }
  g.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return g;
}

}  // namespace mantissa::rollout
