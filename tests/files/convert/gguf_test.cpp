// Models through GGUF files and back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "files/convert/gguf_testing.h"
#include "mantissa/core/base/error.h"
#include "mantissa/files/convert/inspect.h"
#include "mantissa/files/convert/origin.h"
#include "mantissa/files/gguf/gguf_file.h"
#include "mantissa/files/io/model_path.h"

namespace mantissa::convert {
namespace {

using nlohmann::json;
using test::message_of;

std::string model_name(const ::testing::TestParamInfo<SmallModel>& info) {
  return info.param.name;
}

class GgufRoundTrip : public GgufModel, public ::testing::WithParamInterface<SmallModel> {};

TEST_P(GgufRoundTrip, EveryFormatKeepsEveryBit) {
  for (const Scalar format : {Scalar::f32, Scalar::bf16, Scalar::f16}) {
    write(GetParam().config, format);
    convert_to_gguf();
    convert_back();
    const io::WeightFiles before(in()), after(back());
    ASSERT_EQ(before.tensors().size(), after.tensors().size());
    for (const io::TensorInfo& tensor : before.tensors()) {
      ASSERT_NE(after.find(tensor.name), nullptr) << tensor.name;
      EXPECT_EQ(after.find(tensor.name)->shape, tensor.shape) << tensor.name;
      EXPECT_EQ(values_of(before, tensor.name), values_of(after, tensor.name)) << tensor.name;
    }
    EXPECT_EQ(json_of(back() / "config.json")["torch_dtype"], io::torch_name(io::dtype_of(format)));
  }
}

TEST_P(GgufRoundTrip, TheConfigDescribesTheSameModel) {
  write(GetParam().config);
  convert_to_gguf();
  convert_back();
  const auto canonical = [](const json& config) {
    json all = model::to_json(model::parse_model_config(config, "config.json"), "float32");
    // What GGUF files do not hold, and what is null or absent.
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "initializer_range",
                            "layer_types", "hidden_act", "hidden_activation", "mlp_bias", "attention_bias"})
      all.erase(key);
    if (all.contains("rope_scaling") && all["rope_scaling"].is_object()) {
      all["rope_scaling"].erase("beta_fast");  // written with its default
      all["rope_scaling"].erase("beta_slow");
    }
    for (auto it = all.begin(); it != all.end();) it = it->is_null() ? all.erase(it) : std::next(it);
    return all;
  };
  json expected = canonical(GetParam().config), got = canonical(json_of(back() / "config.json"));
  if (std::string(GetParam().name) == "Gemma2") {  // defaults that the file states
    got.erase("attn_logit_softcapping");
    got.erase("final_logit_softcapping");
  }
  EXPECT_EQ(got, expected);
}

INSTANTIATE_TEST_SUITE_P(Models, GgufRoundTrip, ::testing::ValuesIn(small_models()), model_name);

const json& llama() {
  static const std::vector<SmallModel> models = small_models();
  return models.front().config;
}

const json& small(const std::string& name) {
  static const std::vector<SmallModel> models = small_models();
  return std::ranges::find(models, name, &SmallModel::name)->config;
}

/// Returns row `r` of a matrix of 32 columns.
std::vector<float> row_of(const std::vector<float>& m, std::size_t r) {
  return {m.begin() + static_cast<std::ptrdiff_t>(32 * r),
          m.begin() + static_cast<std::ptrdiff_t>(32 * (r + 1))};
}

std::vector<float> f32_values(const gguf::GgufFile& file, const char* name) {
  const gguf::FileTensor& stored = *file.find(name);
  std::vector<float> values(stored.count());
  std::ranges::copy(file.data(stored), std::as_writable_bytes(std::span(values)).begin());
  return values;
}

