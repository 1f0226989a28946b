// Adapters in PEFT's layout.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/disk/temporary.h"
#include "engine/model/tiny_families.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/config.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/peft/config.h"
#include "mantissa/files/peft/reader.h"
#include "mantissa/files/peft/targets.h"
#include "mantissa/files/peft/writer.h"

namespace mantissa::peft {
namespace {

using nlohmann::json;

model::ModelConfig family(const std::string& name) {
  for (const mantissa::testing::TinyFamily& tiny : mantissa::testing::tiny_families()) {
    if (tiny.name == name) return model::parse_model_config(tiny.config, name);
  }
  ADD_FAILURE() << name;
  return {};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Peft : public test::TemporaryFolder {
 protected:
  /// A tensor of increasing numbers.
  void add(const std::string& name, std::vector<std::int64_t> shape, io::Dtype dtype = io::Dtype::f32) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    std::vector<std::byte> bytes(values.size() * io::bytes_of(dtype));
    std::memcpy(bytes.data(), values.data(), std::min(bytes.size(), values.size() * sizeof(float)));
    contents_.push_back(std::move(bytes));
    tensors_.push_back({"base_model.model." + name, dtype, std::move(shape), {}, {}});
  }
  void write(const json& more) {
    json config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 6}, {"target_modules", {"q_proj"}}};
    if (!more.is_null()) config.update(more);
    test::put(folder / io::kAdapterConfig, config.dump());
    for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].bytes = contents_[i];
    io::write_safetensors(folder / kWeightsFile, tensors_);
  }
  void add_layer(const std::string& scope, std::int64_t in, std::int64_t out, std::int64_t rank = 2) {
    add(scope + ".lora_A.weight", {rank, in});
    add(scope + ".lora_B.weight", {out, rank});
  }
  PeftAdapter read(const std::string& name = "mistral") { return read_adapter(folder, family(name)); }
  template <class E>
  std::string refusal(const std::string& name = "mistral") {
    return test::message_of<E>([&] { read(name); });
  }

  std::vector<std::vector<std::byte>> contents_;
  std::vector<io::TensorToWrite> tensors_;
};

constexpr const char* kQ = "model.layers.0.self_attn.q_proj";
constexpr const char* kV = "model.layers.1.self_attn.v_proj";

TEST_F(Peft, TheTensorsDetermineLayersAndRanks) {
  add_layer(kQ, 16, 16, 3);
  add_layer(kV, 16, 4, 2);
  write({{"rank_pattern", {{kQ, 3}}}, {"alpha_pattern", {{"self_attn.v_proj", 5.5}}}, {"lora_dropout", 0.1}});
  const PeftAdapter read_back = read();
  ASSERT_EQ(read_back.adapter->layers.size(), 2U);
  EXPECT_EQ(*read_back.adapter->find(kQ), (model::AdapterLayer{3, 6}));
  EXPECT_EQ(*read_back.adapter->find(kV), (model::AdapterLayer{2, 5.5}));
  EXPECT_DOUBLE_EQ(read_back.adapter->scale(*read_back.adapter->find(kQ)), 2);
  ASSERT_EQ(read_back.notes.size(), 1U);
  EXPECT_TRUE(has(read_back.notes[0], "lora_dropout is read as 0"));
  EXPECT_EQ(read_back.tensors->tensors().size(), 4U);
  EXPECT_EQ(read_back.tensors->tensors()[0].name, std::string(kQ) + ".lora_A.weight");
  std::vector<std::byte> bytes(3 * 16 * 4);
  read_back.tensors->read(read_back.tensors->tensors()[0], bytes, 0);
  EXPECT_EQ(bytes, contents_[0]);
}

TEST_F(Peft, ModulesOfTheBareTrunkAndGpt2AreFound) {
  add_layer("layers.0.self_attn.q_proj", 16, 16);
  write({});
  EXPECT_NE(read().adapter->find(kQ), nullptr);
  tensors_.clear();
  contents_.clear();
  add_layer("transformer.h.1.attn.c_attn", 16, 48);
  write({{"fan_in_fan_out", true}});
  EXPECT_NE(read("gpt2").adapter->find("transformer.h.1.attn.c_attn"), nullptr);
}

