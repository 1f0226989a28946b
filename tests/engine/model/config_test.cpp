// config.json as written by transformers 4 and 5, and its errors.
#include "mantissa/engine/model/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/decoder.h"

namespace mantissa::model::config_test {
namespace {

using nlohmann::json;

json minimal() {
  return json::parse(
      R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                         "intermediate_size": 48, "vocab_size": 64})");
}

ModelConfig parse(const json& object) {
  return parse_model_config(object, "some/config.json");
}

const DecoderSpec& decoder(const ModelConfig& c) {
  return dynamic_cast<const DecoderNetwork&>(*c.network).spec();
}

TEST(ModelConfig, HasTheDefaultsOfTransformers) {
  const ModelConfig c = parse(minimal());
  EXPECT_EQ(decoder(c).kv_heads, 4);
  EXPECT_EQ(decoder(c).head_dim, 8);
  EXPECT_EQ(c.max_position_embeddings, 2048);
  EXPECT_EQ(decoder(c).norm_eps, 1e-6);
  EXPECT_EQ(decoder(c).ropes.front().theta, 10000.0);
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_TRUE(c.notes.empty());
}

TEST(ModelConfig, ReadsRopeOfBothVersions) {
  json v4 = minimal();
  v4["rope_theta"] = 500000.0;
  v4["rope_scaling"] = nullptr;
  v4["torch_dtype"] = "bfloat16";
  EXPECT_EQ(decoder(parse(v4)).ropes.front().theta, 500000.0);
  json v5 = minimal();
  v5["rope_parameters"] = {{"rope_theta", 250000.0}, {"rope_type", "default"}};
  v5["dtype"] = "bfloat16";
  EXPECT_EQ(decoder(parse(v5)).ropes.front().theta, 250000.0);
}

TEST(ModelConfig, TakesHeadSizesThatDoNotDivideTheWidth) {
  json c = minimal();
  c["head_dim"] = 16;
  c["num_key_value_heads"] = 2;
  EXPECT_EQ(decoder(parse(c)).head_dim, 16);
  // q and o: 32·64 each; k and v: 32·32 each; the rest as always.
  EXPECT_EQ(parse(c).parameters(), 2 * (2 * 32 * 64 + 2 * 32 * 32 + 3 * 32 * 48 + 2 * 32) + 32 + 2 * 64 * 32);
}

TEST(ModelConfig, NotesUnsupportedFeatures) {
  json c = minimal();
  c["attention_dropout"] = 0.1;
  c["pretraining_tp"] = 2;
  const ModelConfig parsed = parse(c);
  ASSERT_EQ(parsed.notes.size(), 2U);
  EXPECT_NE(parsed.notes[0].find("pretraining_tp"), std::string::npos);
  EXPECT_NE(parsed.notes[1].find("attention_dropout is read as 0"), std::string::npos);
}

struct Refusal {
  const char* key;
  json value;        // discarded: the key is taken out
  const char* says;  // part of the message: what is wrong, or what to do
};

TEST(ModelConfig, RefusalsNameTheFileTheKeyAndTheCure) {
  const Refusal refusals[] = {
      {"hidden_size", json::value_t::discarded, "is missing; a llama config needs it"},
      {"vocab_size", json::value_t::discarded, "is missing"},
      {"hidden_size", "32", "must be a whole number"},
      {"hidden_size", 0, "must be between 1 and"},
      {"vocab_size", 1LL << 40, "must be between 1 and"},
      {"vocab_size", 18446744073709551615ULL, "is 18446744073709551615, but must be between 1 and"},
      {"num_hidden_layers", 1.5, "must be a whole number"},
      {"num_hidden_layers", 1000000000, "must be between 1 and 1000"},
      {"num_hidden_layers", json::array({2}), "is a list, but must be a whole number"},
      {"rms_norm_eps", -1, "must be positive"},
      {"rms_norm_eps", 1e300, "must be a number in the range of f32"},
      {"rope_theta", 1e-300, "must be a number in the range of f32"},
      {"rope_theta", "a lot", "must be a number"},
      {"tie_word_embeddings", 1, "must be true or false"},
      {"hidden_act", "gelu", "supported: \"silu\""},
      {"hidden_act", 3, "must be a string"},
      {"model_type", "bert", "supported: llama, mistral, mixtral, phi3"},
      {"model_type", "a\nb", "is \"a\\nb\""},
      {"attention_bias", 1, "must be true or false"},
      {"partial_rotary_factor", 0.5, "every head is rotated completely"},
      {"sliding_window", 128, "Llama attends to the whole prefix"},
      {"quantization_config", json::object(), "dequantize 8-bit"},
      {"rope_scaling", {{"type", "longrope"}, {"factor", 2.0}}, "supported: default, linear"},
      {"rope_scaling", {{"type", "linear"}, {"factor", 0.5}}, "must be at least 1"},
      {"rope_parameters", {{"rope_type", "llama3"}}, "\"factor\" is missing"},
      {"rope_parameters", 7, "must be an object"},
      {"num_attention_heads", 5, "set head_dim, or heads that divide it"},
      {"num_key_value_heads", 3, "does not divide num_attention_heads 4"},
      {"head_dim", 7, "even head size"},
      {"eos_token_id", "</s>", "must be an id or a list of ids"},
      {"eos_token_id", {1, 1LL << 40}, "must be an id or a list of ids"},
      {"head_dim", 512, "up to 256"},
  };
  for (const Refusal& r : refusals) {
    json c = minimal();
    if (r.value.is_discarded()) {
      c.erase(r.key);
    } else {
      c[r.key] = r.value;
    }
    try {
      parse(c);
      ADD_FAILURE() << r.key << " = " << r.value << " was taken";
    } catch (const ConfigError& e) {
      const std::string message = e.what();
      EXPECT_NE(message.find("some/config.json"), std::string::npos) << message;
      EXPECT_NE(message.find(r.key), std::string::npos) << message;
      EXPECT_NE(message.find(r.says), std::string::npos) << message;
    }
  }
  EXPECT_THROW(parse(json::array()), ConfigError);
}

TEST(ModelConfig, RefusesSizesThatOnlyTogetherAreTooLarge) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
  const auto message = [](const char* key, const json& sizes) {
    json c = minimal();
    c.update(sizes);
    try {
      return fmt::format("{} weights were taken", parse(c).parameters());
    } catch (const ConfigError& e) {
      EXPECT_NE(std::string(e.what()).find(key), std::string::npos) << e.what();
      return std::string(e.what());
    }
  };
  for (const auto& [key, sizes] : std::initializer_list<std::pair<const char*, json>>{
           {"\"vocab_size\"", {{"hidden_size", kMost}, {"head_dim", 2}, {"vocab_size", kMost}}},
           {"\"intermediate_size\"", {{"hidden_size", 65536}, {"head_dim", 2}, {"intermediate_size", kMost}}},
           {"\"num_attention_heads\"", {{"num_attention_heads", kMost}, {"head_dim", 256}}}}) {
    EXPECT_NE(message(key, sizes).find("weights, more than 1e+13; check the sizes"), std::string::npos)
        << message(key, sizes);
  }
}

TEST(ModelConfig, ShowsTheBeginningOfALongValue) {
  json c = minimal();
  c["hidden_act"] = std::string(100000, 'x');
  try {
    parse(c);
    ADD_FAILURE() << "was taken";
  } catch (const ConfigError& e) {
    EXPECT_LT(std::string(e.what()).size(), 200U);
  }
}

TEST(ModelConfig, RoundTrips) {
  json c = minimal();
  c["rope_parameters"] = {{"rope_theta", 250000.0}, {"rope_type", "default"}};
  c["eos_token_id"] = 5;
  c["tie_word_embeddings"] = true;
  const json written = to_json(parse(c), "float32");
  EXPECT_EQ(written["eos_token_id"], 5);
  EXPECT_EQ(written["torch_dtype"], "float32");
  EXPECT_EQ(written["rope_theta"], 250000.0);
  const ModelConfig again = parse(written);
  EXPECT_EQ(decoder(again).ropes.front().theta, 250000.0);
  EXPECT_TRUE(again.tie_word_embeddings);
  EXPECT_EQ(again.parameters(), parse(c).parameters());
}

}  // namespace
}  // namespace mantissa::model::config_test