/// llama.cpp rotates neighbours in `llama`, `smollm3` and `granite`, and halves in `olmo2` and `stablelm`.
TEST_F(GgufModel, RowsOfQueriesAndKeysAreInterleavedAsTheArchitectureRotatesThem) {
  struct Rows {
    const char *model, *tensor, *weight;
    std::size_t head, second;  // size of a head; the row of ours that is the second of a head there
  };
  for (const auto& [model, tensor, weight, head, second] :
       {Rows{"Llama", "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", 8, 4},
        Rows{"SmolLm3", "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", 16, 8},
        Rows{"SmolLm3", "blk.3.attn_k.weight", "model.layers.3.self_attn.k_proj.weight", 16, 8},
        Rows{"Granite", "blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj.weight", 8, 4},
        Rows{"StableLm", "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", 8, 1},
        Rows{"Olmo2", "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", 8, 1}}) {
    SCOPED_TRACE(fmt::format("{} {}", model, tensor));
    std::filesystem::remove_all(in());
    write(small(model));
    convert_to_gguf();
    const gguf::GgufFile foreign(file());
    const std::vector<float> ours = values_of(io::WeightFiles(in()), weight),
                             theirs = f32_values(foreign, tensor);
    EXPECT_EQ(row_of(theirs, 1), row_of(ours, second));
    EXPECT_EQ(row_of(theirs, head + 1), row_of(ours, head + second));
  }
}

/// The names and keys of llama.cpp's converter.
TEST_F(GgufModel, Olmo2HasTheNamesOfLlamaCpp) {
  write(small("Olmo2"));
  convert_to_gguf();
  const gguf::GgufFile foreign(file());
  EXPECT_EQ(foreign.text("general.architecture"), "olmo2");
  EXPECT_EQ(foreign.text("olmo2.rope.scaling.type"), "yarn");
  EXPECT_EQ(foreign.find("blk.0.attn_norm.weight"), nullptr);
  const io::WeightFiles files(in());
  for (const auto& [stored, weight] :
       {std::pair{"blk.1.attn_k_norm.weight", "model.layers.1.self_attn.k_norm.weight"},
        std::pair{"blk.1.post_attention_norm.weight", "model.layers.1.post_attention_layernorm.weight"},
        std::pair{"blk.1.post_ffw_norm.weight", "model.layers.1.post_feedforward_layernorm.weight"}})
    EXPECT_EQ(f32_values(foreign, stored), values_of(files, weight)) << stored;
}

TEST_F(GgufModel, GraniteAndStableLmHaveTheKeysOfLlamaCpp) {
  write(small("Granite"));
  convert_to_gguf();
  const gguf::GgufFile granite(file());
  EXPECT_EQ(granite.number("granite.embedding_scale"), 12.0);
  EXPECT_EQ(granite.number("granite.attention.scale"), 0.125);
  EXPECT_EQ(granite.number("granite.residual_scale"), 0.22);
  EXPECT_EQ(granite.number("granite.logit_scale"), 6.0);
  std::filesystem::remove_all(in());
  write(small("StableLm"));
  convert_to_gguf();
  const gguf::GgufFile stablelm(file());
  EXPECT_EQ(stablelm.number("stablelm.attention.layer_norm_epsilon"), 1e-4);
  EXPECT_EQ(stablelm.integer("stablelm.rope.dimension_count"), 4);
  EXPECT_EQ(stablelm.flag("stablelm.use_parallel_residual"), false);
  EXPECT_EQ(f32_values(stablelm, "blk.1.ffn_norm.bias"),
            values_of(io::WeightFiles(in()), "model.layers.1.post_attention_layernorm.bias"));
}

/// OLMo 3 has the architecture olmo2 with windows.
TEST_F(GgufModel, Olmo3IsRefused) {
  write(small("Olmo2"));
  convert_to_gguf();
  std::string bytes = test::contents_of(file());
  const std::string known = "olmo2.attention.value_length", other = "olmo2.attention.sliding_window";
  const std::string length(1, static_cast<char>(known.size()));
  bytes.replace(bytes.find(length + std::string(7, '\0') + known), 8 + known.size(),
                std::string(1, static_cast<char>(other.size())) + std::string(7, '\0') + other);
  test::put(file(), bytes);
  EXPECT_NE(message_of<FileError>([&] { convert_back(); }).find("OLMo 3"), std::string::npos);
}

const json& mixtral() {
  return small("Mixtral");
}

