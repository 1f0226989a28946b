// The supported policies, and the messages for unsupported ones.
#include "mantissa/precision/policy/supported.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mantissa/precision/policy/presets.h"
#include "precision/policy/message.h"

namespace mantissa::precision {
namespace {

/// The end of the message for an unsupported policy.
std::string offer() {
  return " (" + trainable() + ")";
}

TEST(Supported, AcceptsPresetsAndSupportedLines) {
  for (const Preset& preset : presets())
    EXPECT_NO_THROW(check_supported(Policy::parse(preset.name))) << preset.name;
  for (const char* line : {"compute=tf32",
                           "compute=f16 kv=f16 residual=f16",
                           "bf16-mixed residual=bf16",
                           "bf16-mixed kv=f32",
                           "bf16-mixed; lm_head: compute=f32",
                           "loss_scale=dynamic",
                           "64-true loss_scale=128",
                           "params=bf16",
                           "bf16-true optimizer=bf16 rounding=stochastic",
                           "bf16-true optimizer=bf16 kahan=true",
                           "bf16-true kahan=true rounding=toward-zero",
                           "optimizer=bf16 rounding=stochastic",
                           "state=bf16 rounding=stochastic",
                           "bf16-mixed reduce=bf16 reduce_rounding=stochastic",
                           "reduce=tf32 reduce_rounding=toward-zero",
                           "params=f16 rounding=stochastic kahan=true",
                           "params=tf32 kahan=true",
                           "params=e4m3 grads=e5m2 rounding=stochastic",
                           "params=e5m2 grads=e4m3 kahan=true",
                           "grads=tf32",
                           "optimizer=tf32",
                           "optimizer=tf32 rounding=stochastic",
                           "bf16-true optimizer=bf16 kahan=true; lm_head: params=e4m3",
                           "rounding=stochastic; lm_head: params=bf16",
                           "32-true; *: op=matmul pass=backward compute=bf16",
                           "compute=mxfp4",
                           "compute=e4m3 scaling=none",
                           "accumulate=f16 accumulate_block=32",
                           "residual=e5m2 kv=e4m3",
                           "output=compute>f32",
                           "reduce=bf16",
                           "saturate=true flush_subnormals=true",
                           "bf16-mixed; *: operand=weight compute=f32",
                           "bf16-mixed accumulate=h100:k=64; lm_head: accumulate=f32",
                           "bf16-true; *: pass=update rounding=stochastic",
                           "bf16-true; *: pass=update compute=bf16 accumulate=h100",
                           "bf16-true; *: pass=update compute=bf16 accumulate_order=chain",
                           "bf16-mixed; *: steps=0:500 compute=f32",
                           "optimizer=dynamic8-256",
                           "bf16-true optimizer=e4m3-256 rounding=toward-zero",
                           "16-true optimizer=f16-256 kahan=true",
                           "32-true; lm_head: optimizer=dynamic8-256",
                           "bf16-true norm_cast=before-gain"}) {
    EXPECT_NO_THROW(check_supported(Policy::parse(line))) << line;
  }
}

TEST(Supported, RejectsOtherPoliciesByFieldAndValue) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"compute=f64",
       "compute=f64 is not available: f64 is supported only under 64-true, where every format is f64; use "
       "compute=f32"},
      {"params=f64",
       "compute=f32 is not available: f64 is supported only under 64-true, where every format is f64; use "
       "compute=f64"},
      {"64-true kv=bf16",
       "kv=bf16 is not available: f64 is supported only under 64-true, where every format is f64; use "
       "kv=f64"},
      {"grads=f64",
       "grads=f64 is not available: f64 is supported only under 64-true, where every format is f64; use "
       "grads=f32"},
      {"optimizer=f16",
       "optimizer=f16 is not available: in f16 and 8 bits without scales (1-beta2)*g^2 underflows for g < 8e-4, and "
       "first moment / eps explodes; use optimizer=f32|tf32|bf16|dynamic8-256|e4m3-256|f16-256"},
      {"optimizer=e4m3",
       "optimizer=e4m3 is not available: in f16 and 8 bits without scales (1-beta2)*g^2 underflows for g < 8e-4, and "
       "first moment / eps explodes; use optimizer=f32|tf32|bf16|dynamic8-256|e4m3-256|f16-256"},
      {"64-true optimizer=dynamic8-256",
       "optimizer=dynamic8-256 is not available: f64 is supported only under 64-true, where every format is f64; use "
       "optimizer=f64"},
      {"optimizer=dynamic8-256 rounding=stochastic",
       "rounding=stochastic is not available: it applies only to weights, moments and states below f32, and "
       "all are f32; use rounding=nearest, or params=bf16, optimizer=bf16 or, for a recurrence, state=bf16"},
      {"checkpoint=tf32",
       "checkpoint=tf32 is not available: safetensors has no such format and would store f32; "
       "use checkpoint=f32|f64|bf16|f16|e5m2|e4m3"},
      {"rounding=stochastic",
       "rounding=stochastic is not available: it applies only to weights, moments and states below f32, and "
       "all are f32; use rounding=nearest, or params=bf16, optimizer=bf16 or, for a recurrence, state=bf16"},
      {"64-true rounding=toward-zero",
       "rounding=toward-zero is not available: it applies only to weights, moments and states below f32, and "
       "all are f64; use rounding=nearest, or params=bf16, optimizer=bf16 or, for a recurrence, state=bf16"},
      {"reduce_rounding=stochastic",
       "reduce_rounding=stochastic is not available: reduce=f32 rounds no sum over shards; use "
       "reduce_rounding=nearest, or reduce=bf16"},
      {"64-true reduce_rounding=toward-zero",
       "reduce_rounding=toward-zero is not available: reduce=f64 rounds no sum over shards; use "
       "reduce_rounding=nearest, or reduce=bf16"},
      {"64-true accumulate=h100",
       "accumulate=h100 is not available: f64 is supported only under 64-true, where every format is f64; use "
       "accumulate=f64"},
      {"kahan=true",
       "kahan=true is not available: f32 masters need no compensation; use kahan=false, or params=bf16"},
  };
  for (const auto& [line, message] : cases)
    EXPECT_EQ(message_of([&] { check_supported(Policy::parse(line)); }), message + offer());
}

