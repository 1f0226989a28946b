// A program that rounds its weights for serving computes with the values of a program whose masters are these
// values, forward and backward, whatever formats follow.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "engine/model/tiny_families.h"
#include "engine/runtime/program.h"
#include "kernels/row_testing.h"
#include "mantissa/engine/runtime/observer.h"
#include "mantissa/kernels/round_weights.h"

namespace mantissa::runtime::served_weights_test {
namespace {

using mantissa::testing::Bytes;
using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::Segments;

constexpr std::int64_t kVocabulary = 32, kLength = 12;

model::ModelConfig wide(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json json = {{"hidden_size", 64}, {"intermediate_size", 128}};
  json.update(more);
  return mantissa::testing::tiny_llama(false, kVocabulary, json);
}

model::ModelConfig gpt2() {
  return model::parse_model_config({{"model_type", "gpt2"},
                                    {"vocab_size", kVocabulary},
                                    {"n_embd", 64},
                                    {"n_layer", 2},
                                    {"n_head", 4},
                                    {"n_positions", 64}},
                                   "gpt2");
}

model::ModelConfig experts() {
  return model::parse_model_config({{"model_type", "olmoe"},
                                    {"vocab_size", kVocabulary},
                                    {"hidden_size", 64},
                                    {"intermediate_size", 64},
                                    {"num_hidden_layers", 1},
                                    {"num_attention_heads", 4},
                                    {"num_key_value_heads", 4},
                                    {"num_experts", 4},
                                    {"num_experts_per_tok", 2}},
                                   "olmoe");
}

/// Returns how each weight is rounded, by name.
std::map<std::string, kernels::WeightRounding> served_in(const plan::Program& p) {
  std::map<std::string, kernels::WeightRounding> served;
  for (const plan::Buffer& b : p.buffers) {
    if (b.home == plan::Home::copy && b.served.format != WeightFormat::none)
      served[p.slots[static_cast<std::size_t>(b.slot)].name] = b.served;
  }
  return served;
}

/// Returns the gradients and the log-probabilities of a batch.
std::vector<Bytes> run(Compiled& c) {
  const Segments rows({kLength, kLength});
  const Data data(2 * kLength, kVocabulary, 5);
  data.feed(c, 0, 2 * kLength);
  c.executor->run(graph::Phase::forward, rows.extent());
  std::vector<Bytes> out = {c.bytes(c.program.required("log_prob"), 2 * kLength)};
  c.executor->run(graph::Phase::backward, rows.extent(), false);
  c.executor->run(graph::Phase::finish, rows.extent());
  for (Bytes& gradient : c.gradients()) out.push_back(std::move(gradient));
  return out;
}

graph::Graph graph_of(const model::ModelConfig& config) {
  return model::build_log_prob(config, 2 * kLength, kLength, true);
}

/// Expects that `policy` with `weights` computes as `policy` does with rounded masters.
void expect_rounded_masters(const model::ModelConfig& config, const std::string& policy, WeightFormat format,
                            const kernels::Context& ctx = {.simd = kernels::best_simd()}) {
  SCOPED_TRACE(policy + " weights=" + std::string(name(format)));
  const plan::CompileOptions options = {kLength, kLength};
  Compiled served(graph_of(config),
                  precision::Policy::parse(policy + " weights=" + std::string(name(format))), options, ctx);
  Compiled plain(graph_of(config), precision::Policy::parse(policy), options);
  served.randomize_vectors();
  plain.randomize_vectors();
  const auto how = served_in(served.program);
  EXPECT_GT(how.size(), 2U);
  std::size_t changed = 0;
  for (std::size_t s = 0; s < plain.program.slots.size(); ++s) {
    const plan::Slot& slot = plain.program.slots[s];
    const Matrix master = plain.weights.master(s);
    ASSERT_EQ(plain.bytes(slot.master_buffer, plain.count(s)),
              served.bytes(served.program.slots[s].master_buffer, plain.count(s)))
        << "masters are not rounded";
    const auto found = how.find(slot.name);
    if (found == how.end()) continue;
    const Bytes before = plain.bytes(slot.master_buffer, plain.count(s));
    kernels::round_weights(plain.ctx, slot.shape.leading(), slot.shape.last(), master, master, found->second);
    changed += before == plain.bytes(slot.master_buffer, plain.count(s)) ? 0 : 1;
  }
  EXPECT_EQ(changed, how.size());
  plain.refresh_copies();
  const std::vector<Bytes> want = run(plain), got = run(served);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(got[i] == want[i]) << "result " << i;
}

TEST(ServedWeights, AreTheFactorsOfAllProductsInEveryFormat) {
  for (const WeightFormat format : std::span(kWeightFormats).subspan(1))
    expect_rounded_masters(wide(), "bf16-mixed", format);
}

TEST(ServedWeights, AreTheFactorsOfAllProductsUnderEveryPolicy) {
  for (const char* policy :
       {"32-true", "16-mixed", "tf32", "32-true compute=bf16x3", "bf16-mixed residual=bf16",
        "fp8-hybrid scaling=current", "bf16-mixed compute=mxfp8", "bf16-mixed compute=nvfp4",
        "bf16-mixed flush_subnormals=true saturate=true"})
    expect_rounded_masters(wide(), policy, WeightFormat::q4_0);
}

TEST(ServedWeights, OfTiedEmbeddingsServeBothUses) {
  expect_rounded_masters(wide({{"tie_word_embeddings", true}}), "bf16-mixed", WeightFormat::q4_0);
}

TEST(ServedWeights, OfTransposedLayersAndExpertsHaveBlocksAlongTheirInputs) {
  for (const model::ModelConfig& config : {gpt2(), experts()}) {
    expect_rounded_masters(config, "bf16-mixed", WeightFormat::q4_0);
    expect_rounded_masters(config, "32-true", WeightFormat::nf4);
  }
}

TEST(ServedWeights, HaveTheSameBitsOnEveryInstructionSetAndThreadCount) {
  for (const kernels::Context& ctx : kernels::testing::contexts()) {
    SCOPED_TRACE(kernels::testing::describe(ctx));
    expect_rounded_masters(wide(), "32-true", WeightFormat::q4_0, ctx);
    expect_rounded_masters(wide(), "bf16-mixed", WeightFormat::nvfp4, ctx);
    expect_rounded_masters(gpt2(), "bf16-mixed", WeightFormat::int4_32, ctx);
  }
}

TEST(ServedWeights, AreObservedWithTheirErrors) {
  const plan::CompileOptions options = {kLength, kLength};
  Compiled c(graph_of(wide()), precision::Policy::parse("32-true weights=q4_0"), options);
  Observer observer(*c.executor, [](const plan::Step&) { return true; });
  run(c);
  std::size_t seen = 0;
  for (const ObservedValue& v : observer.take()) {
    if (v.kind != Observed::weight) continue;
    ++seen;
    EXPECT_EQ(format_name(v), "q4_0");
    // 32 normal values and a step of an eighth of the largest: a relative error near 0.09.
    EXPECT_NEAR(v.counts.relative_error(), 0.09, 0.03) << v.step->scope;
  }
  EXPECT_EQ(seen, 16U);
}

}  // namespace
}  // namespace mantissa::runtime::served_weights_test
