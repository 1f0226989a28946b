// The policy language: presets, aliases, fields, one line in and one line out.
#include "mantissa/precision/policy/policy.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "mantissa/precision/policy/fields.h"
#include "mantissa/precision/policy/presets.h"
#include "precision/policy/message.h"

namespace mantissa::precision {
namespace {

constexpr const char* kLine32 =
    "params=f32 compute=f32 accumulate=f32 accumulate_block=0 residual=f32 output=f32 grads=f32 reduce=f32 "
    "optimizer=f32 kv=f32 checkpoint=f32 rounding=nearest kahan=false saturate=false flush_subnormals=false "
    "loss_scale=none";

TEST(Policy, DefaultsToThirtyTwoTrue) {
  EXPECT_EQ(Policy().preset(), "32-true");
  EXPECT_EQ(Policy().line(), kLine32);
  EXPECT_EQ(Policy::parse(kLine32), Policy());
}

TEST(Policy, PresetsHaveTheFieldsOfTheTable) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  EXPECT_EQ(names, (std::vector<std::string>{"64-true", "32-true", "tf32", "bf16-matmul", "bf16-matmul-x3",
                                             "bf16-matmul-x6", "bf16-mixed", "16-mixed", "bf16-true",
                                             "16-true", "fp8-hybrid"}));
  for (const auto& [preset, compute] : {std::pair{"tf32", "tf32"},
                                        {"bf16-matmul", "bf16x1"},
                                        {"bf16-matmul-x3", "bf16x3"},
                                        {"bf16-matmul-x6", "bf16x6"}}) {
    EXPECT_EQ(Policy::parse(preset).line(), Policy::parse(std::string("compute=") + compute).line());
    EXPECT_EQ(Policy::parse(preset).preset(), preset);
  }
  EXPECT_EQ(Policy::parse("transformer-engine").preset(), "fp8-hybrid");
  EXPECT_EQ(Policy::parse("fp8-hybrid").line(), Policy::parse("bf16-mixed compute=fp8-hybrid").line());
  EXPECT_EQ(
      Policy::parse("64-true").line(),
      "params=f64 compute=f64 accumulate=f64 accumulate_block=0 residual=f64 output=f64 grads=f64 "
      "reduce=f64 optimizer=f64 kv=f64 state=f64 checkpoint=f32 rounding=nearest kahan=false saturate=false "
      "flush_subnormals=false loss_scale=none");
  EXPECT_EQ(Policy::parse("bf16-mixed").line(),
            "params=f32 compute=bf16 accumulate=f32 accumulate_block=0 residual=f32 output=f32 grads=f32 "
            "reduce=f32 optimizer=f32 kv=bf16 checkpoint=f32 rounding=nearest kahan=false saturate=false "
            "flush_subnormals=false loss_scale=none");
  EXPECT_EQ(Policy::parse("16-mixed").line(),
            "params=f32 compute=f16 accumulate=f32 accumulate_block=0 residual=f32 output=f32 grads=f32 "
            "reduce=f32 optimizer=f32 kv=f16 checkpoint=f32 rounding=nearest kahan=false saturate=false "
            "flush_subnormals=false loss_scale=dynamic:2^16");
  EXPECT_EQ(Policy::parse("bf16-true").line(),
            "params=bf16 compute=bf16 accumulate=f32 accumulate_block=0 residual=bf16 output=f32 grads=bf16 "
            "reduce=f32 optimizer=f32 kv=bf16 checkpoint=f32 rounding=nearest kahan=false saturate=false "
            "flush_subnormals=false loss_scale=none");
  EXPECT_EQ(Policy::parse("16-true").line(),
            "params=f16 compute=f16 accumulate=f32 accumulate_block=0 residual=f16 output=f32 grads=f16 "
            "reduce=f32 optimizer=f32 kv=f16 checkpoint=f32 rounding=nearest kahan=false saturate=false "
            "flush_subnormals=false loss_scale=none");
}

TEST(Policy, APresetWithALossScaleKeepsItsNameUnderAnotherScale) {
  EXPECT_EQ(Policy::parse("16-mixed loss_scale=128").preset(), "16-mixed");
  EXPECT_EQ(Policy::parse("16-mixed loss_scale=none").preset(), "custom");
  EXPECT_EQ(Policy::parse("16-mixed loss_scale=none").title(), "16-mixed loss_scale=none");
  EXPECT_EQ(Policy::parse("bf16-mixed; lm_head: compute=f32").title(), "bf16-mixed with rules");
  EXPECT_EQ(Policy::parse("bf16-mixed loss_scale=128").preset(), "custom");
}

TEST(Policy, AliasesGiveTheCanonicalName) {
  const std::vector<std::pair<const char*, const char*>> aliases = {{"64", "64-true"},
                                                                    {"float64", "64-true"},
                                                                    {"torch.float64", "64-true"},
                                                                    {"double", "64-true"},
                                                                    {"32", "32-true"},
                                                                    {"fp32", "32-true"},
                                                                    {"torch.float32", "32-true"},
                                                                    {"FP32", "32-true"},
                                                                    {"bf16", "bf16-mixed"},
                                                                    {"bfloat16", "bf16-mixed"},
                                                                    {"BF16-Mixed", "bf16-mixed"},
                                                                    {"torch.bfloat16", "bf16-mixed"},
                                                                    {" bf16-mixed ", "bf16-mixed"},
                                                                    {"16", "16-mixed"},
                                                                    {"half", "16-mixed"}};
  for (const auto& [alias, canonical] : aliases) EXPECT_EQ(Policy::parse(alias).preset(), canonical) << alias;
}

TEST(Policy, ALineWithTheFieldsOfAPresetHasItsName) {
  EXPECT_EQ(Policy::parse("params=f32 compute=bf16 kv=bf16").preset(), "bf16-mixed");
  EXPECT_EQ(Policy::parse("params=f32 compute=f16").preset(), "custom");
  EXPECT_EQ(Policy::parse("bf16-mixed residual=bf16").preset(), "custom");
}

TEST(Policy, FieldsOverrideThePresetBeforeThem) {
  const Policy policy = Policy::parse("bf16-mixed residual=bf16 loss_scale=dynamic:2^12");
  EXPECT_EQ(policy.fields().compute, Scalar::bf16);
  EXPECT_EQ(policy.fields().residual, Scalar::bf16);
  EXPECT_EQ(policy.loss_scale(), (LossScale{LossScale::Kind::dynamic, 4096}));
}

TEST(Policy, ReadsForeignSpellingsOfFieldsAndFormats) {
  EXPECT_EQ(Policy::parse("params=float32,compute=bfloat16,output=float32").line(),
            Policy::parse("params=f32 compute=bf16 output=f32").line());
  EXPECT_EQ(Policy::parse("param_dtype=torch.float32 reduce_dtype=float32 kv_cache=bf16"),
            Policy::parse("kv=bf16"));
}

TEST(Policy, OutputCanPassThroughCompute) {
  const Policy policy = Policy::parse("bf16-mixed output=compute>f32");
  EXPECT_EQ(policy.fields().output, Scalar::f32);
  EXPECT_EQ(policy.fields().output_via_compute, true);
  EXPECT_NE(policy.line().find("output=compute>f32"), std::string::npos);
  EXPECT_EQ(Policy::parse(policy.line()), policy);
}

TEST(Policy, LossScalesPrintAsTheyAreWritten) {
  for (const char* text : {"none", "dynamic:2^16", "dynamic:2^-3", "dynamic:1000", "128", "0.5", "2.5e+30"}) {
    EXPECT_EQ(Policy::parse(std::string("loss_scale=") + text).loss_scale().str(), text);
  }
  EXPECT_EQ(Policy::parse("loss_scale=dynamic").loss_scale().str(), "dynamic:2^16");
  EXPECT_EQ(Policy::parse("loss_scale=2^7").loss_scale().str(), "128");
}

TEST(Policy, RulesFollowTheFieldsInTheLine) {
  const Policy policy =
      Policy::parse("bf16; lm_head: compute=f32; {match = \"*norm*\", op = \"rmsnorm\", compute = \"f32\"}");
  ASSERT_EQ(policy.rules().size(), 2U);
  EXPECT_EQ(policy.preset(), "bf16-mixed");
  EXPECT_EQ(policy.rules()[1].op, "rmsnorm");
  EXPECT_EQ(policy.rules()[0].origin, "policy rule 1");
  EXPECT_EQ(Policy::parse(policy.line()), policy);
  EXPECT_EQ(Policy::parse(policy.line()).line(), policy.line());
}

TEST(Policy, AnyValueSurvivesPrintingAndParsing) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<std::string>& from) { return from[random() % from.size()]; };
  const auto value = [&](const Field& field) {
    if (field.name == "loss_scale") return pick({"none", "dynamic:2^16", "dynamic:3", "128", "0.1"});
    if (field.name == "compute") return pick({"f64", "f32", "tf32", "bf16x3", "e4m3", "fp8-hybrid", "mxfp4"});
    if (field.name == "accumulate")
      return pick({"f32", "bf16", "h100", "ada:f16", "mi300:k=32", "b200:f16:k=128"});
    if (field.name == "accumulate_order") return pick({"auto", "chain", "tile"});
    if (field.name == "scaling") return pick({"delayed", "current", "none"});
    for (const char* name : {"scale_rounding", "weight_block", "activation_block", "hadamard", "weights",
                             "optimizer", "norm_cast"}) {
      if (field.name == name) return pick(field_values(field));
    }
    if (field.name.ends_with("rounding")) return pick({"nearest", "toward-zero", "stochastic"});
    if (field.name == "output" && random() % 2 == 0) return std::string("compute>f32");
    if (std::holds_alternative<std::optional<bool> Fields::*>(field.member)) return pick({"true", "false"});
    if (std::holds_alternative<std::optional<std::int64_t> Fields::*>(field.member))
      return std::to_string(random() % 1000);
    return pick({"f64", "f32", "tf32", "bf16", "f16", "e5m2", "e4m3"});
  };
  for (int trial = 0; trial < 500; ++trial) {
    Policy policy;
    for (const Field& field : field_table()) {
      Fields fields;
      if (random() % 2 == 0) set_field(fields, field.name, value(field));
      policy = policy.with_fields(fields);
    }
    for (unsigned r = random() % 4; r > 0; --r) {
      Rule rule;
      rule.match = pick({"*", "lm_head", "model.layers.[0-3].self_attn.*", "{q,k}_proj", "*.{a,{b,c}}"});
      rule.op = pick({"", "matmul", "softmax"});
      if (random() % 2 == 0) rule.pass = static_cast<Pass>(random() % 3);
      rule.operand = pick({"", "", "a"});
      if (random() % 3 == 0) rule.first_step = random() % 10;
      if (random() % 3 == 0) rule.last_step = 10 + random() % 10;
      set_field(rule.fields, "compute", pick({"f32", "bf16"}));
      for (const Field& field : field_table()) {
        if (field.in_rules && random() % 4 == 0) set_field(rule.fields, field.name, value(field));
      }
      policy = policy.with_rule(rule);
    }
    EXPECT_EQ(Policy::parse(policy.line()), policy) << policy.line();
    EXPECT_EQ(Policy::parse(policy.line()).line(), policy.line());
    EXPECT_EQ(Policy::parse(policy.line()).preset(), policy.preset());
  }
}

