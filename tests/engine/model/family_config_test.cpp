// The fields of config.json for each family: the defaults of transformers, the forms of versions 4 and 5, and
// configs with the same meaning.
#include <gtest/gtest.h>

#include "engine/model/description.h"
#include "engine/model/tiny_families.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/engine/model/graphs.h"

namespace mantissa::model::family_config_test {
namespace {

using namespace mantissa::testing;  // the rows of family_facts.h
using nlohmann::json;

/// Returns the model of a config as text.
std::string meaning(const json& config) {
  const ModelConfig c = parse_model_config(config, "config.json");
  constexpr std::int64_t kPositions = 12;  // beyond the original contexts
  return fmt::format("{} {} {} {}\n{}", c.model_type, c.max_position_embeddings, c.tie_word_embeddings,
                     c.positions_are_limited, describe(build_log_prob(c, kPositions, kPositions, false)));
}

/// Returns the smallest config of the family with other fields.
json smallest(const FamilyFacts& family, const json& fields = json::object()) {
  return with_fields(smallest_config(family), fields);
}
json smallest(const char* model_type, const json& fields = json::object()) {
  return smallest(facts_of(model_type), fields);
}

json default_fields(const FamilyFacts& family) {
  json fields = json::object();
  for (const DefaultField& field : family.defaults) fields[field.key] = json::parse(field.value);
  return fields;
}

TEST(FamilyConfig, HasTheDefaultsOfTransformersWhereFieldsAreMissing) {
  for (const FamilyFacts& family : family_facts()) {
    EXPECT_TRUE(meaning(smallest(family)) == meaning(smallest(family, default_fields(family))))
        << family.model_type;
  }
}

TEST(FamilyConfig, EveryFieldWithADefaultCounts) {
  for (const FamilyFacts& family : family_facts()) {
    const json base = with_fields(smallest(family, default_fields(family)), json::parse(family.counting));
    for (const DefaultField& field : family.defaults) {
      if (field.other == nullptr) continue;
      EXPECT_FALSE(meaning(with_fields(base, {{field.key, json::parse(field.other)}})) == meaning(base))
          << family.model_type << ' ' << field.key;
    }
  }
}

const char* const kLinear = R"({"rope_type": "linear", "factor": 4.0})";
const char* const kYarn = R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8})";

TEST(FamilyConfig, ReadsTheFormsOfTransformers4And5Alike) {
  for (const FamilyFacts& family : family_facts()) {
    for (const SameFields& same : family.same) {
      EXPECT_TRUE(meaning(smallest(family, json::parse(same.one))) ==
                  meaning(smallest(family, json::parse(same.other))))
          << family.model_type << ' ' << same.one << ' ' << same.other;
    }
    if (family.angles != Angles::one_table) continue;
    for (const json& scaling : {json::parse(kLinear), json::parse(kYarn)}) {
      EXPECT_TRUE(
          meaning(smallest(family, {{"rope_theta", 500.0}, {"rope_scaling", scaling}})) ==
          meaning(smallest(family, {{"rope_parameters", with_fields(scaling, {{"rope_theta", 500.0}})}})))
          << family.model_type << ' ' << scaling;
    }
  }
}

TEST(FamilyConfig, NullIsNotAlwaysTheDefault) {
  EXPECT_FALSE(meaning(smallest("mistral", {{"sliding_window", nullptr}})) == meaning(smallest("mistral")));
  for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"})
    EXPECT_FALSE(meaning(smallest("gemma2", {{cap, nullptr}})) == meaning(smallest("gemma2"))) << cap;
}

TEST(FamilyConfig, ComesBackWithTheSameMeaningAndItsUnknownFields) {
  std::vector<json> all;
  for (const TinyFamily& tiny : tiny_families()) all.push_back(tiny.config);
  for (const FamilyFacts& family : family_facts()) all.push_back(smallest(family));
  const json sharp = {{"rope_type", "yarn"}, {"factor", 4.5},
                      {"beta_fast", 16},     {"beta_slow", 2},
                      {"mscale", 0.7},       {"mscale_all_dim", 0.9},
                      {"rope_theta", 500.0}, {"attention_factor", 1.25},
                      {"truncate", false},   {"original_max_position_embeddings", 8}};
  for (const FamilyFacts& family : family_facts()) {
    if (family.angles == Angles::one_table)
      all.push_back(smallest(family, {{"rope_parameters", sharp}}));
    else if (family.angles == Angles::table_per_kind)
      all.push_back(smallest(
          family,
          {{"rope_parameters", {{"full_attention", sharp}, {"sliding_attention", {{"rope_theta", 70.0}}}}}}));
  }
  all.push_back(smallest("mistral", {{"sliding_window", nullptr}, {"num_key_value_heads", nullptr}}));
  all.push_back(smallest("gemma2", {{"attn_logit_softcapping", nullptr}}));
  for (json config : all) {
    config["some_future_field"] = {{"a", {1, 2, nullptr}}};
    config["dtype"] = "bfloat16";
    SCOPED_TRACE(config.dump());
    const json written = to_json(parse_model_config(config, "config.json"), "float32");
    EXPECT_TRUE(meaning(written) == meaning(config));
    EXPECT_EQ(written["some_future_field"], config["some_future_field"]);
    EXPECT_EQ(written["torch_dtype"], "float32");
    EXPECT_FALSE(written.contains("dtype"));
    EXPECT_FALSE(written.contains("rope_parameters"));
    EXPECT_EQ(to_json(parse_model_config(written, "config.json"), "float32"), written);
  }
}

TEST(FamilyConfig, NamesTheArchitectureThatTransformersLoads) {
  for (const FamilyFacts& family : family_facts()) {
    const ModelConfig c = parse_model_config(smallest(family), "config.json");
    EXPECT_EQ(to_json(c, "float32")["architectures"], json::array({family.architecture}));
  }
}

TEST(FamilyConfig, ThePaddingIdIsReadAsTransformersReadsIt) {
  for (const FamilyFacts& family : family_facts()) {
    SCOPED_TRACE(family.model_type);
    const auto padded = [&](const json& id) { return meaning(smallest(family, {{"pad_token_id", id}})); };
    if (!default_fields(family).contains("pad_token_id")) {  // it changes nothing
      EXPECT_EQ(padded(0), padded(nullptr));
      continue;
    }
    EXPECT_EQ(padded(-1), padded(39));
    EXPECT_THROW(padded(40), ConfigError);
    EXPECT_THROW(padded("<pad>"), ConfigError);
  }
}

}  // namespace
}  // namespace mantissa::model::family_config_test
