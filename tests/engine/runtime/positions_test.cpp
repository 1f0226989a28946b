// Positions are integers in the plan, continue after cached tokens, and never exceed the table.
#include <gtest/gtest.h>

#include "engine/runtime/program.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/graph/builder.h"

namespace mantissa::runtime::positions_test {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Init;
using mantissa::testing::Compiled;

constexpr std::int64_t kTokens = 12, kWidth = 4, kLimit = 8;

/// Rows of a table of kLimit positions; all columns of row i contain i.
struct Learned {
  explicit Learned(const char* policy) {
    Builder b(graph, kTokens);
    const auto ids = b.token_input("ids");
    const auto table = b.parameter("wpe.weight", {kLimit, kWidth}, {Init::Kind::zeros, 0});
    graph.mark_output("rows", b.learned_positions("wpe", ids, table));
    c = std::make_unique<Compiled>(graph, precision::Policy::parse(policy),
                                   plan::CompileOptions{kTokens, kTokens});
    for (std::int64_t e = 0; e < kLimit * kWidth; ++e)
      c->set(c->program.required("wpe.weight"), static_cast<std::size_t>(e), static_cast<double>(e / kWidth));
  }
  std::vector<double> run(const std::vector<Segment>& segments) const {
    std::vector<Row> rows;
    std::int64_t tokens = 0;
    for (const Segment& s : segments) {
      rows.push_back({s.begin, s.length});
      tokens += s.length;
    }
    c->executor->run(graph::Phase::forward, {tokens, rows, segments});
    std::vector<double> first_column;
    for (std::int64_t t = 0; t < tokens; ++t)
      first_column.push_back(
          c->values(c->program.required("rows"), 1, static_cast<std::size_t>(t * kWidth)).front());
    return first_column;
  }

  Graph graph;
  std::unique_ptr<Compiled> c;
};

TEST(Positions, CountInEverySegmentFromWhereItBegins) {
  for (const char* policy : {"64-true", "bf16-true"}) {
    const Learned learned(policy);
    EXPECT_EQ(learned.run({{0, 3, 0, 0}, {3, 2, 0, 1}}), (std::vector<double>{0, 1, 2, 0, 1}));
    EXPECT_EQ(learned.run({{0, 1, 7, 0}, {1, 2, 4, 1}}), (std::vector<double>{7, 4, 5}));
  }
}

TEST(Positions, AreIntegersInThePlan) {
  const Learned learned("64-true");
  const plan::Step& s = learned.c->program.steps.front();
  ASSERT_EQ(s.op->id, "positions");
  const plan::Buffer& b = learned.c->program.buffer(s.outputs[0]);
  EXPECT_TRUE(b.integer);
  EXPECT_EQ(b.bytes, static_cast<std::size_t>(kTokens) * sizeof(std::int32_t));
}

TEST(Positions, BeyondTheTableAreRefusedBeforeAnyStepRuns) {
  const Learned learned("32-true");
  std::int64_t steps = 0;
  learned.c->executor->after_step = [&](const plan::Step&, const graph::Call&) { ++steps; };
  for (const Segment& s : {Segment{0, 9, 0, 0}, Segment{0, 1, 8, 0}}) {
    try {
      learned.run({s});
      ADD_FAILURE() << "a position beyond the table was taken";
    } catch (const ShapeError& e) {
      const std::string what = e.what();
      EXPECT_NE(what.find("wpe: a sequence of 9 tokens"), std::string::npos) << what;
      EXPECT_NE(what.find("the table has 8"), std::string::npos) << what;
    }
  }
  EXPECT_EQ(steps, 0);
}

}  // namespace
}  // namespace mantissa::runtime::positions_test