TEST(Policy, ACardHasOptions) {
  Fields fields;
  set_field(fields, "accumulate", "H200");
  EXPECT_EQ(*fields.accumulate, Accumulator(Card::h100, Scalar::f32, 0));
  set_field(fields, "accumulate", "h100 f16 k=64");
  EXPECT_EQ(*fields.accumulate, Accumulator(Card::h100, Scalar::f16, 64));
  EXPECT_EQ(field_text(fields, *find_field("accumulate")), "h100:f16:k=64");
  set_field(fields, "accumulate", "b200:f32");
  EXPECT_EQ(field_text(fields, *find_field("accumulate")), "b200");
  const Policy policy = Policy::parse("bf16-mixed accumulate=h100:k=32 accumulate_block=64");
  EXPECT_EQ(policy.resolve({"x", "matmul"}).accumulator, Accumulator(Card::h100, Scalar::f32, 32));
  EXPECT_EQ(policy.short_line(), "bf16-mixed accumulate=h100:k=32 accumulate_block=64");
}

TEST(Policy, UpdatesAreSummedAsTheCardDoesIfItMultipliesTheirFactors) {
  const auto card = [](const char* line, Scalar factor) {
    return Policy::parse(line).update_accumulator({"w", "matmul", Pass::update}, factor).card;
  };
  EXPECT_EQ(card("bf16-mixed accumulate=h100", Scalar::bf16), Card::h100);
  EXPECT_EQ(card("bf16-mixed accumulate=h100", Scalar::f32), Card::none);
  EXPECT_EQ(card("bf16-mixed accumulate=h100; *: pass=update accumulate=f32", Scalar::bf16), Card::none);
  EXPECT_EQ(card("bf16-mixed; *: pass=update accumulate=b200", Scalar::bf16), Card::b200);
}