/// llama.cpp has one tensor for a weight of all experts of a layer, and the router in F32.
TEST_F(GgufModel, ExpertsAreOneTensorForEachWeightOfALayer) {
  write(mixtral());
  convert_to_gguf({}, gguf::TensorType::q8_0);
  const gguf::GgufFile quantized(file());
  EXPECT_STREQ(quantized.find("blk.1.ffn_down_exps.weight")->type->name, "Q8_0");
  EXPECT_STREQ(quantized.find("blk.1.ffn_gate_inp.weight")->type->name, "F32");
  convert_to_gguf({Scalar::f32});
  const gguf::GgufFile foreign(file());
  EXPECT_EQ(foreign.text("general.architecture"), "llama");
  EXPECT_EQ(foreign.integer("llama.expert_count"), 4);
  EXPECT_EQ(foreign.integer("llama.expert_used_count"), 2);
  const io::WeightFiles files(in());
  const std::pair<const char*, const char*> names[] = {{"gate", "w1"}, {"up", "w3"}, {"down", "w2"}};
  for (const auto& [of_file, name] : names) {
    const gguf::FileTensor* stored = foreign.find(fmt::format("blk.1.ffn_{}_exps.weight", of_file));
    ASSERT_NE(stored, nullptr) << of_file;
    std::vector<float> all;
    for (int e = 0; e < 4; ++e) {
      const std::string expert = fmt::format("model.layers.1.block_sparse_moe.experts.{}.{}.weight", e, name);
      const std::vector<float> values = values_of(files, expert);
      all.insert(all.end(), values.begin(), values.end());
      EXPECT_EQ(std::vector<std::int64_t>(stored->shape.begin() + 1, stored->shape.end()),
                files.find(expert)->shape);
    }
    std::vector<float> values(stored->count());
    std::ranges::copy(foreign.data(*stored), std::as_writable_bytes(std::span(values)).begin());
    EXPECT_EQ(values, all) << of_file;
  }
}

TEST_F(GgufModel, TheBytesOfExpertsAreCountedOnce) {
  write(mixtral());
  const Result out = convert_to_gguf();
  EXPECT_EQ(convert_back().bytes_in, out.bytes_out);
}

TEST_F(GgufModel, MatricesHaveTheAskedFormatAndVectorsAreF32) {
  write(llama());
  convert_to_gguf({Scalar::bf16});
  const gguf::GgufFile foreign(file());
  for (const gguf::FileTensor& tensor : foreign.tensors())
    EXPECT_STREQ(tensor.type->name, tensor.shape.size() > 1 ? "BF16" : "F32") << tensor.name;
  const auto mentions_vectors = [](const Result& result) {
    return std::ranges::any_of(result.notes, [](const std::string& note) {
      return note.find("vectors were written as F32, which is what llama.cpp reads") != std::string::npos;
    });
  };
  convert({io::open_model(in()), back(), {Scalar::bf16}, true}, {});
  const Result widened = *convert({io::open_model(back()), file(), {}, true, Layout::gguf}, {});
  EXPECT_TRUE(mentions_vectors(widened));
  EXPECT_FALSE(mentions_vectors(convert_to_gguf()));
}

TEST_F(GgufModel, QuantizedWeightsAreWithinHalfAStepAndTheirOriginIsKept) {
  write(llama());
  const Result result = convert_to_gguf({}, gguf::TensorType::q8_0);
  EXPECT_TRUE(result.warnings.empty());
  convert_back();
  const io::WeightFiles before(in()), after(back());
  EXPECT_EQ(after.metadata().at(kRoundedToKey), "q8_0");
  for (const io::TensorInfo& tensor : before.tensors()) {
    const std::vector<float> a = values_of(before, tensor.name), b = values_of(after, tensor.name);
    // Values are below 2. The step is their largest / 127, and the f16 scale adds 2^-11 of the value.
    const double bound = tensor.shape.size() == 1 ? 0 : 2.0 / 127 / 2 + std::ldexp(2.0, -11);
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_LE(std::abs(a[i] - b[i]), bound) << tensor.name;
  }
  // A wider format does not hide it, either.
  convert({io::open_model(back()), folder / "wide", {Scalar::f64}, false}, {});
  EXPECT_EQ(io::WeightFiles(folder / "wide").metadata().at(kRoundedToKey), "q8_0");
  EXPECT_NE(inspect(file(), {}).origin.find("q8_0"), std::string::npos);
}

