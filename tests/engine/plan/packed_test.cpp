// Which buffers a plan keeps in packed blocks, and that it counts their bytes as such.
#include <gtest/gtest.h>

#include <string>

#include "engine/runtime/program.h"

namespace mantissa::plan::packed_test {
namespace {

Program plan_for(BlockFormat f) {
  const auto policy = precision::Policy::parse("bf16-mixed compute=" + std::string(traits(f).name));
  return compile(model::build_log_prob(mantissa::testing::tiny_llama(false), 16, 16, true), policy, {16, 16},
                 {});
}

class PackedBuffers : public ::testing::TestWithParam<BlockFormat> {
 protected:
  const Program program = plan_for(GetParam());
};

TEST_P(PackedBuffers, AreAllInBlocksExceptActivationsAlongTokens) {
  int packed_copies[2] = {}, packed_activations = 0, expanded = 0;
  for (const Buffer& b : program.buffers) {
    if (!b.scaled) {
      EXPECT_FALSE(b.layout().blocks) << b.name;
      continue;
    }
    const bool along = b.scaled->along_rows;
    if (b.home == Home::activation && along) {
      EXPECT_EQ(b.layout(), (Layout{.type = Scalar::bf16})) << b.name;
      ++expanded;
      continue;
    }
    EXPECT_EQ(b.layout().blocks, (Blocks{GetParam(), along})) << b.name;
    ++(b.home == Home::copy ? packed_copies[along ? 1 : 0] : packed_activations);
  }
  EXPECT_GT(packed_copies[0], 0);
  EXPECT_EQ(packed_copies[0], packed_copies[1]) << "the forward pass reads one, the gradient of x the other";
  EXPECT_GT(packed_activations, 0);
  EXPECT_GT(expanded, 0);
}

TEST_P(PackedBuffers, TakeTheBytesOfTheirLayout) {
  std::size_t copies = 0;
  for (const Buffer& b : program.buffers) {
    EXPECT_EQ(b.bytes, b.layout().bytes(b.shape)) << b.name;
    if (b.home == Home::copy) copies += aligned(b.bytes);
    if (b.home != Home::copy || !b.scaled) continue;
    // Each element has its bits and at most two scales' share of a byte, and scales start at a cache line.
    const BlockTraits t = traits(GetParam());
    const auto bits = static_cast<double>(b.shape.count()) * (t.element_bits + 2 * 8.0 / t.block);
    EXPECT_LE(static_cast<double>(b.bytes), bits / 8 + kAlignment) << b.name << " " << b.shape.str();
  }
  EXPECT_EQ(program.memory.copies, copies);
}

TEST_P(PackedBuffers, AreReadAtTheirSize) {
  for (const Step& s : program.steps) {
    double bytes = 0;
    for (const Operand& o : s.inputs) bytes += static_cast<double>(program.buffer(o.buffer).bytes);
    for (const BufferId o : s.outputs) bytes += static_cast<double>(program.buffer(o).bytes);
    if (s.addend != kNoBuffer) bytes += static_cast<double>(program.buffer(s.addend).bytes);
    EXPECT_EQ(s.bytes, bytes) << s.scope << " " << s.op->id;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, PackedBuffers, ::testing::ValuesIn(kBlockFormats), [](const auto& info) {
  std::string name(traits(info.param).name);
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace mantissa::plan::packed_test