TEST(Policy, TomlHoldsPresetLineAndRules) {
  EXPECT_EQ(Policy().toml(),
            std::string("[precision]\npolicy = \"") + kLine32 + "\"  # 32-true\nrules = []\n");
  const std::string toml =
      Policy::parse("bf16; {q,k}_proj: compute=f32; {match=\"*\", pass=\"backward\", kahan=true}").toml();
  EXPECT_NE(toml.find("# bf16-mixed\nrules = [\n  \"{q,k}_proj: compute=f32\",\n"
                      "  {match = \"*\", pass = \"backward\", kahan = true},\n]\n"),
            std::string::npos)
      << toml;
}

TEST(Policy, ArithmeticIsF64OnlyWithF64Masters) {
  EXPECT_EQ(Policy::parse("64-true").arithmetic(), Scalar::f64);
  EXPECT_EQ(Policy::parse("32-true").arithmetic(), Scalar::f32);
  EXPECT_EQ(Policy::parse("compute=f16").arithmetic(), Scalar::f32);
}

TEST(PolicyErrors, NameTheNearestPreset) {
  EXPECT_EQ(message_of([] { Policy::parse("bf16-mixd"); }),
            "policy \"bf16-mixd\": no preset is called \"bf16-mixd\"; did you mean \"bf16-mixed\"? (presets: "
            "64-true, 32-true, tf32, bf16-matmul, bf16-matmul-x3, bf16-matmul-x6, bf16-mixed, 16-mixed, "
            "bf16-true, 16-true, fp8-hybrid)");
  EXPECT_EQ(message_of([] { Policy::parse("qqqqqqqqqqqq"); }),
            "policy \"qqqqqqqqqqqq\": no preset is called \"qqqqqqqqqqqq\" (presets: 64-true, 32-true, "
            "tf32, bf16-matmul, bf16-matmul-x3, bf16-matmul-x6, bf16-mixed, 16-mixed, bf16-true, 16-true, "
            "fp8-hybrid)");
}