TEST_F(Peft, DoraHasMagnitudesUnderEitherName) {
  for (const std::string end : {"", ".weight"}) {
    tensors_.clear();
    contents_.clear();
    add_layer(kQ, 16, 16);
    add(std::string(kQ) + ".lora_magnitude_vector" + end, {16});
    write({{"use_dora", true}, {"use_rslora", true}});
    const PeftAdapter read_back = read();
    EXPECT_TRUE(read_back.adapter->dora);
    EXPECT_TRUE(read_back.adapter->owns(std::string(kQ) + ".lora_magnitude_vector.weight"));
    EXPECT_DOUBLE_EQ(read_back.adapter->scale({4, 6}), 3);
    write({});
    EXPECT_TRUE(has(refusal<FileError>(), "use_dora in adapter_config.json must agree"));
  }
}

TEST_F(Peft, UnsupportedSettingsAreRefusedByName) {
  add_layer(kQ, 16, 16);
  const std::pair<json, const char*> cases[] = {
      {{{"peft_type", "IA3"}}, "peft_type is \"IA3\""},
      {{{"bias", "all"}}, "bias is \"all\""},
      {{{"modules_to_save", {"lm_head"}}}, "modules_to_save is"},
      {{{"layer_replication", {{0, 2}, {1, 2}}}}, "layer_replication is"},
      {{{"lora_bias", true}}, "lora_bias is"},
      {{{"trainable_token_indices", {1}}}, "trainable_token_indices is"},
      {{{"init_lora_weights", "pissa_niter_4"}}, "which changes the base's weights"},
      {{{"alpha_pattern", {{"[ab]+", 3}}}}, "regular expression \"[ab]+\""},
      {{{"alpha_pattern", {{"q_proj", "x"}}}}, "must be a number"},
      {{{"lora_alpha", "x"}}, "lora_alpha is"},
      {{{"use_dora", 1}}, "must be true or false"},
  };
  for (const auto& [setting, message] : cases) {
    write(setting);
    EXPECT_TRUE(has(refusal<ConfigError>(), message)) << setting << ": " << refusal<ConfigError>();
  }
  write({{"modules_to_save", nullptr},
         {"layer_replication", json::array()},
         {"lora_bias", false},
         {"init_lora_weights", "gaussian"},
         {"an_unknown_key", 1}});
  EXPECT_NO_THROW(read());
}

TEST_F(Peft, TensorsThatDoNotFitAreErrors) {
  EXPECT_TRUE(has(refusal<FileError>(), "is not an adapter"));
  write({});
  EXPECT_TRUE(has(refusal<FileError>(), "contains no adapter"));
  const auto with = [&](const auto& fill) {
    tensors_.clear();
    contents_.clear();
    fill();
    write({});
  };
  with([&] { add("model.embed_tokens.lora_embedding_A", {2, 29}); });
  EXPECT_TRUE(has(refusal<FileError>(), "lora_embedding_A\" is not supported"));
  with([&] { add_layer("lm_head", 16, 29); });
  EXPECT_TRUE(has(refusal<FileError>(), "is not a linear layer of this mistral model"));
  with([&] { add_layer("model.layers.0.self_attn.q_prj", 16, 16); });
  EXPECT_TRUE(has(refusal<FileError>(), "did you mean \"model.layers.0.self_attn.q_proj\"?"));
  with([&] { add(std::string(kQ) + ".lora_A.weight", {2, 16}); });
  EXPECT_TRUE(has(refusal<FileError>(), "has no lora_B"));
  with([&] { add_layer(kQ, 12, 16); });
  EXPECT_TRUE(has(refusal<ShapeError>(), "has 16 inputs"));
  with([&] { add_layer(kQ, 16, 12); });
  EXPECT_TRUE(has(refusal<ShapeError>(), "has 16 outputs and its lora_A has rank 2"));
  with([&] { add_layer(kV, 16, 4, 5); });
  EXPECT_TRUE(has(refusal<ConfigError>(), "rank 5 is too large for"));
  with([&] {
    add_layer(kQ, 16, 16);
    add("layers.0.self_attn.q_proj.lora_A.weight", {2, 16});
  });
  EXPECT_TRUE(has(refusal<FileError>(), "is there twice"));
  with([&] {
    add(std::string(kQ) + ".lora_A.weight", {2, 16}, io::Dtype::i32);
    add(std::string(kQ) + ".lora_B.weight", {16, 2});
  });
  EXPECT_TRUE(has(refusal<FileError>(), "must be a floating-point tensor"));
}

