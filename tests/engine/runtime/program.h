// A compiled graph with its weights and executor on the smallest machine, for tests of whole programs.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/plan/compile.h"
#include "mantissa/engine/runtime/executor.h"

namespace mantissa::testing {

using Bytes = std::vector<std::byte>;

struct Segments {
  std::vector<Row> rows;
  std::vector<Segment> segments;
  std::int64_t tokens = 0, per_leaf = 1;

  explicit Segments(const std::vector<std::int64_t>& lengths, std::int64_t rows_per_leaf = 1)
      : per_leaf(rows_per_leaf) {
    for (const std::int64_t n : lengths) {
      rows.push_back({tokens, n});
      segments.push_back({tokens, n, 0, 0});
      tokens += n;
    }
  }
  Extent extent() const {
    Extent all{tokens, rows, segments, per_leaf};
    all.trains = true;
    return all;
  }
};

/// A small Llama with the fields `more` in its config.json.
inline model::ModelConfig tiny_llama(bool tied, std::int64_t vocabulary = 29,
                                     const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json json = {{"model_type", "llama"},      {"vocab_size", vocabulary}, {"hidden_size", 16},
                         {"intermediate_size", 24},    {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                         {"num_key_value_heads", 2},   {"initializer_range", 0.3}, {"rms_norm_eps", 1e-5},
                         {"tie_word_embeddings", tied}};
  json.update(more);
  return model::parse_model_config(json, "tiny_llama");
}

/// Not movable: executor and weights refer to the program.
struct Compiled {
  Compiled(const graph::Graph& graph, const precision::Policy& policy, plan::CompileOptions options,
           const kernels::Context& context = {.simd = kernels::best_simd()}, unsigned seed = 7)
      : ctx(context), program(plan::compile(graph, policy, options, ctx)), weights(program, *device) {
    weights.initialize(seed);
    executor = std::make_unique<runtime::Executor>(program, weights);
  }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  /// Returns `count` elements of a buffer from `offset` on.
  std::vector<double> values(plan::BufferId id, std::size_t count, std::size_t offset = 0) const {
    std::vector<double> v(count);
    const Matrix m = executor->buffer(id);
    load_row(m.data, m.type, offset, count, v.data());
    return v;
  }
  std::vector<double> values(std::string_view name, std::size_t count) const {
    return values(program.find(name), count);
  }
  /// Returns all elements of an input of integers, to be set.
  std::span<std::int32_t> integers(std::string_view name) const {
    const plan::Buffer& b = program.buffer(program.required(name));
    EXPECT_TRUE(b.integer) << name;
    return {static_cast<std::int32_t*>(executor->buffer(name).data),
            static_cast<std::size_t>(b.shape.count())};
  }
  void set(plan::BufferId id, std::size_t offset, double value) const {
    const Matrix m = executor->buffer(id);
    store_row(&value, 1, m.data, m.type, offset);
  }
  /// Adds numbers within ± 0.2 to gains and biases, whose initial ones and zeros would hide errors.
  void randomize_vectors() {
    std::mt19937 random(11);
    for (std::size_t s = 0; s < program.slots.size(); ++s) {
      const double range = random_range(program.slots[s]);
      if (range == 0) continue;
      const Matrix master = weights.master(s);
      std::vector<double> v(count(s));
      load_row(master.data, master.type, 0, v.size(), v.data());
      for (double& x : v) x += range * (static_cast<double>(random()) / 0x1p32 - 0.5);
      store_row(v.data(), v.size(), master.data, master.type, 0);
    }
    refresh_copies();
  }
  /// The range of what randomize_vectors() adds. Matrices of zeros hide the gradients of what precedes them,
  /// and a norm of tiny numbers is far from linear; an adapter's zeros are its beginning.
  static double random_range(const plan::Slot& slot) {
    using Kind = graph::Init::Kind;
    if (slot.shape.rank() <= 1) return 0.4;
    const bool tiny =
        slot.init.kind == Kind::zeros || (slot.init.kind == Kind::uniform && slot.init.std < 1e-3);
    return tiny && slot.name.find("lora_") == std::string::npos ? 1 : 0;
  }
  /// Call after setting masters.
  void refresh_copies() { weights.refresh_copies(); }
  Bytes bytes(plan::BufferId id, std::size_t count) const {
    const Matrix m = executor->buffer(id);
    const auto* begin = static_cast<const std::byte*>(m.data);
    return {begin, begin + count * bytes_of(m.type)};
  }
  std::size_t count(std::size_t slot) const {
    return static_cast<std::size_t>(program.slots[slot].shape.count());
  }
  /// Returns the gradients that the optimizer would read, for each parameter. Comparing them means something:
  /// all are finite, and each parameter has one that is not 0.
  std::vector<Bytes> gradients() const {
    std::vector<Bytes> all;
    for (std::size_t s = 0; s < program.slots.size(); ++s) {
      all.push_back(bytes(program.slots[s].gradient, count(s)));
      bool finite = true, zero = true;
      for (const double x : values(program.slots[s].gradient, count(s))) {
        finite = finite && std::isfinite(x);
        zero = zero && x == 0;
      }
      EXPECT_TRUE(finite && !zero) << "the gradient of " << program.slots[s].name;
    }
    return all;
  }

  kernels::Context ctx;
  std::shared_ptr<const runtime::Device> device = runtime::cpu(ctx);
  plan::Program program;
  runtime::WeightSet weights;
  std::unique_ptr<runtime::Executor> executor;
};

/// Ids, targets (every seventh is −1) and upstream gradients of a batch.
struct Data {
  std::vector<std::int32_t> ids, targets;
  std::vector<double> d;

  Data(std::int64_t tokens, std::int64_t vocabulary, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<std::int32_t> id(0, static_cast<std::int32_t>(vocabulary - 1));
    for (std::int64_t t = 0; t < tokens; ++t) {
      ids.push_back(id(random));
      targets.push_back(t % 7 == 6 ? -1 : id(random));
      d.push_back(-1.0 / static_cast<double>(1 + t % 5));
    }
  }
  /// Sets tokens [begin, begin + count) as the program's inputs.
  void feed(const Compiled& c, std::size_t begin, std::size_t count) const {
    for (std::size_t t = 0; t < count; ++t) {
      c.integers("ids")[t] = ids[begin + t];
      c.integers("targets")[t] = targets[begin + t];
      if (const plan::BufferId seed = c.program.find("dlog_prob"); seed != plan::kNoBuffer)
        c.set(seed, t, d[begin + t]);
    }
  }
};

/// Runs forward, backward and finish of one batch.
inline void train_step(const Compiled& c, const Extent& extent) {
  c.executor->run(graph::Phase::forward, extent);
  c.executor->run(graph::Phase::backward, extent);
  c.executor->run(graph::Phase::finish, extent);
}

/// Runs micro-batches, each one token of `data` after the one before: `data` needs micro_batches − 1 tokens
/// more than `rows`. Returns every gradient and the log-probabilities of the last micro-batch.
inline std::vector<Bytes> results(const Compiled& c, const Segments& rows, const Data& data,
                                  std::size_t micro_batches = 2) {
  const auto tokens = static_cast<std::size_t>(rows.tokens);
  for (std::size_t first = 0; first < micro_batches; ++first) {
    data.feed(c, first, tokens);
    c.executor->run(graph::Phase::forward, rows.extent());
    c.executor->run(graph::Phase::backward, rows.extent(), first > 0);
  }
  c.executor->run(graph::Phase::finish, rows.extent());
  std::vector<Bytes> all = c.gradients();
  all.push_back(c.bytes(c.program.required("log_prob"), tokens));
  return all;
}

inline plan::CompileOptions options_for(const Segments& s) {
  plan::CompileOptions o;
  for (const Row& r : s.rows) o.longest_row = std::max(o.longest_row, r.length);
  o.longest_leaf = o.longest_row * s.per_leaf;
  return o;
}

}  // namespace mantissa::testing
