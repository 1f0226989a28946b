// Runs whose frozen weights are held in int8 or nf4: they have the bits of runs whose weights are the
// dequantized ones, resume exactly, and need the memory of the blocks.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using testing::has;
using testing::into;
using testing::read_all;
using testing::TemporaryFolder;
using testing::timeless;

/// A model with rows of 64 and 128 elements; `model` is its path or the fields of its config.
std::string config(const std::string& model, int steps, const std::string& policy, const std::string& group) {
  return "[run]\nsteps = " + std::to_string(steps) + "\n[model]\n" + model +
         "\n[data]\nsource = \"kk\"\nsequence_length = 32\nvalidation = 0.05\n[batch]\nglobal_batch_size = "
         "4\n"
         "micro_batch_size = 2\n[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_steps = 2\n[checkpoint]\ninterval "
         "= 3\nkeep = 3\n[precision]\npolicy = \"" +
         policy + "\"\n" + group;
}
const char* const kLlama =
    "hidden_size = 64\nintermediate_size = 128\nnum_hidden_layers = 1\nnum_attention_heads = 2\nvocab_size = "
    "256";
const char* const kGpt2 =
    "model_type = \"gpt2\"\nn_embd = 64\nn_layer = 1\nn_head = 2\nn_positions = 32\nvocab_size = 256";

std::string at(const std::filesystem::path& model) {
  return "path = \"" + model.string() + "\"";
}

std::string frozen(const std::string& format, const std::string& match = "*.{self_attn,mlp,attn}.*") {
  return "[[optimizer.group]]\nmatch = \"" + match + "\"\nfreeze = true\n" +
         (format.empty() ? "" : "quantize = \"" + format + "\"\n");
}

Summary run(const std::filesystem::path& out, const std::string& text,
            std::shared_ptr<const Weights> weights = nullptr) {
  TrainOptions o = into(out);
  o.weights = std::move(weights);
  o.return_weights = true;
  return train(Config::parse(text), o);
}