TEST_F(Peft, AWrittenAdapterReadsBack) {
  model::ModelConfig config = family("mistral");
  auto adapter = std::make_shared<model::Adapter>();
  adapter->dora = true;
  adapter->layers = {{kQ, {2, 6}}, {kV, {3, 7.5}}};
  config.adapter = adapter;
  std::vector<float> zeros(64);
  const auto bytes = [&](std::size_t n) { return std::as_bytes(std::span(zeros).first(n)); };
  const std::string q = kQ, v = kV;
  const std::vector<io::TensorToWrite> tensors = {
      {q + ".lora_A.weight", io::Dtype::f32, {2, 16}, bytes(32), {}},
      {q + ".lora_B.weight", io::Dtype::f32, {16, 2}, bytes(32), {}},
      {q + ".lora_magnitude_vector.weight", io::Dtype::f32, {16}, bytes(16), {}},
      {v + ".lora_A.weight", io::Dtype::f32, {3, 16}, bytes(48), {}},
      {v + ".lora_B.weight", io::Dtype::f32, {4, 3}, bytes(12), {}},
      {v + ".lora_magnitude_vector.weight", io::Dtype::f32, {4}, bytes(4), {}}};
  write_adapter(folder / "a", {.config = config, .base = "b", .tensors = tensors});
  const io::SafetensorsReader file(folder / "a" / kWeightsFile);
  EXPECT_NE(file.find("base_model.model." + q + ".lora_magnitude_vector"), nullptr) << "PEFT's name";
  const PeftAdapter back = read_adapter(folder / "a", family("mistral"));
  EXPECT_EQ(back.adapter->layers, adapter->layers);
  EXPECT_TRUE(back.adapter->dora);
  EXPECT_FALSE(back.adapter->rslora);
  EXPECT_EQ(back.base, "b");
}

TEST(PeftTargets, SelectExactlyTheTrainedModules) {
  const std::vector<model::LinearLayer> all = model::linear_layers(family("gpt2"));
  const auto names = [&](const std::vector<std::string>& wanted) { return target_modules(wanted, all); };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({"transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_attn"}), Names{"c_attn"});
  // attn.c_proj is not wanted.
  EXPECT_EQ(names({"transformer.h.0.mlp.c_proj", "transformer.h.1.mlp.c_proj"}), Names{"mlp.c_proj"});
  EXPECT_EQ(names({"transformer.h.1.mlp.c_proj"}), Names{"1.mlp.c_proj"});
}

TEST(PeftTargets, NameNoModuleThatContainsLayers) {
  const std::vector<model::LinearLayer> all = model::linear_layers(family("rwkv7"));
  std::vector<std::string> down, up;
  for (const model::LinearLayer& layer : all) {
    if (layer.scope.ends_with(".lora.0")) down.push_back(layer.scope);
    if (layer.scope.ends_with("w_lora.lora.2")) up.push_back(layer.scope);
  }
  ASSERT_GE(down.size(), 6U);
  // "0" is model.layers.0 too, of which peft cannot make a low-rank layer.
  EXPECT_EQ(target_modules(down, all), std::vector<std::string>{"lora.0"});
  EXPECT_EQ(target_modules(up, all), std::vector<std::string>{"w_lora.lora.2"});
  std::vector<std::string> every_up;
  for (const model::LinearLayer& layer : all) {
    if (layer.scope.ends_with(".lora.2")) every_up.push_back(layer.scope);
  }
  EXPECT_EQ(target_modules(every_up, all), std::vector<std::string>{"lora.2"}) << "not \"2\"";
}

TEST(PeftTargets, PatternsSelectLinearLayersOfEveryFamily) {
  for (const mantissa::testing::TinyFamily& tiny : mantissa::testing::tiny_families()) {
    const model::ModelConfig config = model::parse_model_config(tiny.config, tiny.name);
    const std::vector<std::string> every = {"*"};
    const Layers layers = select_layers(config, every, {2, 4}, "here");
    EXPECT_EQ(layers.size(), model::linear_layers(config).size() + model::expert_layers(config).size())
        << tiny.name;
    EXPECT_GE(layers.size(), 8U) << tiny.name;
    for (const auto& [scope, layer] : layers) EXPECT_FALSE(has(scope, "lm_head")) << scope;
  }
}