TEST(Supported, RejectsHistoriesAndMarginsOutOfRange) {
  EXPECT_EQ(message_of([] { check_supported(Policy::parse("fp8-hybrid amax_history=0")); }),
            "amax_history=0: must be 1 to 65536 steps; use scaling=current for scales without a history, or "
            "scaling=none for no scales");
  EXPECT_NE(message_of([] { check_supported(Policy::parse("fp8-hybrid amax_history=1000000000000")); }), "");
  EXPECT_EQ(message_of([] { check_supported(Policy::parse("fp8-hybrid; lm_head: scale_margin=65")); }),
            "rule \"lm_head: scale_margin=65\" (policy rule 1): scale_margin=65: must be 0 to 64 binades");
}

TEST(Supported, RejectsMomentsThatRoundingWouldFreeze) {
  for (const char* line : {"bf16-true optimizer=bf16", "bf16-true optimizer=bf16 rounding=toward-zero",
                           "bf16-true optimizer=bf16 rounding=toward-zero kahan=true", "optimizer=bf16",
                           "optimizer=bf16 kahan=true; lm_head: params=bf16"}) {
    EXPECT_EQ(message_of([&] { check_supported(Policy::parse(line)); }),
              "optimizer=bf16 is not available with this rounding: for beta near 1 a moment changes by less "
              "than half a unit in its last place, and rounding discards the change; use "
              "rounding=stochastic, kahan=true with params=bf16 and rounding=nearest, or optimizer=f32")
        << line;
  }
  for (const char* line : {"optimizer=tf32 rounding=toward-zero",
                           "params=tf32 kahan=true optimizer=tf32 rounding=toward-zero"}) {
    EXPECT_EQ(
        message_of([&] { check_supported(Policy::parse(line)); }),
        "optimizer=tf32 is not available with rounding=toward-zero: for beta near 1 a moment changes by less "
        "than a unit in its last place, and truncation discards every increase; use rounding=nearest or "
        "stochastic, or optimizer=f32")
        << line;
  }
}

TEST(Supported, ChecksAndNamesRules) {
  const auto refused = [](const char* rule) {
    return message_of([&] { check_supported(Policy().with_rule(rule, "run.toml:31")); });
  };
  EXPECT_EQ(
      refused("lm_head: optimizer=f16"),
      std::string(
          "rule \"lm_head: optimizer=f16\" (run.toml:31): optimizer=f16 is not available: in f16 and "
          "8 bits without scales (1-beta2)*g^2 underflows for g < 8e-4, and first moment / eps explodes; "
          "use optimizer=f32|tf32|bf16|dynamic8-256|e4m3-256|f16-256") +
          offer());
  EXPECT_EQ(
      refused("*: steps=0:500 params=bf16"),
      "rule \"{match = \"*\", steps = \"0:500\", params = \"bf16\"}\" (run.toml:31): steps is not available "
      "for params, grads, optimizer and kahan: state kept between steps has one format; leave them out, or "
      "resume with another policy");
  EXPECT_EQ(
      refused("*: pass=update residual=f32"),
      "rule \"{match = \"*\", pass = \"update\", residual = \"f32\"}\" (run.toml:31): pass=update supports "
      "only optimizer, rounding, kahan, compute, accumulate and accumulate_order: other fields do not affect the update; "
      "remove them");
  EXPECT_EQ(message_of([&] { check_supported(Policy::parse("64-true; lm_head: compute=f32")); }),
            std::string("rule \"lm_head: compute=f32\" (policy rule 1): compute=f32 is not available: f64 is "
                        "supported only under 64-true, where every format is f64; use compute=f64") +
                offer());
}

}  // namespace
}  // namespace mantissa::precision
