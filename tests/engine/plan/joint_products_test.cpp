// Joint products run at once, so none may write what another reads.
#include "mantissa/engine/plan/joint_products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "engine/model/tiny_families.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/plan/compile.h"

namespace mantissa::plan::joint_products_test {
namespace {

Program decoding(const nlohmann::json& config, const char* policy) {
  const CompileOptions options{16, 16};
  return compile(model::build_decode(model::parse_model_config(config, "tiny"), 16, 2, 16),
                 precision::Policy::parse(policy), options, {});
}

/// The first byte of a buffer's memory and the one after its last; a view's memory is that of its parent.
std::pair<std::size_t, std::size_t> memory_of(const Program& p, BufferId id) {
  const Buffer& b = p.buffer(id);
  if (b.parent != kNoBuffer) return memory_of(p, b.parent);
  return {b.offset, b.offset + b.bytes};
}

bool overlap(const Program& p, BufferId x, BufferId y) {
  if (p.buffer(x).home != p.buffer(y).home) return false;
  const auto [x_begin, x_end] = memory_of(p, x);
  const auto [y_begin, y_end] = memory_of(p, y);
  return x_begin < y_end && y_begin < x_end;
}

void expect_apart(const Program& p, std::size_t begin, std::size_t end) {
  for (std::size_t writer = begin; writer < end; ++writer) {
    for (std::size_t reader = begin; reader < end; ++reader) {
      for (const Operand& o : p.steps[reader].inputs)
        EXPECT_FALSE(overlap(p, p.steps[writer].outputs[0], o.buffer))
            << p.steps[writer].scope << " writes what " << p.steps[reader].scope << " reads";
    }
  }
}

TEST(JointProducts, WriteNothingThatOneOfThemReads) {
  for (const mantissa::testing::TinyFamily& tiny : mantissa::testing::tiny_families()) {
    for (const char* policy : {"32-true", "bf16-mixed"}) {
      SCOPED_TRACE(tiny.name + ", " + policy);
      const Program p = decoding(tiny.config, policy);
      const std::vector<std::size_t> ends = joint_products(p);
      for (std::size_t i = 0; i < ends.size(); i = ends[i]) {
        if (ends[i] > i + 1) expect_apart(p, i, ends[i]);
      }
    }
  }
}

TEST(JointProducts, OfRwkv7AreItsMixturesAndItsLowRankLayers) {
  const Program p = decoding(
      mantissa::testing::tiny_models(mantissa::testing::facts_of("rwkv7")).front().config, "bf16-mixed");
  const std::vector<std::size_t> ends = joint_products(p);
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < ends.size(); i = ends[i]) {
    if (p.steps[i].scope.starts_with("model.layers.1.attn") && p.steps[i].op->op == "matmul")
      sizes.push_back(ends[i] - i);
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{7, 4, 1}));  // r, k, v, w, a, v, g; w, a, v, g; o
}

}  // namespace
}  // namespace mantissa::plan::joint_products_test