TEST(PeftTargets, SelectAllExpertsOfALayerByEitherName) {
  const model::ModelConfig config = family("mixtral");
  const auto selected = [&](const std::string& target) {
    return select_layers(config, std::vector{target}, {2, 4}, "adapter.target");
  };
  for (const std::string target : {"*.w1", "*.experts.w1", "*.experts.*.w1"}) {
    const Layers layers = selected(target);
    EXPECT_EQ(layers.size(), static_cast<std::size_t>(config.num_hidden_layers)) << target;
    EXPECT_TRUE(layers.contains("model.layers.0.block_sparse_moe.experts.w1")) << target;
  }
  const std::string message =
      test::message_of<ConfigError>([&] { selected("model.layers.0.block_sparse_moe.experts.3.w2"); });
  EXPECT_TRUE(has(message, "selects one expert")) << message;
  EXPECT_TRUE(has(message, "Fix: \"model.layers.0.block_sparse_moe.experts.w2\"")) << message;
}

TEST(PeftTargets, OfExpertsAreOneModuleForEach) {
  const model::ModelConfig config = family("mixtral");
  const std::vector<model::LinearLayer> all = modules_of(config);
  EXPECT_EQ(all.size(), static_cast<std::size_t>(config.num_hidden_layers) * (5 + 3 * 4));  // 4 experts
  const Layers layers =
      modules_of({{"model.layers.1.block_sparse_moe.experts.w1", {2, 4}}, {kQ, {2, 4}}}, config);
  EXPECT_EQ(layers.size(), 5U);
  EXPECT_TRUE(layers.contains("model.layers.1.block_sparse_moe.experts.3.w1"));
  std::vector<std::string> of_w1;
  for (const model::LinearLayer& layer : all) {
    if (layer.scope.ends_with(".w1")) of_w1.push_back(layer.scope);
  }
  EXPECT_EQ(target_modules(of_w1, all), std::vector<std::string>{"w1"});
}

TEST_F(Peft, AdaptersOfExpertsAreOneOfAllOfALayer) {
  const auto fill = [&](int experts, std::int64_t rank_of_last) {
    tensors_.clear();
    contents_.clear();
    for (int e = 0; e < experts; ++e)
      add_layer("model.layers.0.block_sparse_moe.experts." + std::to_string(e) + ".w1", 16, 20,
                e == 3 ? rank_of_last : 2);
    write({{"target_modules", {"w1"}}});
  };
  fill(4, 2);
  const PeftAdapter adapter = read("mixtral");
  ASSERT_EQ(adapter.adapter->layers.size(), 1U);
  EXPECT_EQ(adapter.adapter->layers.begin()->first, "model.layers.0.block_sparse_moe.experts.w1");
  EXPECT_EQ(adapter.adapter->layers.begin()->second, (model::AdapterLayer{2, 6}));
  EXPECT_EQ(adapter.tensors->tensors().size(), 8U);
  for (const auto& [experts, rank] : {std::pair(3, 2), {4, 3}}) {
    fill(experts, rank);
    EXPECT_TRUE(has(refusal<FileError>("mixtral"), "experts.3.w1 has another adapter than other experts"));
  }
  fill(4, 2);
  for (int e = 0; e < 4; ++e)
    add("model.layers.0.block_sparse_moe.experts." + std::to_string(e) + ".w1.lora_magnitude_vector", {20});
  write({{"use_dora", true}});
  EXPECT_TRUE(has(refusal<FileError>("mixtral"), "has DoRA, which is not supported for experts"));
}

TEST(PeftPatterns, RegularExpressionsOfNamesAreGlobs) {
  EXPECT_EQ(glob_of_regex("q_proj"), "q_proj");
  EXPECT_EQ(glob_of_regex(".*\\.(q|v)_proj$"), "*.{q,v}_proj");
  EXPECT_EQ(glob_of_regex("^model.layers"), "^model?layers");
  for (const char* other : {"", "a+", "[ab]", "a\\d", "((a))", "(a", "a$b", "(?:a)"})
    EXPECT_EQ(glob_of_regex(other), "") << other;
  PeftConfig config;
  config.alpha = 1;
  config.alpha_pattern = {{"layers?0.*", 2}, {"v_proj", 3}, {"^k_proj", 4}};
  EXPECT_EQ(config.alpha_of("model.layers.0.mlp.v_proj"), 2) << "the first pattern";
  EXPECT_EQ(config.alpha_of("model.layers.1.v_proj"), 3);
  EXPECT_EQ(config.alpha_of("model.layers.1.xv_proj"), 1) << "whole names";
  EXPECT_EQ(config.alpha_of("model.k_proj"), 1) << "from the first character";
}

}  // namespace
}  // namespace mantissa::peft
