// A model of the ops that Llama lacks: learned positions, layers with biases and transposed weights, splits
// and concatenations, GELU, broadcast factors and terms. Passes, recomputation, micro-batches, threads and
// instruction sets change none of its bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/runtime/program.h"
#include "kernels/row_testing.h"
#include "mantissa/engine/graph/autodiff.h"
#include "mantissa/engine/graph/builder.h"

namespace mantissa::plan::general_ops_test {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Init;
using graph::ValueId;
using mantissa::testing::Bytes;
using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::options_for;
using mantissa::testing::results;
using mantissa::testing::Segments;

constexpr std::int64_t kVocabulary = 29, kWidth = 16, kHidden = 24, kPositions = 12, kHeads = 4;

class Model {
 public:
  Model(Graph& graph, std::int64_t tokens) : b_(graph, tokens) {}

  Graph build() {
    const ValueId ids = b_.token_input("ids"), targets = b_.token_input("targets");
    const ValueId seed = b_.token_numbers("dlog_prob");
    const ValueId table = weight("wte.weight", {kVocabulary, kWidth});
    ValueId x = b_.scale("wte", b_.gather("wte", ids, table), 1.25);
    x = b_.add("wpe", x, b_.learned_positions("wpe", ids, weight("wpe.weight", {kPositions, kWidth})));
    for (int layer = 0; layer < 3; ++layer) x = block(fmt::format("h.{}", layer), x);
    const ValueId log_prob = b_.log_prob("head", norm("ln_f", x), table, targets);
    b_.graph().mark_output("log_prob", log_prob);
    graph::differentiate(b_.graph(), std::array{graph::Seed{log_prob, seed}});
    return std::move(b_.graph());
  }

 private:
  ValueId weight(const std::string& name, Shape shape) {
    return b_.parameter(name, std::move(shape), {Init::Kind::normal, 0.3});
  }
  ValueId norm(const std::string& scope, ValueId x) {
    return b_.layernorm(scope, x, weight(scope + ".weight", {kWidth}), weight(scope + ".bias", {kWidth}),
                        1e-5);
  }
  ValueId linear(const std::string& scope, ValueId x, std::int64_t in, std::int64_t out) {
    return b_.matmul(scope, x, weight(scope + ".weight", {in, out}), weight(scope + ".bias", {out}),
                     Builder::WeightLayout::in_out);
  }
  ValueId block(const std::string& scope, ValueId x) {
    const std::string attention = scope + ".attn", mlp = scope + ".mlp";
    const std::vector<ValueId> qkv =
        b_.split(attention, linear(attention + ".c_attn", norm(scope + ".ln_1", x), kWidth, 3 * kWidth),
                 {kWidth, kWidth, kWidth});
    const ValueId k = b_.round_kv(attention + ".k", qkv[1]), v = b_.round_kv(attention + ".v", qkv[2]);
    const ValueId y = b_.attention(attention, qkv[0], k, v, kHeads, kHeads);
    x = b_.add(attention, x, linear(attention + ".c_proj", y, kWidth, kWidth));
    const ValueId up = linear(mlp + ".c_fc", norm(scope + ".ln_2", x), kWidth, 2 * kHidden);
    return b_.add(mlp, x, linear(mlp + ".c_proj", activation(mlp, up), 2 * kHidden, kWidth));
  }
  /// Half of the values gated, half of them scaled and shifted per feature.
  ValueId activation(const std::string& scope, ValueId up) {
    const std::vector<ValueId> halves = b_.split(scope + ".halves", up, {kHidden, kHidden});
    ValueId first = b_.geglu_tanh(scope, halves[0], halves[1]);
    first = b_.mul(scope + ".gain", first, weight(scope + ".gain", {kHidden}));
    ValueId second = b_.relu_squared(scope, b_.gelu_erf(scope, halves[1]));
    second = b_.add(scope + ".shift", second, weight(scope + ".shift", {kHidden}));
    return b_.concat(scope + ".halves", {first, second});
  }

