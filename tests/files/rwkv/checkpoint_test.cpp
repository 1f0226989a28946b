// The weights of RWKV-LM as those of a Hugging Face model.
#include <nlohmann/json.hpp>

#include "files/rwkv/rwkv_testing.h"
#include "mantissa/core/base/error.h"
#include "mantissa/files/rwkv/generation.h"
#include "mantissa/files/rwkv/names.h"

namespace mantissa::rwkv {
namespace {

using Shape = std::vector<std::int64_t>;

TEST_F(RwkvCheckpoint, TheSizesAreThoseOfTheTensors) {
  write(seventh());
  const nlohmann::json config = model::to_json(open().config, "float32");
  const nlohmann::json expected = {{"model_type", "rwkv7"},   {"hidden_size", 8},
                                   {"num_hidden_layers", 2},  {"head_dim", 4},
                                   {"num_heads", 2},          {"intermediate_size", 12},
                                   {"decay_low_rank_dim", 2}, {"a_low_rank_dim", 3},
                                   {"v_low_rank_dim", 4},     {"gate_low_rank_dim", 5},
                                   {"vocab_size", 16},        {"norm_eps", 1e-5},
                                   {"group_norm_eps", 64e-5}, {"tie_word_embeddings", false}};
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(config[key], value) << key;
}

TEST_F(RwkvCheckpoint, HeadsOf64NeedNoConstantOfTheirNorm) {
  Tensors all = seventh();
  for (auto& [name, tensor] : all) {
    for (std::int64_t& size : tensor.shape) size = size == 8 ? 64 : size;
    if (name.ends_with("r_k")) tensor.shape = {1, 64};
  }
  write(all);
  const model::ModelConfig config = open().config;
  EXPECT_FALSE(model::to_json(config, "float32").contains("group_norm_eps"));
  EXPECT_NEAR(head_norm_eps(config) / kHeadNormEps, 1, 1e-12);
}

TEST_F(RwkvCheckpoint, LowRankMatricesAreTransposedAndVectorsLoseSizesOfOne) {
  write(seventh());
  const io::WeightFiles files(open().weights), stored(file());
  const std::string attn = "model.layers.1.attn.";
  EXPECT_EQ(files.find(attn + "w_lora.lora.0.weight")->shape, (Shape{2, 8}));
  EXPECT_EQ(files.find(attn + "w_lora.lora.2.weight")->shape, (Shape{8, 2}));
  EXPECT_EQ(files.find(attn + "w_lora.lora.2.bias")->shape, (Shape{8}));
  EXPECT_EQ(files.find(attn + "x_r")->shape, (Shape{1, 1, 8}));
  EXPECT_EQ(files.find(attn + "k_k")->shape, (Shape{8}));
  EXPECT_EQ(files.find("model.layers.1.ffn.x_k")->shape, (Shape{8}));
  const std::vector<float> w1 = values_of(files, attn + "w_lora.lora.0.weight"),
                           before = values_of(stored, "blocks.1.att.w1");
  for (std::size_t c = 0; c < 8; ++c) {
    for (std::size_t d = 0; d < 2; ++d) EXPECT_EQ(w1[d * 8 + c], before[c * 2 + d]);
  }
  EXPECT_EQ(values_of(files, attn + "k_proj.weight"), values_of(stored, "blocks.1.att.key.weight"));
  // Pieces of a transposed matrix.
  std::vector<float> piece(3);
  files.read(attn + "w_lora.lora.0.weight", std::as_writable_bytes(std::span(piece)), 6 * sizeof(float));
  EXPECT_EQ(piece, (std::vector<float>{w1[6], w1[7], w1[8]}));
}

TEST_F(RwkvCheckpoint, EveryNameHasAnOtherNameAndComesBack) {
  for (const auto& [name, tensor] : seventh()) {
    const std::optional<OtherName> other = hugging_face_name(name);
    ASSERT_TRUE(other) << name;
    EXPECT_EQ(rwkv_name(other->name)->name, name);
  }
  for (const char* name :
       {"blocks..att.key.weight", "blocks.x.att.key.weight", "blocks.1", "blocks.1.att", ""})
    EXPECT_FALSE(hugging_face_name(name)) << name;
}

TEST_F(RwkvCheckpoint, ThePrefixOfDeepSpeedIsDropped) {
  write(seventh());
  const Checkpoint plain = open();
  const std::vector<float> expected = values_of(io::WeightFiles(plain.weights), "model.layers.0.attn.k_a");
  Tensors prefixed;
  for (const auto& [name, tensor] : seventh()) prefixed.emplace("_forward_module." + name, tensor);
  write(prefixed);
  const Checkpoint opened = open();
  EXPECT_EQ(opened.weights->tensors().size(), plain.weights->tensors().size());
  EXPECT_EQ(values_of(io::WeightFiles(opened.weights), "model.layers.0.attn.k_a"), expected);
}

TEST_F(RwkvCheckpoint, UnusedTensorsOfLayer0AreLeftOutWithANote) {
  write(seventh());
  EXPECT_TRUE(open().notes.empty());
  Tensors all = seventh();
  all["blocks.0.att.v0"] = {{1, 1, 8}};
  all["blocks.0.att.v1"] = {{8, 3}};  // of another rank: nothing reads it
  all["blocks.0.att.v2"] = {{3, 8}};
  write(all);
  const Checkpoint opened = open();
  ASSERT_EQ(opened.notes.size(), 1U);
  EXPECT_EQ(opened.notes.front(),
            "blocks.0.att.v0, blocks.0.att.v1, blocks.0.att.v2 are not used by RWKV-7 and left out");
  EXPECT_EQ(io::WeightFiles(opened.weights).find("model.layers.0.attn.v_lora.lora.2.bias"), nullptr);
}

TEST_F(RwkvCheckpoint, VectorsMayHaveAnyNumberOfSizesOfOne) {
  Tensors all = seventh();
  for (auto& [name, tensor] : all) std::erase(tensor.shape, 1);
  write(all);
  EXPECT_EQ(open().weights->tensors().size(), all.size());
}

TEST_F(RwkvCheckpoint, GoesBackWithTheSameBits) {
  Tensors all = seventh(8);
  for (auto& [name, tensor] : all) {
    for (std::int64_t& size : tensor.shape) size = size == 8 ? 64 : size;
    if (name.ends_with("r_k")) tensor.shape = {1, 64};
  }
  write(all);
  Checkpoint opened = open();
  const io::WeightFiles back(to_checkpoint(io::WeightFiles(opened.weights), opened.config, file())),
      before(file());
  for (const auto& [name, tensor] : all) {
    ASSERT_NE(back.find(name), nullptr) << name;
    EXPECT_EQ(back.find(name)->shape, tensor.shape) << name;
    EXPECT_EQ(values_of(back, name), values_of(before, name)) << name;
  }
  // RWKV-LM expects them and does not use them.
  EXPECT_EQ(back.tensors().size(), all.size() + 3);
  EXPECT_EQ(back.find("blocks.0.att.v0")->shape, (Shape{1, 1, 64}));
  EXPECT_EQ(back.find("blocks.0.att.v1")->shape, (Shape{64, 4}));
  EXPECT_EQ(values_of(back, "blocks.0.att.v2"), std::vector<float>(std::size_t{4} * 64, 0.0F));
}

TEST_F(RwkvCheckpoint, ConstantsThatRwkvLmDoesNotHaveAreErrors) {
  write(seventh());
  Checkpoint opened = open();
  const auto message = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json json = model::to_json(opened.config, "float32");
    json[key] = value;
    return test::message_of<ConfigError>([&] {
      to_checkpoint(io::WeightFiles(opened.weights), model::parse_model_config(json, "config.json"), file());
    });
  };
  EXPECT_NE(message("norm_eps", 1e-6).find("RWKV-LM adds 1e-05 in its norms"), std::string::npos);
  EXPECT_NE(message("group_norm_eps", 4e-5).find("in the norm of each head, and this model 4e-05"),
            std::string::npos);
  EXPECT_NE(message("tie_word_embeddings", true).find("ties this model's to the embedding"),
            std::string::npos);
}

struct Fault {
  const char* name;
  std::function<void(Tensors&)> change;
  const char* message;  // after the path
};

std::string name_of(const ::testing::TestParamInfo<Fault>& info) {
  return info.param.name;
}

class RwkvFault : public RwkvCheckpoint, public ::testing::WithParamInterface<Fault> {};

TEST_P(RwkvFault, IsOneMessageThatNamesTheTensorAndTheCure) {
  Tensors all = seventh();
  GetParam().change(all);
  write(all);
  const std::string text = message<Error>(), expected = file().string() + ": " + GetParam().message;
  EXPECT_TRUE(text.starts_with(expected)) << text;
  EXPECT_NE(text.find(" Fix: "), std::string::npos) << text;
}

const Fault kFaults[] = {
    {"F64", [](Tensors& t) { t["blocks.1.att.w0"].dtype = io::Dtype::f64; },
     "expected F32, BF16 or F16 for tensor \"blocks.1.att.w0\", got F64"},
    {"Integers", [](Tensors& t) { t["head.weight"].dtype = io::Dtype::i8; },
     "expected F32, BF16 or F16 for tensor \"head.weight\", got I8"},
    {"Missing", [](Tensors& t) { t.erase("blocks.1.att.k_k"); },
     "expected tensor \"blocks.1.att.k_k\" [1, 1, 8] of RWKV-7, got none of this name"},
    {"MissingHead", [](Tensors& t) { t.erase("head.weight"); },
     "expected tensor \"head.weight\" [16, 8] of RWKV-7, got none of this name"},
    {"Misshapen",
     [](Tensors& t) {
       t["blocks.1.ffn.key.weight"].shape = {11, 8};
     },
     "expected tensor \"blocks.1.ffn.key.weight\" [12, 8] by the sizes of the other tensors, got [11, 8]"},
    {"TransposedLowRank",
     [](Tensors& t) {
       t["blocks.1.att.w1"].shape = {2, 8};
     },
     "expected tensor \"blocks.1.att.w1\" [8, 2] by the sizes of the other tensors, got [2, 8]"},
    {"HeadsThatDoNotDivide",
     [](Tensors& t) {
       t["blocks.0.att.r_k"].shape = {3, 3};
     },
     "expected heads that divide the 8 channels of emb.weight, got tensor \"blocks.0.att.r_k\" [3, 3]"},
    {"NoMatrix", [](Tensors& t) { t["blocks.0.att.r_k"].shape = {8}; },
     "expected a matrix for tensor \"blocks.0.att.r_k\", got [8]"},
    {"Unknown", [](Tensors& t) { t["blocks.1.att.extra"] = {{3}}; },
     "expected the tensors of RWKV-7 with 2 layers, got also \"blocks.1.att.extra\" [3]"},
    {"Twice", [](Tensors& t) { t["_forward_module.head.weight"] = t["head.weight"]; },
     "expected tensor \"head.weight\" once"},
    {"LayerWithoutOthersBefore", [](Tensors& t) { t["blocks.3.ln1.weight"] = {{8}}; },
     "expected tensor \"blocks.2.ln1.weight\" [8] of RWKV-7"},
};

INSTANTIATE_TEST_SUITE_P(Faults, RwkvFault, ::testing::ValuesIn(kFaults), name_of);

struct Other {
  const char* name;
  std::vector<std::pair<const char*, std::vector<std::int64_t>>> tensors;  // beside those of all generations
  bool extends;                                                            // the tensors of RWKV-7
  const char *generation, *difference;
};

std::string other_name(const ::testing::TestParamInfo<Other>& info) {
  return info.param.name;
}

class RwkvGeneration : public RwkvCheckpoint, public ::testing::WithParamInterface<Other> {};

TEST_P(RwkvGeneration, IsNamedWithWhatDiffers) {
  Tensors all = seventh();
  if (!GetParam().extends) {
    all = {
        {"emb.weight", {{16, 8}}}, {"head.weight", {{16, 8}}}, {"blocks.0.att.receptance.weight", {{8, 8}}}};
  }
  for (const auto& [name, shape] : GetParam().tensors) all["blocks.0." + std::string(name)] = {shape};
  write(all);
  EXPECT_TRUE(has_rwkv_names(io::WeightFiles(file()).tensors()));
  const std::string text = message<FileError>();
  EXPECT_NE(text.find(std::string("expected the weights of RWKV-7 (x070), got those of ") +
                      GetParam().generation + ", which have the tensor \"blocks.0."),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(GetParam().difference), std::string::npos) << text;
  EXPECT_NE(text.find("Fix: give an RWKV-7 file"), std::string::npos) << text;
}

const Other kOthers[] = {
    {"V4", {{"att.time_decay", {8}}, {"att.time_first", {8}}}, false, "RWKV-4", "a vector for each channel"},
    {"V5", {{"att.time_decay", {2}}, {"att.ln_x.weight", {8}}}, false, "RWKV-5", "one number for each head"},
    {"V51",
     {{"att.time_decay", {2}}, {"att.gate.weight", {8, 8}}, {"att.ln_x.weight", {8}}},
     false,
     "RWKV-5.1",
     "one number for each head"},
    {"V52",
     {{"att.time_decay", {2, 4}}, {"att.gate.weight", {8, 8}}, {"att.ln_x.weight", {8}}},
     false,
     "RWKV-5.2 (x052)",
     "the same for every token"},
    {"V52OfOneHead",
     {{"att.time_decay", {1, 8}}, {"att.ln_x.weight", {8}}},
     false,
     "RWKV-5.2 (x052)",
     "no delta rule"},
    {"V6",
     {{"att.time_maa_x", {1, 1, 8}}, {"att.time_decay", {1, 1, 8}}, {"att.ln_x.weight", {8}}},
     false,
     "RWKV-6 (x060)",
     "depend on the token"},
    {"V7a", {{"ffn.s_emb.weight", {16, 4}}}, true, "RWKV-7a", "DeepEmbed"},
    {"V7b", {{"qkv.qq.weight", {8, 8}}}, true, "RWKV-7b or RWKV-8", "attention beside the recurrence"},
    {"V8", {{"ffn.enn.weight", {16, 8}}}, true, "RWKV-8", "DeepEmbed"},
};

INSTANTIATE_TEST_SUITE_P(Generations, RwkvGeneration, ::testing::ValuesIn(kOthers), other_name);

}  // namespace
}  // namespace mantissa::rwkv
