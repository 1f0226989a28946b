// Adapters on a base in int8 or nf4 (QLoRA): they have the bits of adapters on the dequantized base.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/api/tiny.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::api {
namespace {

using testing::has;
using testing::into;
using testing::read_all;
using testing::TemporaryFolder;
using testing::timeless;

constexpr const char* kLlamaBase =
    "hidden_size = 64\nintermediate_size = 128\nnum_hidden_layers = 1\nnum_attention_heads = 2\nvocab_size = "
    "256";
constexpr const char* kGpt2Base =
    "model_type = \"gpt2\"\nn_embd = 64\nn_layer = 1\nn_head = 2\nn_positions = 32\nvocab_size = 256";

std::string base_config(const std::string& model, int steps, const std::string& policy,
                        const std::string& more) {
  return "[run]\nsteps = " + std::to_string(steps) + "\n[model]\n" + model +
         "\n[data]\nsource = \"kk\"\ntokenizer = \"byte\"\nsequence_length = 32\nvalidation = "
         "0.05\n[batch]\nglobal_batch_size = 4\nmicro_batch_size = 2\n[optimizer]\nlr = "
         "1e-2\n[schedule]\nwarmup_steps = 1\n[checkpoint]\ninterval = 2\nkeep = 3\n[precision]\npolicy = "
         "\"" +
         policy + "\"\n" + more;
}

std::string adapter_on(const std::string& base, bool dora) {
  return "[adapter]\nkind = \"lora\"\nrank = 4\ntarget = \"*\"\nbase = \"" + base + "\"\n" +
         (dora ? "dora = true\n" : "");
}

/// Trains on the model at `path`, or on `weights` with its config.
Summary adapt(const std::filesystem::path& out, const std::filesystem::path& path, const std::string& policy,
              const std::string& adapter, std::shared_ptr<const Weights> weights = nullptr) {
  TrainOptions o = into(out);
  o.weights = std::move(weights);
  return train(Config::parse(base_config("path = \"" + path.string() + "\"", 4, policy, adapter)), o);
}

/// The tensors of the adapter that a run wrote, one after another.
std::vector<std::byte> adapter_of(const std::filesystem::path& run) {
  const io::SafetensorsReader file(run / "adapter/adapter_model.safetensors");
  std::vector<std::byte> all;
  for (const io::TensorInfo& t : file.tensors()) {
    std::vector<std::byte> bytes(t.end - t.begin);
    file.read(t, bytes);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

struct BaseCase {
  const char* model;
  const char* format;
  const char* policy;
  bool dora;
};

class QuantizedBase : public ::testing::TestWithParam<BaseCase> {};

INSTANTIATE_TEST_SUITE_P(Of, QuantizedBase,
                         ::testing::Values(BaseCase{kLlamaBase, "nf4", "32-true", false},
                                           BaseCase{kLlamaBase, "nf4-double", "bf16-mixed", true},
                                           BaseCase{kLlamaBase, "int8", "16-mixed", false},
                                           BaseCase{kLlamaBase, "nf4", "bf16-true", true},
                                           BaseCase{kGpt2Base, "nf4-double", "32-true", true},
                                           BaseCase{kGpt2Base, "int8", "bf16-mixed", false}),
                         [](const auto& info) {
                           std::string name =
                               std::string(info.param.model == kGpt2Base ? "gpt2_" : "llama_") +
                               info.param.format + "_" + info.param.policy + (info.param.dora ? "_dora" : "");
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST_P(QuantizedBase, TrainsAnAdapterWithTheBitsOfTheDequantizedBase) {
  const TemporaryFolder folder;
  const auto& [model, format, policy, dora] = GetParam();
  TrainOptions o = into(folder / "start");
  o.return_weights = true;
  const Summary start = train(Config::parse(base_config(model, 2, "32-true", "")), o);
  // The frozen weights that a run writes are the dequantized ones.
  o = into(folder / "frozen");
  o.return_weights = true;
  const Summary frozen =
      train(Config::parse(base_config("path = \"" + start.model.string() + "\"", 1, "32-true",
                                      "[[optimizer.group]]\nmatch = \"*.{self_attn,mlp,attn}.*\"\nfreeze = "
                                      "true\nquantize = \"" +
                                          std::string(format) + "\"\n")),
            o);
  auto weights = std::make_shared<Weights>(*start.weights);
  for (std::size_t i = 0; i < weights->tensors.size(); ++i) {
    const Tensor& after = frozen.weights->tensors[i];
    if (has(after.name, ".mlp.") || has(after.name, "attn.")) weights->tensors[i] = after;
  }
  adapt(folder / "held", start.model, policy, adapter_on(format, dora));
  adapt(folder / "plain", start.model, policy, adapter_on("params", dora), weights);
  EXPECT_EQ(adapter_of(folder / "held"), adapter_of(folder / "plain"));
  const std::string metrics = timeless(read_all(folder / "held" / "metrics.jsonl"));
  EXPECT_GT(metrics.size(), 100U);
  EXPECT_EQ(metrics, timeless(read_all(folder / "plain" / "metrics.jsonl")));
  adapt(folder / "original", start.model, policy, adapter_on("params", dora));
  EXPECT_NE(adapter_of(folder / "held"), adapter_of(folder / "original"));
}

TEST(QuantizedBaseRuns, ResumeWithTheSameBytesAndRefuseAnotherBase) {
  for (const std::string format : {"nf4-double", "params"}) {
    const TemporaryFolder folder;
    TrainOptions o = into(folder / "start");
    const Summary start = train(Config::parse(base_config(kLlamaBase, 2, "32-true", "")), o);
    const Summary other =
        train(Config::parse(base_config(kLlamaBase, 3, "32-true", "")), into(folder / "other"));
    adapt(folder / "run", start.model, "bf16-mixed", adapter_on(format, false));
    const std::vector<std::byte> whole = adapter_of(folder / "run");
    const auto resumed = [&](const Summary& model, const std::string& base) -> std::string {
      o = into(folder / "run");
      o.resume = 2;
      try {
        train(Config::parse(base_config("path = \"" + model.model.string() + "\"", 4, "bf16-mixed",
                                        adapter_on(base, false))),
              o);
      } catch (const Error& e) {
        return e.what();
      }
      return {};
    };
    EXPECT_TRUE(has(resumed(other, format),
                    format == "params" ? "the model has changed" : "the model or their format has changed"));
    EXPECT_TRUE(has(resumed(start, "nf4"), "adapter.base"));
    EXPECT_EQ(resumed(start, format), "");
    EXPECT_EQ(adapter_of(folder / "run"), whole);
  }
}

TEST(QuantizedBaseRuns, HoldLinearLayersInTheirBlocksAlone) {
  const TemporaryFolder folder;
  const Summary start =
      train(Config::parse(base_config(kLlamaBase, 2, "32-true", "")), into(folder / "start"));
  // Four matrices [64, 64] and three of 128 · 64: a half byte a weight, and 4 bytes for 64.
  constexpr std::size_t kBlocks = 4 * (64 * 64 / 2 + 64 * 4) + 3 * (64 * 128 / 2 + 128 * 4);
  const auto config = [&](const std::string& adapter) {
    return Config::parse(base_config("path = \"" + start.model.string() + "\"", 2, "bf16-mixed", adapter));
  };
  for (const bool dora : {false, true}) {
    const Plan plan = explain(config(adapter_on("nf4", dora)));
    const auto json = nlohmann::json::parse(plan.json);
    // And the embedding in f32, the head's copy in bf16, and three gains.
    EXPECT_EQ(json["memory"]["frozen"], kBlocks + 256 * 64 * 4 + 256 * 64 * 2 + 3 * 64 * 4) << dora;
    EXPECT_EQ(json["adapter"]["base"], "nf4");
    EXPECT_TRUE(has(plan.text, "linear layers in nf4)")) << plan.text;
  }
  std::vector<std::string> notes;
  Events events;
  events.on_note = [&](const std::string& note) { notes.push_back(note); };
  train(config(adapter_on("nf4", false)), into(folder / "run"), events);
  EXPECT_TRUE(std::ranges::any_of(notes, [](const std::string& note) {
    return has(note, "frozen weights in nf4: 4.500 bits per weight, SNR 2");
  }));
}

}  // namespace
}  // namespace mantissa::api
