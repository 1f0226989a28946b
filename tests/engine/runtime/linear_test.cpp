// A Linear layer with a weight [in, out] has the bits of one with a weight [out, in], in every format.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/runtime/program.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/engine/graph/autodiff.h"
#include "mantissa/engine/graph/builder.h"

namespace mantissa::runtime::linear_test {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Init;
using graph::ValueId;
using mantissa::testing::Bytes;
using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::options_for;
using mantissa::testing::Segments;

// Blocks of 32 and 16 elements end in parts of blocks.
constexpr std::int64_t kVocabulary = 29, kIn = 72, kOut = 88;

Graph two_layers(std::int64_t tokens, bool transposed) {
  Graph graph;
  Builder b(graph, tokens);
  const ValueId ids = b.token_input("ids"), targets = b.token_input("targets");
  const ValueId seed = b.token_numbers("dlog_prob");
  const auto layer = [&](const std::string& name, ValueId x, std::int64_t in, std::int64_t out) {
    const Shape shape = transposed ? Shape{in, out} : Shape{out, in};
    const ValueId weight = b.parameter(name + ".weight", shape, {Init::Kind::normal, 0.2});
    const ValueId bias = b.parameter(name + ".bias", {out}, {Init::Kind::normal, 0.1});
    return b.matmul(name, x, weight, bias,
                    transposed ? Builder::WeightLayout::in_out : Builder::WeightLayout::out_in);
  };
  ValueId x = b.gather("emb", ids, b.parameter("emb.weight", {kVocabulary, kIn}, {Init::Kind::normal, 1}));
  const ValueId hidden = b.gelu_tanh("act", layer("up", x, kIn, kOut));
  x = b.add("res", x, layer("down", hidden, kOut, kIn));
  const ValueId head = b.parameter("head.weight", {kVocabulary, kIn}, {Init::Kind::normal, 0.3});
  const ValueId log_prob = b.log_prob("head", x, head, targets);
  graph.mark_output("log_prob", log_prob);
  graph::differentiate(graph, std::array{graph::Seed{log_prob, seed}});
  return graph;
}

/// Transposes the `bytes` of a matrix [rows, columns].
Bytes transpose(const Bytes& bytes, std::size_t rows, std::size_t columns) {
  const std::size_t element = bytes.size() / (rows * columns);
  Bytes out(bytes.size());
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j)
      std::memcpy(out.data() + (j * rows + i) * element, bytes.data() + (i * columns + j) * element, element);
  }
  return out;
}

bool is_layer(const plan::Slot& slot) {
  return slot.name == "up.weight" || slot.name == "down.weight";
}

/// Copies the numbers of `plain` to the weights of `other`, whose layers are transposed.
void copy_weights(const Compiled& plain, Compiled& other) {
  for (std::size_t s = 0; s < plain.program.slots.size(); ++s) {
    const plan::Slot& slot = plain.program.slots[s];
    Bytes bytes = plain.bytes(slot.master_buffer, plain.count(s));
    if (is_layer(slot))
      bytes = transpose(bytes, static_cast<std::size_t>(slot.shape.dim(0).size),
                        static_cast<std::size_t>(slot.shape.last()));
    std::memcpy(other.executor->buffer(other.program.slots[s].master_buffer).data, bytes.data(),
                bytes.size());
  }
  other.refresh_copies();
}

/// Two micro-batches, so that gradients accumulate.
void run(const Compiled& c, const Segments& rows, const Data& data) {
  data.feed(c, 0, data.ids.size());
  for (const bool accumulate : {false, true}) {
    c.executor->run(graph::Phase::forward, rows.extent());
    c.executor->run(graph::Phase::backward, rows.extent(), accumulate);
  }
}

class TransposedLinear : public ::testing::TestWithParam<const char*> {};

