// Splits and joins of columns are views where every kernel accepts rows with gaps and memory does not grow.
// Views change no byte of any result.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "engine/model/tiny_families.h"
#include "engine/runtime/program.h"
#include "mantissa/engine/graph/builder.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/engine/runtime/nonfinite.h"

namespace mantissa::plan::view_columns_test {
namespace {

using graph::Builder;
using graph::Duty;
using graph::Graph;
using graph::ValueId;
using mantissa::testing::Bytes;
using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::kTinyVocabulary;
using mantissa::testing::options_for;
using mantissa::testing::Segments;

constexpr std::int64_t kTokens = 16;

model::ModelConfig gpt2() {
  return model::parse_model_config(
      mantissa::testing::tiny_models(mantissa::testing::facts_of("gpt2")).front().config, "gpt2");
}

std::size_t count(const Program& p, Duty duty) {
  return static_cast<std::size_t>(
      std::ranges::count_if(p.steps, [&](const Step& s) { return s.op->duty == duty; }));
}

std::size_t views(const Program& p) {
  return static_cast<std::size_t>(
      std::ranges::count_if(p.buffers, [](const Buffer& b) { return b.parent != kNoBuffer; }));
}

Program planned(const Graph& graph, const char* policy,
                const std::function<void(CompileOptions&)>& change = {}) {
  CompileOptions options{kTokens, kTokens};
  if (change) change(options);
  return compile(graph, precision::Policy::parse(policy), options, {});
}

/// What the executor and the layout promise of a view: its bytes are columns of its parent.
void expect_views_lie_in_their_parents(const Program& p) {
  for (const Buffer& b : p.buffers) {
    if (b.parent == kNoBuffer) continue;
    const Buffer& parent = p.buffer(b.parent);
    EXPECT_EQ(parent.parent, kNoBuffer) << b.name;
    EXPECT_EQ(b.type, parent.type) << b.name;
    EXPECT_EQ(b.shape.leading(), parent.shape.leading()) << b.name;
    EXPECT_LE(b.first_column + b.shape.last(), parent.shape.last()) << b.name;
    EXPECT_EQ(b.offset, parent.offset + static_cast<std::size_t>(b.first_column) * bytes_of(b.type))
        << b.name;
    EXPECT_EQ(p.row_stride(b), parent.shape.last()) << b.name;
  }
}

TEST(ViewColumns, NoStepOfGpt2SplitsOrJoins) {
  const model::ModelConfig config = gpt2();
  const Graph graph = model::build_log_prob(config, kTokens, kTokens, true);
  for (const char* policy : {"64-true", "32-true", "bf16-mixed", "16-mixed", "bf16-true"}) {
    for (const Recompute what : {Recompute::none, Recompute::attention, Recompute::block}) {
      const Program copies = planned(graph, policy, [&](CompileOptions& o) {
        o.recompute = what;
        o.views = false;
      });
      const Program p = planned(graph, policy, [&](CompileOptions& o) { o.recompute = what; });
      const auto layers = static_cast<std::size_t>(config.num_hidden_layers);
      EXPECT_GE(count(copies, Duty::split), layers);
      EXPECT_EQ(count(copies, Duty::join), layers);
      EXPECT_EQ(count(p, Duty::split) + count(p, Duty::join), 0U) << policy;
      EXPECT_EQ(views(p), 3 * (count(copies, Duty::split) + count(copies, Duty::join))) << policy;
      EXPECT_LE(p.memory.activations, copies.memory.activations) << policy;
      expect_views_lie_in_their_parents(p);
    }
  }
}

TEST(ViewColumns, GenerationOfGpt2AppendsColumnsToTheCache) {
  const Program p = planned(model::build_decode(gpt2(), kTokens, 2, kTokens), "bf16-mixed");
  EXPECT_EQ(count(p, Duty::split), 0U);
  EXPECT_GT(views(p), 0U);
  expect_views_lie_in_their_parents(p);
}

TEST(ViewColumns, ValuesThatAreKeptAreCopies) {
  const Graph graph = model::build_log_prob(gpt2(), kTokens, kTokens, true);
  EXPECT_EQ(views(planned(graph, "bf16-mixed", [](CompileOptions& o) { o.keep_values = true; })), 0U);
}

TEST(ViewColumns, ThePlanNamesTheBufferWhoseColumnsAStepAccesses) {
  const Program p = planned(model::build_log_prob(gpt2(), kTokens, kTokens, true), "32-true");
  const std::vector<PlanRow> rows = plan_rows(p);
  const auto has = [&](std::string_view text) {
    return std::ranges::any_of(rows,
                               [&](const PlanRow& r) { return r.kernel.find(text) != std::string::npos; });
  };
  EXPECT_TRUE(has("attention, reads columns of transformer.h.0.attn.c_attn"));
  EXPECT_TRUE(has(", writes columns of transformer.h.0.attn.c_attn"));
}

/// Log-probabilities and gradients of two micro-batches.
std::vector<Bytes> results(const Graph& graph, const char* policy, const CompileOptions& options,
                           const Segments& rows, const Data& data) {
  Compiled c(graph, precision::Policy::parse(policy), options);
  c.randomize_vectors();
  return mantissa::testing::results(c, rows, data);
}

TEST(ViewColumns, ChangeNoByte) {
  const Segments rows({9, 4, 1}, 2);
  const Data data(rows.tokens + 1, kTinyVocabulary, 11);
  const Graph graph = model::build_log_prob(gpt2(), rows.tokens, 9, true);
  for (const char* policy : {"64-true", "32-true", "bf16-mixed", "bf16-mixed kv=f16", "16-mixed", "bf16-true",
                             "fp8-hybrid", "bf16-mixed compute=mxfp8", "bf16-matmul-x3"}) {
    CompileOptions options = options_for(rows);
    options.views = false;
    const std::vector<Bytes> want = results(graph, policy, options, rows, data);
    options.views = true;
    for (const bool fold : {false, true}) {
      for (const Recompute what : {Recompute::none, Recompute::attention, Recompute::block}) {
        options.fold = options.fuse = fold;
        options.recompute = what;
        EXPECT_TRUE(results(graph, policy, options, rows, data) == want)
            << policy << ", fold and fuse " << fold << ", recompute " << static_cast<int>(what);
      }
    }
  }
}

/// y = f(x·W) of some tokens, where f splits or joins.
Program small(const std::function<ValueId(Builder&, ValueId)>& f) {
  Graph graph;
  Builder b(graph, kTokens);
  const ValueId ids = b.token_input("ids");
  const ValueId table = b.parameter("table", {29, 16}, {graph::Init::Kind::normal, 0.3});
  const ValueId w = b.parameter("w", {32, 16}, {graph::Init::Kind::normal, 0.3});
  const ValueId y = f(b, b.matmul("fc", b.gather("wte", ids, table), w));
  graph.mark_output("y", y);
  return planned(graph, "32-true");
}

TEST(ViewColumns, AGateReadsTheColumnsOfItsProductInLessMemory) {
  const auto gate = [](Builder& b, ValueId x) {
    const std::vector<ValueId> halves = b.split("fc", x, {16, 16});
    return b.swiglu("mlp", halves[0], halves[1]);
  };
  const Program p = small(gate);
  EXPECT_EQ(count(p, Duty::split), 0U);
  // The product and the result; copies of both halves would need another product's bytes.
  EXPECT_EQ(p.memory.activations, (32 + 16) * kTokens * sizeof(float));
}

TEST(ViewColumns, AKernelThatNeedsDenseRowsGetsACopy) {
  const Program p = small([](Builder& b, ValueId x) {
    const ValueId first = b.split("fc", x, {16, 16})[0];
    return b.select("last", first, b.row_input("rows", 1));
  });
  EXPECT_EQ(count(p, Duty::split), 1U);
  EXPECT_EQ(views(p), 0U);
}

TEST(ViewColumns, AnOutputOfTheProgramIsDense) {
  const Program p = small([](Builder& b, ValueId x) { return b.split("fc", x, {16, 16})[1]; });
  EXPECT_EQ(count(p, Duty::split), 1U);
  EXPECT_EQ(p.row_stride(p.buffer(p.required("y"))), 16);
}

TEST(ViewColumns, AnOutputOfTheProgramMayHoldTheJoinedColumns) {
  const Program p = small([](Builder& b, ValueId x) {
    return b.concat("both", {b.relu_squared("a", x), b.relu_squared("b", x)});
  });
  EXPECT_EQ(count(p, Duty::join), 0U);
  EXPECT_EQ(p.row_stride(p.buffer(p.required("y"))), 64);
}

TEST(ViewColumns, AnInputJoinedTwiceIsCopied) {
  const Program p = small([](Builder& b, ValueId x) {
    const ValueId part = b.relu_squared("a", x);
    return b.concat("twice", {part, part});
  });
  EXPECT_EQ(count(p, Duty::join), 1U);
}

TEST(ViewColumns, ANarrowPartThatLivesLongDoesNotKeepTheWholeAlive) {
  const Program p = small([](Builder& b, ValueId x) {
    const std::vector<ValueId> parts = b.split("fc", x, {1, 31});
    ValueId y = b.relu_squared("wide", parts[1]);
    const ValueId weight = b.parameter("square", {31, 31}, {graph::Init::Kind::normal, 0.3});
    for (int i = 0; i < 6; ++i) y = b.matmul(fmt::format("layer.{}", i), y, weight);
    return b.concat("both", {y, b.relu_squared("narrow", parts[0])});
  });
  EXPECT_EQ(count(p, Duty::split), 1U);
}

TEST(ViewColumns, ASearchForANumberThatIsNotFiniteReadsTheColumnsOfTheView) {
  const Segments rows({9, 4});
  Graph graph;
  Builder b(graph, rows.tokens);
  const ValueId table = b.parameter("table", {29, 16}, {graph::Init::Kind::normal, 0.3});
  const ValueId x = b.gather("wte", b.token_input("ids"), table);
  graph.mark_output("y", b.concat("both", {b.scale("low", x, 2), b.relu_squared("high", x)}));
  CompileOptions options = options_for(rows);
  options.fuse = false;
  const Compiled c(graph, precision::Policy::parse("32-true"), options);
  ASSERT_EQ(views(c.program), 2U);
  constexpr std::int32_t kHuge = 5;  // its numbers have squares beyond f32
  for (std::size_t i = 0; i < 16; ++i) {
    const double huge = 1e30;
    const Matrix master = c.weights.master(0);
    store_row(&huge, 1, master.data, master.type, kHuge * 16 + i);
  }
  std::ranges::fill(c.integers("ids"), 0);
  c.integers("ids")[12] = kHuge;
  const std::int64_t first_row = 0;
  const auto found = runtime::find_first_non_finite(
      *c.executor, first_row, [&] { c.executor->run(graph::Phase::forward, rows.extent()); });
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->scope, "high");
  EXPECT_EQ(found->rows, std::vector<std::int64_t>{1});
}

}  // namespace
}  // namespace mantissa::plan::view_columns_test