TEST(Policy, OmitsUsualScalingFromItsLine) {
  EXPECT_EQ(Policy::parse("fp8-hybrid").line().find("scaling"), std::string::npos);
  const Policy policy = Policy::parse("fp8-hybrid scaling=current margin=1 amax_history=16");
  EXPECT_NE(policy.line().find("scaling=current scale_margin=1 amax_history=16"), std::string::npos);
  EXPECT_EQ(Policy::parse(policy.line()), policy);
}

TEST(Policy, OmitsTheOrderOfSumsUnlessItIsSet) {
  EXPECT_EQ(Policy::parse("bf16-mixed").line().find("accumulate_order"), std::string::npos);
  EXPECT_EQ(Policy::parse("bf16-mixed accumulate_order=auto").preset(), "bf16-mixed");
  for (const auto& [text, order] : {std::pair{"accumulate_order=tile", AccumulateOrder::tile},
                                    {"accumulate_order=chain", AccumulateOrder::chain}}) {
    const Policy policy =
        Policy::parse(std::string("bf16-mixed ") + text + "; lm_head: accumulate_order=auto");
    EXPECT_EQ(policy.preset(), "custom");
    EXPECT_EQ(policy.fields().accumulate_order, order);
    EXPECT_EQ(policy.resolve({.scope = "lm_head", .op = "log_prob"}).accumulate_order,
              AccumulateOrder::by_factors);
    EXPECT_NE(policy.line().find(std::string("accumulate_block=0 ") + text + " residual="),
              std::string::npos);
    EXPECT_TRUE(policy.line().ends_with("; lm_head: accumulate_order=auto")) << policy.line();
    EXPECT_NE(policy.toml().find("rules = [\n  \"lm_head: accumulate_order=auto\",\n]"), std::string::npos);
    EXPECT_EQ(Policy::parse(policy.line()), policy);
  }
}