TEST_P(TransposedLinear, HasTheBitsOfThePlainOne) {
  const Segments rows({37, 9}, 1);
  const Data data(rows.tokens, kVocabulary, 5);
  const auto policy = precision::Policy::parse(GetParam());
  for (const kernels::Context& ctx : {kernels::Context{.simd = kernels::best_simd()},
                                      kernels::Context{.simd = kernels::best_simd(), .threads = 3}}) {
    const Compiled plain(two_layers(rows.tokens, false), policy, options_for(rows), ctx);
    Compiled other(two_layers(rows.tokens, true), policy, options_for(rows), ctx);
    copy_weights(plain, other);
    run(plain, rows, data);
    run(other, rows, data);
    EXPECT_TRUE(plain.bytes(plain.program.required("log_prob"), data.ids.size()) ==
                other.bytes(other.program.required("log_prob"), data.ids.size()));
    const std::vector<Bytes> gradients = other.gradients();
    for (std::size_t s = 0; s < plain.program.slots.size(); ++s) {
      const plan::Slot& slot = plain.program.slots[s];
      Bytes want = plain.bytes(slot.gradient, plain.count(s));
      if (is_layer(slot))
        want = transpose(want, static_cast<std::size_t>(slot.shape.dim(0).size),
                         static_cast<std::size_t>(slot.shape.last()));
      EXPECT_TRUE(gradients[s] == want) << "gradient of " << slot.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Under, TransposedLinear,
    ::testing::Values("64-true", "32-true", "tf32", "bf16-mixed", "16-mixed", "bf16-true", "bf16-matmul-x3",
                      "bf16-matmul-x6", "fp8-hybrid", "fp8-hybrid scaling=current",
                      "transformer-engine-float16", "bf16-mixed compute=mxfp8",
                      "bf16-mixed compute=mxfp8; *: operand=gradient compute=mxfp8-e5m2",
                      "bf16-mixed compute=mxfp4", "bf16-mixed compute=nvfp4 scaling=current",
                      "bf16-mixed accumulate=f16 accumulate_block=32", "bf16-mixed grads=bf16",
                      "fp8-hybrid scaling=current accumulate_order=chain", "32-true accumulate_order=tile",
                      "bf16-mixed compute=nvfp4 scaling=current accumulate=bf16 accumulate_order=tile"),
    [](const auto& info) {
      std::string name = info.param;
      std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
      return name;
    });

/// Returns the output of the layer "up", of `tokens` tokens, under `policy`.
std::vector<double> first_layer(const std::string& policy, const Segments& rows) {
  plan::CompileOptions options = options_for(rows);
  options.keep_values = true;
  const Compiled c(two_layers(rows.tokens, false), precision::Policy::parse(policy), options);
  const Data data(rows.tokens, kVocabulary, 5);
  data.feed(c, 0, data.ids.size());
  c.executor->run(graph::Phase::forward, rows.extent());
  for (const plan::Step& s : c.program.steps) {
    if (s.op->id == "matmul" && s.scope == "up")
      return c.values(s.outputs[0], static_cast<std::size_t>(rows.tokens * kOut));
  }
  return {};
}

TEST(Linear, UnderScalesHasTheSameValuesInBothOrdersButForRounding) {
  const Segments rows({37});
  for (const std::string policy : {"fp8-hybrid scaling=current", "fp8-hybrid scaling=none",
                                   "bf16-mixed compute=fp8-hybrid-f16 scaling=current",
                                   "bf16-mixed compute=nvfp4 scaling=current", "bf16-mixed compute=mxfp4"}) {
    const std::vector<double> tile = first_layer(policy + " accumulate_order=tile", rows);
    const std::vector<double> chain = first_layer(policy + " accumulate_order=chain", rows);
    ASSERT_EQ(tile.size(), static_cast<std::size_t>(rows.tokens * kOut));
    // Inputs are below 5 and weights below 1: five standard deviations. Each of the kIn + 3 roundings of a
    // term is at most half a unit of the sum of magnitudes. The result then rounds to 8 bits.
    const double sum_error = 0x1p-24 * static_cast<double>((kIn + 3) * kIn) * 5;
    for (std::size_t i = 0; i < tile.size(); ++i)
      EXPECT_NEAR(tile[i], chain[i], std::abs(chain[i]) * 0x1p-8 + 2 * sum_error) << policy << " " << i;
  }
}

TEST(Linear, AddsTheMastersBiasAndRoundsOnce) {
  const Segments rows({5});
  const Data data(rows.tokens, kVocabulary, 5);
  plan::CompileOptions options = options_for(rows);
  options.keep_values = true;
  const Compiled c(two_layers(rows.tokens, false), precision::Policy::parse("bf16-mixed"), options);
  plan::BufferId result = plan::kNoBuffer;
  for (const plan::Step& s : c.program.steps) {
    if (s.op->id != "matmul") continue;
    if (s.scope == "up") result = s.outputs[0];
    ASSERT_EQ(s.inputs.size(), 3U);
    const plan::Buffer& bias = c.program.buffer(s.inputs[2].buffer);
    EXPECT_EQ(bias.home, plan::Home::master) << bias.name;
    EXPECT_EQ(bias.type, Scalar::f32);
  }
  ASSERT_NE(result, plan::kNoBuffer);
  // y = bias for x = 0: the master rounded to the output's format.
  const plan::BufferId table = c.program.required("emb.weight");
  for (std::size_t e = 0; e < static_cast<std::size_t>(kVocabulary * kIn); ++e) c.set(table, e, 0);
  data.feed(c, 0, data.ids.size());
  c.executor->run(graph::Phase::forward, rows.extent());
  const std::vector<double> bias = c.values("up.bias", kOut);
  const std::vector<double> y = c.values(result, kOut);
  for (std::size_t i = 0; i < bias.size(); ++i) EXPECT_EQ(y[i], round_to(bias[i], Scalar::bf16)) << i;
}

}  // namespace
}  // namespace mantissa::runtime::linear_test
