// Unsupported features of a family are errors that name the file and the field.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/model/tiny_families.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/family.h"

namespace mantissa::model::family_refusals_test {
namespace {

using namespace mantissa::testing;  // the rows of family_facts.h
using nlohmann::json;

/// Returns the first tiny model of the family with other fields.
json tiny(const FamilyFacts& family, const json& fields = json::object()) {
  return with_fields(tiny_models(family).front().config, fields);
}

/// Returns the error of reading this config, or "".
std::string error_of(const json& config) {
  try {
    parse_model_config(config, "some/config.json");
    return {};
  } catch (const ConfigError& e) {
    return e.what();
  }
}

/// The message for `config` begins with the file, names the field, and says this.
void expect_refusal(const json& config, const Refusal& refusal) {
  const std::string message = error_of(config);
  SCOPED_TRACE(config["model_type"].dump() + ' ' + refusal.fields + ": " + message);
  EXPECT_EQ(message.find("some/config.json"), 0U);
  EXPECT_NE(message.find('"' + std::string(refusal.key) + '"'), std::string::npos);
  EXPECT_NE(message.find(refusal.says), std::string::npos);
}

TEST(FamilyRefusals, NameTheFileAndTheField) {
  const Refusal of_all[] = {{R"({"quantization_config": {"bits": 4}})", "quantization_config", "quantized"},
                            {R"({"vocab_size": 0})", "vocab_size", "must be between 1 and"},
                            {R"({"tie_word_embeddings": "yes"})", "tie_word_embeddings", "true or false"},
                            {R"({"eos_token_id": "end"})", "eos_token_id", "an id or a list of ids"}};
  for (const FamilyFacts& family : family_facts()) {
    for (const Refusal& r : family.refusals) expect_refusal(tiny(family, json::parse(r.fields)), r);
    for (const TinyFamily& model : tiny_models(family)) {
      for (const Refusal& r : of_all) expect_refusal(with_fields(model.config, json::parse(r.fields)), r);
    }
  }
}

TEST(FamilyRefusals, ListTheSupportedActivation) {
  for (const FamilyFacts& family : family_facts()) {
    for (const DefaultField& field : family.defaults) {
      if (field.other != nullptr || !std::string_view(field.key).starts_with("hidden_act")) continue;
      const std::string fields = fmt::format(R"({{"{}": "relu"}})", field.key);
      const std::string says = fmt::format("supported: {}", field.value);
      expect_refusal(tiny(family, json::parse(fields)), {fields.c_str(), field.key, says.c_str()});
    }
  }
}

TEST(FamilyRefusals, CoverTheAnglesOfDecoders) {
  const char* const longrope = R"({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}})";
  const Refusal partial = {R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor", "is not 1"};
  const Refusal missing = {R"({"hidden_size": null})", "hidden_size", "is missing; a"};
  for (const FamilyFacts& family : family_facts()) {
    if (family.angles == Angles::none) continue;
    expect_refusal(tiny(family, json::parse(missing.fields)), missing);
    if (!family.partial_rotary) expect_refusal(tiny(family, json::parse(partial.fields)), partial);
    if (family.angles != Angles::unscaled)
      expect_refusal(tiny(family, json::parse(longrope)),
                     {longrope, "rope_type", "supported: default, linear"});
  }
}

TEST(FamilyRefusals, MarkADefaultNumberOfHeads) {
  for (const FamilyFacts& family : family_facts()) {
    if (!family.fixed_kv_heads) continue;
    json config = tiny(facts_of("llama"),
                       {{"model_type", family.model_type}, {"num_attention_heads", 7}, {"head_dim", 8}});
    config.erase("num_key_value_heads");
    EXPECT_NE(error_of(config).find("by default, which does not divide num_attention_heads 7"),
              std::string::npos)
        << family.model_type << ": " << error_of(config);
  }
}

TEST(FamilyRefusals, OfMultimodalModelsSayHowToGetTheirText) {
  const json config = {{"model_type", "gemma3"}, {"text_config", tiny(facts_of("gemma3_text"))}};
  const std::string message = error_of(config);
  EXPECT_NE(message.find("\"model_type\" is \"gemma3\", a multimodal model"), std::string::npos) << message;
  EXPECT_NE(message.find("language_model.save_pretrained(DIR)"), std::string::npos) << message;
}

TEST(FamilyRefusals, OfAnUnknownFamilyListAllThatThereAre) {
  const std::string message = error_of({{"model_type", "bert"}});
  for (const Family* family : all_families())
    EXPECT_NE(message.find(family->model_type), std::string::npos) << message;
}

}  // namespace
}  // namespace mantissa::model::family_refusals_test