  Builder b_;
};

Graph model(std::int64_t tokens) {
  Graph graph;
  return Model(graph, tokens).build();
}

const char* const kPolicies[] = {"64-true",
                                 "32-true",
                                 "bf16-mixed",
                                 "bf16-mixed residual=bf16 kv=f16",
                                 "16-mixed saturate=true flush_subnormals=true",
                                 "bf16-true",
                                 "bf16-mixed grads=bf16",
                                 "bf16-mixed params=e4m3 grads=e5m2",
                                 "32-true compute=tf32",
                                 "bf16-matmul-x3",
                                 "fp8-hybrid",
                                 "fp8-hybrid scaling=current",
                                 "bf16-mixed compute=mxfp8",
                                 "bf16-mixed compute=nvfp4",
                                 "bf16-mixed; *.mlp: rounding=stochastic",
                                 "bf16-mixed; h.1: compute=f32"};

TEST(GeneralOps, HaveTheSameBytesUnderEveryPass) {
  const Segments rows({9, 4, 1}, 2);
  const Data data(rows.tokens + 1, kVocabulary, 11);
  const Graph graph = model(rows.tokens);
  for (const char* policy : kPolicies) {
    CompileOptions options = options_for(rows);
    options.fold = options.fuse = false;
    const Compiled plain(graph, precision::Policy::parse(policy), options);
    const std::vector<Bytes> want = results(plain, rows, data);
    for (const auto& [fold, fuse, keep] : {std::tuple{true, false, false}, std::tuple{false, true, false},
                                           std::tuple{true, true, false}, std::tuple{true, true, true}}) {
      options.fold = fold;
      options.fuse = fuse;
      options.keep_values = keep;
      const Compiled c(graph, precision::Policy::parse(policy), options);
      EXPECT_TRUE(results(c, rows, data) == want)
          << policy << ", fold " << fold << ", fuse " << fuse << ", keep " << keep;
      EXPECT_LT(c.program.steps.size(), plain.program.steps.size()) << policy;
    }
    for (const Recompute what : {Recompute::attention, Recompute::block}) {
      options = options_for(rows);
      options.recompute = what;
      const Compiled c(graph, precision::Policy::parse(policy), options);
      EXPECT_TRUE(results(c, rows, data) == want) << policy << ", recomputed";
      EXPECT_TRUE(std::ranges::any_of(c.program.steps, &Step::recomputed)) << policy;
    }
  }
}

/// The gradient of a branch is cast if a bias gradient also reads it: products round it while loading.
TEST(GeneralOps, LeaveNoCastInMixedPrecisionButForGradientsOfBiases) {
  const Program p = compile(model(16), precision::Policy::parse("bf16-mixed"), {16, 16}, {});
  int casts = 0;
  for (const Step& cast : p.steps) {
    if (cast.op->id != "cast") continue;
    ++casts;
    EXPECT_EQ(cast.phase, graph::Phase::backward) << cast.scope;
    EXPECT_TRUE(std::ranges::any_of(p.steps, [&](const Step& s) {
      return s.op->id == "token_sum" && s.inputs[0].buffer == cast.outputs[0];
    })) << cast.scope;
  }
  EXPECT_GT(casts, 0);
}

TEST(GeneralOps, AddTheResidualInTheProductThatHasABias) {
  for (const char* policy : {"32-true", "bf16-mixed", "bf16-true"}) {
    const Program p = compile(model(16), precision::Policy::parse(policy), {16, 16}, {});
    int products = 0;
    for (const Step& s : p.steps) {
      if (s.op->id != "matmul" || !s.scope.ends_with("c_proj")) continue;
      ++products;
      EXPECT_EQ(s.inputs.size(), 3U) << s.scope;
      EXPECT_NE(s.addend, kNoBuffer) << policy << ", " << s.scope;
    }
    EXPECT_GE(products, 2) << policy;
  }
}

/// A broadcast term does not become the addend of a product, which must have the product's shape.
TEST(GeneralOps, AreFusedWithOperandsThatAreBroadcast) {
  const Program p = compile(model(16), precision::Policy::parse("32-true"), {16, 16}, {});
  const auto has = [&](const std::vector<std::string>& parts) {
    return std::ranges::any_of(p.steps, [&](const Step& s) { return s.parts == parts; });
  };
  EXPECT_TRUE(has({"geglu_tanh", "mul"}));
  EXPECT_TRUE(has({"gelu_erf", "relu_squared", "add"}));
  for (const Step& s : p.steps) {
    if (s.addend != kNoBuffer) {
      EXPECT_EQ(p.buffer(s.addend).shape, p.buffer(s.outputs[0]).shape) << s.scope;
    }
  }
}

TEST(GeneralOps, HaveTheSameBytesOnEveryInstructionSetAndThreadCount) {
  const Segments rows({9, 4, 1}, 2);
  const Data data(rows.tokens + 1, kVocabulary, 11);
  const Graph graph = model(rows.tokens);
  for (const char* policy : {"64-true", "32-true", "bf16-mixed"}) {
    const auto numbers = precision::Policy::parse(policy);
    const std::vector<Bytes> want = results(Compiled(graph, numbers, options_for(rows)), rows, data);
    for (const kernels::Context& ctx : kernels::testing::contexts()) {
      EXPECT_TRUE(results(Compiled(graph, numbers, options_for(rows), ctx), rows, data) == want)
          << policy << ", " << kernels::testing::describe(ctx);
    }
  }
}

TEST(GeneralOps, HaveTheSameGradientsInMicroBatches) {
  constexpr std::int64_t kLength = 11, kRows = 4;
  const Data data(kRows * kLength, kVocabulary, 5);
  for (const char* policy :
       {"64-true", "32-true", "bf16-mixed", "bf16-matmul-x3", "bf16-mixed compute=mxfp8"}) {
    const auto gradients = [&](std::int64_t at_once) {
      const Segments micro(std::vector<std::int64_t>(static_cast<std::size_t>(at_once), kLength));
      const Compiled c(model(micro.tokens), precision::Policy::parse(policy), options_for(micro));
      for (std::int64_t first = 0; first < kRows; first += at_once) {
        data.feed(c, static_cast<std::size_t>(first * kLength), static_cast<std::size_t>(micro.tokens));
        c.executor->run(graph::Phase::forward, micro.extent());
        c.executor->run(graph::Phase::backward, micro.extent(), first > 0);
      }
      c.executor->run(graph::Phase::finish, micro.extent());
      return c.gradients();
    };
    const std::vector<Bytes> whole = gradients(kRows);
    EXPECT_TRUE(gradients(2) == whole) << policy;
    EXPECT_TRUE(gradients(1) == whole) << policy;
  }
}

}  // namespace
}  // namespace mantissa::plan::general_ops_test