TEST(PolicyErrors, NameFieldAndValue) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"",
       "the policy is empty; write a preset (64-true, 32-true, bf16-mixed) or fields such as compute=bf16"},
      {"  ",
       "the policy is empty; write a preset (64-true, 32-true, bf16-mixed) or fields such as compute=bf16"},
      {"compute=bff16",
       "policy \"compute=bff16\": compute=\"bff16\": unknown number format; did you mean \"bf16\"? "
       "(formats: f64, f32, tf32, bf16, f16, e5m2, e4m3, fp8-hybrid, fp8-hybrid-f16, bf16x1, bf16x3, bf16x6, "
       "mxfp8, mxfp8-e5m2, mxfp6-e2m3, mxfp6-e3m2, mxfp4, nvfp4)"},
      {"residual=mxfp8",
       "policy \"residual=mxfp8\": residual=mxfp8: mxfp8 is a format of product operands only; write "
       "compute=mxfp8, and for residual a number format such as bf16"},
      {"compute=",
       "policy \"compute=\": compute=\"\": unknown number format (formats: f64, f32, tf32, bf16, "
       "f16, e5m2, e4m3, fp8-hybrid, fp8-hybrid-f16, bf16x1, bf16x3, bf16x6, mxfp8, mxfp8-e5m2, mxfp6-e2m3, "
       "mxfp6-e3m2, mxfp4, nvfp4)"},
      {"accumulate=h10",
       "policy \"accumulate=h10\": accumulate=\"h10\": unknown number format or card; did you mean \"h100\"? (f64, "
       "f32, tf32, bf16, f16, e5m2, e4m3, v100, a100, ada, h100, b200, rtx-blackwell, mi250, mi300)"},
      {"accumulate=h100:k=24",
       "policy \"accumulate=h100:k=24\": accumulate=\"h100:k=24\": k must be the terms of an instruction or of a "
       "loop on h100: 4, 8, 16, 32, 64, 128"},
      {"accumulate=mi300:f16",
       "policy \"accumulate=mi300:f16\": accumulate=\"mi300:f16\": mi300 has no f16 accumulators; use "
       "accumulate=mi300"},
      {"accumulate=a100:bf16",
       "policy \"accumulate=a100:bf16\": accumulate=\"a100:bf16\": unknown option \"bf16\" of a100 (f32, f16, "
       "k=TERMS)"},
      {"accumulate_block=-1",
       "policy \"accumulate_block=-1\": accumulate_block=\"-1\": must be a whole number, 0 or more"},
      {"accumulate_block=12x",
       "policy \"accumulate_block=12x\": accumulate_block=\"12x\": must be a whole number, 0 or more"},
      {"accumulate_order=tiled",
       "policy \"accumulate_order=tiled\": accumulate_order=\"tiled\": unknown order; did you mean "
       "\"tile\"? (auto, chain, tile)"},
      {"kahan=yes", "policy \"kahan=yes\": kahan=\"yes\": must be true or false"},
      {"rounding=nearst",
       "policy \"rounding=nearst\": rounding=\"nearst\": unknown rounding; did you mean "
       "\"nearest\"? (nearest, toward-zero, stochastic)"},
      {"loss_scale=0",
       "policy \"loss_scale=0\": loss_scale=0: a scale of 0 erases the gradients; write loss_scale=dynamic "
       "(DeepSpeed's meaning of 0) or loss_scale=none"},
      {"loss_scale=-4",
       "policy \"loss_scale=-4\": loss_scale=\"-4\": not a loss scale; write none, dynamic:2^16 (the initial "
       "scale), or a constant such as 128, from 2^-127 to 2^127"},
      {"compute=bf16 compute=f16", "policy \"compute=bf16 compute=f16\": compute is set twice; keep one"},
      {"params=f32 param_dtype=f32", "policy \"params=f32 param_dtype=f32\": params is set twice; keep one"},
      {"compute=bf16 bf16-mixed",
       "policy \"compute=bf16 bf16-mixed\": \"bf16-mixed\" is not field=value; write it without spaces, such "
       "as compute=bf16"},
      {"lm_head: compute=f32",
       "policy \"lm_head: compute=f32\": \"lm_head: compute=f32\" is a rule; a policy begins with a preset "
       "or fields, and rules follow after \";\""},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(message_of([&] { Policy::parse(text); }), message);
  EXPECT_NE(
      message_of([] { Policy::parse("compte=bf16"); })
          .find("no policy field is called \"compte\"; did you mean \"compute\"? (fields: params, weights, "
                "compute, accumulate"),
      std::string::npos);
}