/// Blocks of K types have 256 elements: a model that is 256 wide has rows of other lengths too.
TEST_F(GgufModel, RowsThatHaveNoBlocksOfAKTypeAreQ8) {
  json wide = llama();
  wide["hidden_size"] = 256;
  write(wide);
  for (const gguf::TensorType type :
       {gguf::TensorType::q3_k, gguf::TensorType::q4_k, gguf::TensorType::q5_k, gguf::TensorType::q6_k}) {
    const std::string name = traits(type).name;
    const Result result = convert_to_gguf({}, type);
    const gguf::GgufFile quantized(file());
    EXPECT_EQ(quantized.find("blk.0.attn_q.weight")->type->name, name);
    EXPECT_EQ(quantized.find("token_embd.weight")->type->name, name);
    EXPECT_STREQ(quantized.find("blk.0.ffn_down.weight")->type->name, "Q8_0");
    EXPECT_TRUE(std::ranges::any_of(result.notes, [](const std::string& note) {
      return note.starts_with("written as Q8_0, since rows do not divide into blocks of 256: blk.");
    }));
    EXPECT_EQ(convert_back().warnings.size(), 0U);
  }
  write(llama());  // narrower than a block
  const Result narrow = convert_to_gguf({}, gguf::TensorType::q4_k);
  EXPECT_STREQ(gguf::GgufFile(file()).find("blk.0.attn_q.weight")->type->name, "Q8_0");
  EXPECT_TRUE(
      std::ranges::any_of(narrow.notes, [](const std::string& note) { return note.ends_with(" others"); }));
}

TEST_F(GgufModel, InspectListsTheTypes) {
  write(llama());
  convert_to_gguf({}, gguf::TensorType::q8_0);
  const Inspection seen = inspect(file(), {});
  ASSERT_FALSE(seen.types.empty());
  EXPECT_STREQ(seen.types.front().type->name, "Q8_0");
  EXPECT_NE(to_text(seen).find("blk.0.attn_q.weight"), std::string::npos);
  const json report = json::parse(to_json(seen));
  EXPECT_EQ(report["types"][0]["bits"], 8.5);
  EXPECT_EQ(report["tensors"].back()["dtype"], seen.tensors.back().type());
}

TEST_F(GgufModel, ValuesBeyondTheFormatAreReported) {
  write(llama());
  {
    const std::vector<float> large(32 * 64, 1e6F);
    std::vector<io::TensorToWrite> tensors;
    const io::WeightFiles files(in());
    std::vector<std::vector<std::byte>> bytes;
    for (const io::TensorInfo& t : files.tensors()) {
      bytes.emplace_back(t.end - t.begin);
      files.read(t.name, bytes.back());
      if (t.name == "lm_head.weight")
        std::ranges::copy(std::as_bytes(std::span(large)), bytes.back().begin());
      tensors.push_back({t.name, t.dtype, t.shape, {}, {}});
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) tensors[i].bytes = bytes[i];
    io::write_safetensors(in() / "model.safetensors", tensors);
  }
  const Result result = convert_to_gguf({Scalar::f16});
  ASSERT_EQ(result.warnings.size(), 1U);
  EXPECT_NE(result.warnings.front().find("output.weight became inf"), std::string::npos);
  EXPECT_TRUE(convert_to_gguf({}, gguf::TensorType::q8_0).warnings.empty());  // 1e6 is in the range of Q8_0
}

struct Refused {
  const char* name;
  const char* model_type;
  json change;
  const char* message;
};

std::string refused_name(const ::testing::TestParamInfo<Refused>& info) {
  return info.param.name;
}

class GgufRefused : public GgufModel, public ::testing::WithParamInterface<Refused> {};

TEST_P(GgufRefused, IsOneMessage) {
  json config = llama();
  config["rope_scaling"] = nullptr;
  config["model_type"] = GetParam().model_type;
  config.update(GetParam().change);
  write(config);
  const std::string message = message_of<ConfigError>([&] { convert_to_gguf(); });
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(file()));
}

