// Fields that are set without effect are reported; fields that may have an effect are not.
#include "mantissa/precision/policy/idle_fields.h"

#include <gtest/gtest.h>

#include "mantissa/precision/policy/presets.h"

namespace mantissa::precision {
namespace {

using Strings = std::vector<std::string>;

Strings idle(const char* line) {
  return idle_fields(Policy::parse(line));
}

TEST(IdleFields, AreReportedWithTheReason) {
  EXPECT_EQ(idle("accumulate_block=32"),
            Strings{"accumulate_block=32 has no effect: no sum is rounded under accumulate=f32"});
  EXPECT_EQ(idle("bf16-mixed accumulate=h100 accumulate_block=32 accumulate_order=tile"),
            (Strings{"accumulate_block=32 has no effect: no sum is rounded under accumulate=h100",
                     "accumulate_order=tile has no effect: a card has an order of its own"}));
  EXPECT_EQ(idle("64-true accumulate_block=32"),
            Strings{"accumulate_block=32 has no effect: no sum is rounded under accumulate=f64"});
  EXPECT_EQ(
      idle("bf16-mixed; lm_head: accumulate_block=32"),
      Strings{"rule \"lm_head: accumulate_block=32\" (policy rule 1): accumulate_block=32 has no effect: "
              "no sum is rounded under accumulate=f32"});
  const std::string chains =
      " has no effect: no format of factors is exact in bf16, so all products are summed in chain order";
  for (const char* preset : {"64-true", "32-true", "16-mixed", "tf32"})
    EXPECT_EQ(idle((std::string(preset) + " accumulate_order=chain").c_str()),
              Strings{"accumulate_order=chain" + chains})
        << preset;
  const std::string tiles =
      " has no effect: all factors are exact in bf16, so all products are summed in tile order";
  for (const char* preset :
       {"bf16-mixed", "fp8-hybrid", "bf16-mixed compute=nvfp4", "bf16-matmul", "bf16-matmul-x3"})
    EXPECT_EQ(idle((std::string(preset) + " accumulate_order=tile").c_str()),
              Strings{"accumulate_order=tile" + tiles})
        << preset;
  EXPECT_EQ(
      idle("norm_cast=before-gain"),
      Strings{"norm_cast=before-gain has no effect: inputs of norms are in f32, to which nothing rounds; "
              "residual=bf16 rounds the residual stream"});
  EXPECT_EQ(idle("bf16-true norm_cast=before-gain"), Strings{});
  const std::string none = " has no effect: no format in the policy has scales";
  EXPECT_EQ(idle("bf16-mixed scaling=current scale_margin=2 amax_history=16"),
            (Strings{"scaling=current" + none, "scale_margin=2" + none, "amax_history=16" + none}));
  EXPECT_EQ(idle("compute=mxfp8 scale_margin=2"),
            Strings{"scale_margin=2 has no effect: blocks of mx formats derive their own scales"});
  EXPECT_EQ(idle("compute=nvfp4 scale_margin=2 amax_history=16"),
            (Strings{"scale_margin=2 has no effect: the tensor scale of nvfp4 has no margin",
                     "amax_history=16 has no effect: only scaling=delayed has a history"}));
  EXPECT_EQ(idle("compute=nvfp4 scaling=delayed amax_history=16"), Strings{});
  EXPECT_EQ(idle("fp8-hybrid scaling=current amax_history=16"),
            Strings{"amax_history=16 has no effect: only scaling=delayed has a history"});
  EXPECT_EQ(idle("fp8-hybrid scaling=none scale_margin=1"),
            Strings{"scale_margin=1 has no effect: scaling=none has no scales"});
}

TEST(IdleFields, DoNotIncludeFieldsThatARuleMayUse) {
  for (const char* line :
       {"accumulate_block=32; lm_head: accumulate=bf16", "accumulate=f16 accumulate_block=32",
        "bf16-mixed accumulate_order=chain", "bf16-matmul-x6 accumulate_order=chain",
        "32-true accumulate_order=tile", "32-true accumulate_order=chain; *.mlp: compute=bf16",
        "transformer-engine compute=fp8-hybrid-f16 accumulate_order=chain",
        "bf16-mixed accumulate_order=tile; lm_head: compute=f16", "fp8-hybrid accumulate_order=auto",
        "fp8-hybrid accumulate=f16 accumulate_order=tile", "bf16-mixed scale_margin=2; *.mlp: compute=e4m3",
        "compute=nvfp4 scaling=current", "fp8-hybrid scaling=current scale_margin=1",
        "fp8-hybrid scaling=current amax_history=16; *.mlp: scaling=delayed"})
    EXPECT_EQ(idle(line), Strings{}) << line;
  for (const Preset& preset : presets()) EXPECT_EQ(idle(preset.name.c_str()), Strings{}) << preset.name;
}

}  // namespace
}  // namespace mantissa::precision