TEST(PolicyErrors, RejectLossScalesOutsideF32) {
  for (const char* text : {"nan", "inf", "1e39", "2^128", "2^", "dynamic:", "dynamic:0", "dynamic:2^16x",
                           "1e-500", "1e-39", "static"}) {
    EXPECT_NE(message_of([&] { Policy::parse(std::string("loss_scale=") + text); }).find("not a loss scale"),
              std::string::npos)
        << text;
  }
  for (const double exponent : {-127, 127})  // the reciprocal is an f32 number too
    EXPECT_EQ(Policy::parse(fmt::format("loss_scale=2^{}", exponent)).fields().loss_scale->value,
              std::exp2(exponent));
}

TEST(PolicyErrors, HostileTextIsQuotedSafely) {
  EXPECT_EQ(message_of([] { Policy::parse(std::string(70000, 'x')); }),
            "a policy line has at most 65536 characters");
  const std::string message = message_of([] { Policy::parse(std::string("a\x01\x1b[31m\0b", 9)); });
  EXPECT_NE(message.find("\"a\\x01\\x1b[31m\\x00b\""), std::string::npos) << message;
  EXPECT_LT(message_of([] { Policy::parse(std::string(60000, 'x')); }).size(), 400U);
}

TEST(Fields, HaveValuesThatTheyRead) {
  for (const Field& field : field_table()) {
    const std::vector<std::string> values = field_values(field);
    EXPECT_FALSE(values.empty()) << field.name;
    for (const std::string& value : values) {
      if (value.find(' ') != std::string::npos || value == "dynamic:2^P") continue;  // describes many
      Fields fields;
      set_field(fields, field.name, value);
      EXPECT_EQ(field_text(fields, field), value) << field.name;
    }
  }
}

}  // namespace
}  // namespace mantissa::precision