std::string refused(const std::filesystem::path& out, const std::string& text, bool resume = false) {
  try {
    TrainOptions o = into(out);
    if (resume) o.resume = 3;
    train(Config::parse(text), o);
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

struct Case {
  const char* model;
  const char* format;
  const char* policy;
};

class FrozenBase : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Of, FrozenBase,
                         ::testing::Values(Case{kLlama, "nf4", "32-true"},
                                           Case{kLlama, "nf4-double", "bf16-mixed"},
                                           Case{kLlama, "int8", "16-mixed"}, Case{kLlama, "nf4", "bf16-true"},
                                           Case{kLlama, "int8", "bf16-matmul-x3"},
                                           Case{kGpt2, "nf4-double", "32-true"},
                                           Case{kGpt2, "int8", "bf16-mixed"}),
                         [](const auto& info) {
                           std::string name = std::string(info.param.model == kGpt2 ? "gpt2_" : "llama_") +
                                              info.param.format + "_" + info.param.policy;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST_P(FrozenBase, TrainsWithTheBitsOfItsDequantizedWeights) {
  const TemporaryFolder folder;
  const auto& [model, format, policy] = GetParam();
  const Summary start = run(folder / "start", config(model, 2, "32-true", ""));
  const Summary held = run(folder / "held", config(at(start.model), 4, policy, frozen(format)));
  // The frozen weights that a run writes are the dequantized ones.
  auto weights = std::make_shared<Weights>(*start.weights);
  for (std::size_t i = 0; i < weights->tensors.size(); ++i) {
    const Tensor& after = held.weights->tensors[i];
    if (has(after.name, ".mlp.") || has(after.name, "attn.")) weights->tensors[i] = after;
  }
  const Summary plain = run(folder / "plain", config(at(start.model), 4, policy, frozen("")), weights);
  const std::vector<Tensor>&got = held.weights->tensors, &want = plain.weights->tensors;
  ASSERT_EQ(got.size(), want.size());
  std::size_t changed = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto &a = got[i], &b = want[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_TRUE(a.bytes == b.bytes) << a.name;
    changed += a.bytes != weights->tensors[i].bytes ? 1U : 0U;
  }
  EXPECT_GT(changed, 2U);
  EXPECT_LT(changed, got.size() - 4);
  const std::string metrics = timeless(read_all(folder / "held" / "metrics.jsonl"));
  EXPECT_GT(metrics.size(), 100U);
  EXPECT_EQ(metrics, timeless(read_all(folder / "plain" / "metrics.jsonl")));
}

TEST(FrozenBaseRuns, ResumeWithTheSameBytesFromStatesWithoutTheBase) {
  const TemporaryFolder folder;
  const Summary start = run(folder / "start", config(kLlama, 2, "32-true", ""));
  const std::string whole = config(at(start.model), 6, "bf16-mixed", frozen("nf4-double"));
  const Summary want = run(folder / "whole", whole);
  const Summary other = run(folder / "other", config(kLlama, 3, "32-true", ""));
  std::filesystem::copy(folder / "whole", folder / "resumed", std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(folder / "resumed/state/step-00000006");
  EXPECT_FALSE(
      has(read_all(folder / "resumed/state/step-00000003/state.safetensors"), "master.model.layers.0.mlp"));
  EXPECT_TRUE(has(read_all(folder / "resumed/state/step-00000003/state.safetensors"), "master.lm_head"));

  EXPECT_TRUE(
      has(refused(folder / "resumed", config(at(other.model), 6, "bf16-mixed", frozen("nf4-double")), true),
          "the model or their format has changed"));
  EXPECT_TRUE(has(refused(folder / "resumed", config(at(start.model), 6, "bf16-mixed", frozen("nf4")), true),
                  "the model or their format has changed"));
  EXPECT_TRUE(has(refused(folder / "resumed", config(at(start.model), 6, "bf16-mixed", frozen("")), true),
                  "Fix: resume with the run's own config.toml"));
  TrainOptions o = into(folder / "resumed");
  o.resume = 3;
  o.return_weights = true;
  const Summary got = train(Config::parse(whole), o);
  const std::vector<Tensor>&a = got.weights->tensors, &b = want.weights->tensors;
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].bytes == b[i].bytes) << a[i].name;
}

TEST(FrozenBaseRuns, SayWhatQuantizationLosesAndCountTheBlocks) {
  const TemporaryFolder folder;
  const Summary start = run(folder / "start", config(kLlama, 2, "32-true", ""));
  // Four matrices [64, 64] and three of 128 · 64: a half byte a weight, and 4 bytes for 64.
  constexpr std::size_t kBlocks = 4 * (64 * 64 / 2 + 64 * 4) + 3 * (64 * 128 / 2 + 128 * 4);
  const std::string text = config(at(start.model), 2, "bf16-mixed", frozen("nf4"));
  const auto plan = nlohmann::json::parse(explain(Config::parse(text)).json);
  EXPECT_EQ(plan["memory"]["frozen"], kBlocks);
  EXPECT_EQ(plan["memory"]["masters"], (2 * 256 * 64 + 3 * 64) * 4);
  std::vector<std::string> notes;
  Events events;
  events.on_note = [&](const std::string& note) { notes.push_back(note); };
  train(Config::parse(text), into(folder / "run"), events);
  EXPECT_TRUE(std::ranges::any_of(notes, [](const std::string& note) {
    return has(note, "frozen weights in nf4: 4.500 bits per weight, SNR 2");
  }));
}

TEST(FrozenBaseRuns, RefuseWhatCannotBeQuantized) {
  const TemporaryFolder folder;
  const auto out = folder / "run";
  EXPECT_TRUE(has(refused(out, config(kLlama, 2, "32-true", frozen("nf4"))),
                  "give a model with weights as model.path"));
  EXPECT_TRUE(has(refused(out, config(kLlama, 2, "32-true", frozen("nf4", "lm_head"))),
                  "no weight of a linear layer is held in nf4"));
  EXPECT_TRUE(has(refused(out, config(kLlama, 2, "64-true", frozen("int8"))), "the policy computes in f64"));
  EXPECT_TRUE(
      has(refused(out, config(kLlama, 2, "fp8-hybrid", frozen("int8"))), "multiplies it under scales"));
  const std::string narrow =
      "hidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 1\nnum_attention_heads = 2\nvocab_size "
      "= 256";
  EXPECT_TRUE(has(refused(out, config(narrow, 2, "32-true", frozen("nf4"))),
                  "have 16 elements, and nf4 needs a multiple of 64. Fix: hold it in int8"));
  const Summary start = run(folder / "start", config(narrow, 2, "32-true", ""));
  EXPECT_EQ(refused(out, config(at(start.model), 2, "bf16-mixed", frozen("int8"))), "");
}

}  // namespace
}  // namespace mantissa::api