const Refused kRefused[] = {
    {"DynamicRope", "llama", {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}}, "dynamic RoPE"},
    {"LimitOfSwiglu", "llama", {{"swiglu_limit", 7.0}}, "without swiglu_limit"},
    {"UnnormalizedExperts",
     "qwen3_moe",
     {{"num_experts", 4}, {"num_experts_per_tok", 2}},
     "llama.cpp's qwen3moe has norm_topk_prob true, and this model false"},
    {"LayersWithoutExperts",
     "qwen3_moe",
     {{"num_experts", 4}, {"num_experts_per_tok", 2}, {"norm_topk_prob", true}, {"mlp_only_layers", {0}}},
     "has experts in every layer"},
    {"OtherFamily", "mistral", {{"sliding_window", nullptr}}, "mistral are not supported"},
    {"TiedHead", "olmo2", {{"tie_word_embeddings", true}}, "olmo2 has a head of its own"},
    {"Biases", "olmo2", {{"attention_bias", true}}, "olmo2 has no biases"},
    {"WidthOfHeads", "olmo2", {{"head_dim", 16}}, "8 here, and this model of 16"},
    {"NormsOfHeads", "stablelm", {{"qk_layernorm", true}}, "norms over the heads of q and k"},
    {"TiedStableLm", "stablelm", {{"tie_word_embeddings", true}}, "stablelm has a head of its own"},
    {"ScaledAngles",
     "smollm3",
     {{"rope_scaling",
       {{"rope_type", "llama3"},
        {"factor", 8.0},
        {"low_freq_factor", 1.0},
        {"high_freq_factor", 4.0},
        {"original_max_position_embeddings", 32}}}},
     "is written for the architecture llama only, not for smollm3"},
    {"BiasesOfMlp", "smollm3", {{"mlp_bias", true}}, "smollm3 has no biases"},
    {"RotatedLayer", "smollm3", {{"no_rope_layers", {1, 0}}}, "layer 1 does not rotate q and k"},
    {"FourthLayer",
     "smollm3",
     {{"no_rope_layer_interval", 5}, {"num_hidden_layers", 4}},
     "layer 3 rotates q and k"},
    {"Windows",
     "qwen2",
     {{"use_sliding_window", true}, {"sliding_window", 4}, {"max_window_layers", 1}},
     "window"},
    {"ScaleOfScores",
     "gemma2",
     {{"query_pre_attn_scalar", 99}, {"tie_word_embeddings", true}},
     "query_pre_attn_scalar"},
};

INSTANTIATE_TEST_SUITE_P(Models, GgufRefused, ::testing::ValuesIn(kRefused), refused_name);

TEST_F(GgufModel, AMissingTensorIsNamed) {
  write(llama());
  convert_to_gguf();
  std::string bytes = test::contents_of(file());
  bytes.replace(bytes.find("blk.1.ffn_up.weight"), 19, "blk.1.ffn_xx.weight");
  test::put(file(), bytes);
  EXPECT_NE(message_of<FileError>([&] { convert_back(); }).find("\"blk.1.ffn_up.weight\" is missing"),
            std::string::npos);
}

TEST_F(GgufModel, AnUnknownTensorIsNamed) {
  json config = llama();
  config["tie_word_embeddings"] = true;
  write(config);
  convert_to_gguf();
  std::string bytes = test::contents_of(file());
  // The factors of RoPE are the only tensor that is not a weight.
  bytes.replace(bytes.find("rope_freqs.weight"), 17, "soap_freqs.weight");
  test::put(file(), bytes);
  EXPECT_NE(message_of<FileError>([&] { convert_back(); }).find("\"soap_freqs.weight\" is not a weight"),
            std::string::npos);
}

TEST_F(GgufModel, AnUnknownArchitectureIsInspectedButNotConverted) {
  write(llama());
  convert_to_gguf();
  std::string bytes = test::contents_of(file());
  const std::string from = std::string("\5\0\0\0\0\0\0\0llama", 13);
  bytes.replace(bytes.find(from) + 8, 5, "other");
  test::put(file(), bytes);
  EXPECT_NE(message_of<FileError>([&] { convert_back(); }).find("architecture \"other\""), std::string::npos);
  EXPECT_FALSE(inspect(file(), {}).tensors.empty());
}

}  // namespace
}  // namespace mantissa::convert
