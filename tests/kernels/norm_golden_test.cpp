// Compares the norms with PyTorch.
#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>

#include "kernels/row_testing.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/kernels/layernorm.h"
#include "mantissa/kernels/norm.h"
#include "mantissa/kernels/token_sum.h"

namespace mantissa::kernels::norm_golden_test {
namespace {

using testing::Batch;
using testing::Tensor;

constexpr double kEps = 1e-5;

// Written by tools/golden_rows.py: torch.nn.functional.rms_norm in f64 and its autograd.
constexpr double kGoldenX[] = {
    0x1.aed548f090ceep-1,  -0x1.837b9dddc1eaep-1, 0x1.50608c26d0a08p-1,  -0x1.1689ef5f34f52p-1,
    0x1.ae4044881c506p-2,  -0x1.26d02085f20f8p-2, 0x1.32f2d28f584cfp-3,  -0x1.220a29f6eb9f4p-7,
    -0x1.1e1f18ab0a2c0p-1, 0x1.a6026360c2f91p-1,  -0x1.12b9af7d765a5p+0, 0x1.4cf2871cec2e8p+0,
    -0x1.8081668131e26p+0, 0x1.ac5e20bb0d7edp+0,  -0x1.cfa7f7919140fp+0, 0x1.e9aa1b0e5ba30p+0,
    -0x1.7fff098a2eef0p+1, 0x1.7c64aa5dd46b4p+1,  -0x1.712d38131e620p+1, 0x1.5e922b805eda8p+1,
    -0x1.44f2d9c1b5dc2p+1, 0x1.24d28bc125c22p+1,  -0x1.fdabbb0fa2edap+0, 0x1.a77ee59e39819p+0};
constexpr double kGoldenGain[] = {0x1.4000000000000p+0, 0x1.cabbb351591bfp-1, 0x1.ac5567e4936d0p-1,
                                  0x1.3d736e12f045fp+0, 0x1.ed6041409cd07p-1, 0x1.94994ddbce538p-1,
                                  0x1.3601b408d6cbcp+0, 0x1.08c04d7616507p+0};
constexpr double kGoldenDy[] = {
    0x1.14a280fb5068cp-1,  -0x1.29fbebf632f94p-3, -0x1.84f5d069ca4f3p-1, -0x1.fffadd8d4acdap-1,
    -0x1.7f01658314e47p-1, -0x1.0611d3b0339acp-3, 0x1.1c37cf87361afp-1,  0x1.ee1006fc3fcfap-1,
    0x1.b00da046b65e3p-1,  0x1.fa377de108258p-1,  0x1.4b3902691a9edp-1,  -0x1.b30d6d8f65f78p-7,
    -0x1.5578e7d68218fp-1, -0x1.fc13650553ff2p-1, -0x1.a89b4c64cc027p-1, -0x1.084bcb9598883p-2,
    -0x1.10cf7d591f272p-1, 0x1.3be82f2505a52p-3,  0x1.87e459c20218cp-1,  0x1.ffeb764f88544p-1,
    0x1.7bfba287cf062p-1,  0x1.e8296e015e53cp-4,  -0x1.1ff9f38127868p-1, -0x1.ef3b7817589ecp-1};
constexpr double kGoldenY[] = {
    0x1.f73c9e555457dp+0,  -0x1.44694c2375addp+0, 0x1.06f61ba27128ep+0,  -0x1.42c1c611182c9p+0,
    0x1.836bcc4c29af8p-1,  -0x1.b365689ddfab2p-2, 0x1.5b56079cdfb59p-2,  -0x1.184a6a11868fcp-6,
    -0x1.fc82822a6c043p-2, 0x1.0ccb83245fe37p-1,  -0x1.46c6954a3cf06p-1, 0x1.25823db1c9f62p+0,
    -0x1.0766f88859752p+0, 0x1.e14b34e1e681fp-1,  -0x1.8f265955843a7p+0, 0x1.68009e0118bc5p+0,
    -0x1.786e41b3a53c9p+0, 0x1.0b48663fa2deap+0,  -0x1.e46c32f94db0dp-1, 0x1.54ed2681a9d9ep+0,
    -0x1.eb2289a556c5cp-1, 0x1.6af11e8486beep-1,  -0x1.e406b466cf3dap-1, 0x1.5779919c42641p-1};
constexpr double kGoldenDx[] = {
    0x1.815a72776026ep-1,  0x1.b79e2cd2c7aa2p-3,  -0x1.95ea9d39fc312p+0, -0x1.fcebb4f4f542dp+0,
    -0x1.9a03b580e7918p+0, -0x1.dfbf1393f0060p-7, 0x1.2a6154141a82ap+0,  0x1.ded3f6c306dc2p+0,
    0x1.865b73158e130p-1,  0x1.38f4ab6e85556p-1,  0x1.a2a5f6ef3b4d8p-2,  -0x1.4f137a060ceb6p-5,
    -0x1.b150da9846368p-2, -0x1.30a8c602c5e42p-1, -0x1.58b6de2b7b5aep-1, -0x1.dc91828af4a1bp-3,
    -0x1.b78a5078a227ap-3, 0x1.08caa97251b18p-7,  0x1.2ef0bd66f9cc4p-2,  0x1.c651e7b6182aap-2,
    0x1.477e4d0aaa46ep-2,  0x1.77d34131c3d60p-10, -0x1.e3b52ac84763cp-3, -0x1.abf0dcea49aa0p-2};
constexpr double kGoldenDgain[] = {0x1.24287d172415ap+0, 0x1.ee040ea82c76fp-1,  -0x1.255e90fabff17p+1,
                                   0x1.0a01d4e1764bfp+1, -0x1.3a66c957eef58p-1, -0x1.0132a52729d55p+0,
                                   0x1.a990729a99c1fp+0, -0x1.fd1bff994e256p-1};

/// Both sides are f64 sums of 8 terms of order 1, so they differ by a few tens of roundings.
TEST(RmsNorm, AgreesWithPyTorch) {
  const double tolerance = 64 * unit_roundoff(Scalar::f64);
  const Batch batch({3});
  const Context ctx{.simd = best_simd()};
  const Tensor x(Scalar::f64, 3, 8, kGoldenX), gain(Scalar::f64, 1, 8, kGoldenGain),
      dy(Scalar::f64, 3, 8, kGoldenDy);
  Tensor y(Scalar::f64, 3, 8), rstd(Scalar::f64, 1, 3), dx(Scalar::f64, 3, 8), dgain(Scalar::f64, 1, 8);
  rmsnorm(ctx, batch.extent().tokens, {8, kEps, x, gain, y, rstd});
  rmsnorm_backward(ctx, batch.extent().tokens, {8, x, gain, rstd, dy, {}, dx});
  rmsnorm_gain(ctx, batch.extent(), {8, x, rstd, dy, dgain, false});
  for (std::int64_t i = 0; i < 24; ++i) {
    EXPECT_NEAR(y.get(i / 8, i % 8), kGoldenY[i], tolerance);
    EXPECT_NEAR(dx.get(i / 8, i % 8), kGoldenDx[i], tolerance);
  }
  for (std::int64_t c = 0; c < 8; ++c) EXPECT_NEAR(dgain.get(0, c), kGoldenDgain[c], tolerance);
}

/// LlamaRMSNorm of transformers rounds before and after the gain, Transformer Engine only after it
/// (tools/golden_norm_cast.py wrote the file).
TEST(RmsNorm, RoundsBeforeTheGainAsTransformersDoesOrOnlyAfterIt) {
  constexpr std::int64_t kTokens = 24, kWidth = 64;
  const io::SafetensorsReader file(std::filesystem::path(MANTISSA_SOURCE_DIR) /
                                   "tests/golden/norm_cast.safetensors");
  const auto golden = [&](const std::string& name, Scalar type, std::int64_t rows) {
    Tensor t(type, rows, kWidth);
    file.read(*file.find(name), std::span(t.bytes));
    return t;
  };
  const Tensor x = golden("x", Scalar::bf16, kTokens), gain = golden("gain", Scalar::bf16, 1),
               dy = golden("dy", Scalar::bf16, kTokens), want_dx = golden("before.dx", Scalar::f64, kTokens),
               want_dgain = golden("before.dgain", Scalar::f64, 1);
  const Batch batch({kTokens});
  for (const Context& ctx : testing::contexts()) {
    Tensor y(Scalar::bf16, kTokens, kWidth), rstd(Scalar::f32, 1, kTokens), dx(Scalar::f32, kTokens, kWidth),
        dgain(Scalar::f32, 1, kWidth);
    RmsNorm norm{kWidth, 1e-6, x, gain, y, rstd};
    rmsnorm(ctx, kTokens, norm);
    EXPECT_TRUE(y == golden("after.y", Scalar::bf16, kTokens)) << testing::describe(ctx);
    norm.normalized = Scalar::bf16;
    rmsnorm(ctx, kTokens, norm);
    EXPECT_TRUE(y == golden("before.y", Scalar::bf16, kTokens)) << testing::describe(ctx);
    RmsNormBackward back{kWidth, x, gain, rstd, dy, {}, dx};
    back.normalized = Scalar::bf16;
    rmsnorm_backward(ctx, kTokens, back);
    RmsNormGain sum{kWidth, x, rstd, dy, dgain};
    sum.normalized = Scalar::bf16;
    rmsnorm_gain(ctx, batch.extent(), sum);
    // Sums of 64 and 24 terms of order 1, in f32.
    const double tolerance = 64 * unit_roundoff(Scalar::f32);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t c = 0; c < kWidth; ++c) ASSERT_NEAR(dx.get(t, c), want_dx.get(t, c), tolerance);
    }
    for (std::int64_t c = 0; c < kWidth; ++c)
      ASSERT_NEAR(dgain.get(0, c), want_dgain.get(0, c), 4 * tolerance);
  }
}

// The same tokens, gain and dy with torch.nn.functional.layer_norm.
constexpr double kGoldenBias[] = {0x0.0p+0,
                                  0x1.210386db6d55bp-4,
                                  -0x1.1e1f18ab0a2c0p-3,
                                  0x1.a6026360c2f91p-3,
                                  -0x1.12b9af7d765a5p-2,
                                  0x1.4cf2871cec2e8p-2,
                                  -0x1.8081668131e26p-2,
                                  0x1.ac5e20bb0d7edp-2};
constexpr double kGoldenLayerY[] = {
    0x1.d6e4113a199e3p+0,  -0x1.4db76c6132999p+0, 0x1.9a31b10629827p-1,  -0x1.331d214fbabaap+0,
    0x1.8ba15c5cf3157p-2,  -0x1.8558d9ece88a1p-3, -0x1.5899c41775517p-3, 0x1.2586df4c53283p-2,
    -0x1.2a7f618ebb446p-1, 0x1.1241fbf32498fp-1,  -0x1.ac47c1b0834a7p-1, 0x1.454a2b6f58a5ep+0,
    -0x1.5d856c6aab3b8p+0, 0x1.36a50f3e863d5p+0,  -0x1.02ac881527cfap+1, 0x1.c1df81ac7e187p+0,
    -0x1.6cbf28dcf0f23p+0, 0x1.26185454639a6p+0,  -0x1.0e2665bd3b70ep+0, 0x1.95c41bcec6625p+0,
    -0x1.3135e5638d0b7p+0, 0x1.1062eb34c9d0fp+0,  -0x1.46bc241b9a6f7p+0, 0x1.20d5280693335p+0};
constexpr double kGoldenLayerDx[] = {
    0x1.c3aaa47e83cb3p-1,  0x1.8fe68b37526bep-2,  -0x1.76f2d826680a4p+0, -0x1.d508794688afep+0,
    -0x1.7930548016706p+0, 0x1.2981bc72cf1f1p-3,  0x1.51ae5485c4a70p+0,  0x1.043f1265e90f8p+1,
    0x1.935946344ca09p-1,  0x1.44faebba8a0fep-1,  0x1.bc6027aa595f4p-2,  -0x1.3edf15cfb0902p-6,
    -0x1.99146a6a7c068p-2, -0x1.268d96f50f498p-1, -0x1.4cb7c2a98820cp-1, -0x1.b2f6f906c1b87p-3,
    -0x1.e8eef8c23b3b6p-3, -0x1.2816687e83feap-6, 0x1.16907eb031876p-2,  0x1.abf01c4beed87p-2,
    0x1.2f0137e43a874p-2,  -0x1.90f5adb3a0b94p-6, -0x1.0af1da4b2c150p-2, -0x1.c687bad0eee8bp-2};
constexpr double kGoldenLayerDgain[] = {0x1.02433eb2350c1p+0, 0x1.d814515ce38bbp-1,  -0x1.1d8cc26827794p+1,
                                        0x1.1df4672e79340p+1, -0x1.d79247b3f5fb0p-2, -0x1.d75cddc99fedbp-1,
                                        0x1.a3e57fc3a2181p+0, -0x1.1efaed5beb475p+0};
constexpr double kGoldenLayerDbias[] = {0x1.b3e0a3e8e79fep-1,  0x1.feb28eacbcd08p-1,  0x1.4e278bc152686p-1,
                                        -0x1.b6e73d0004500p-7, -0x1.587eaad1c7f74p-1, -0x1.004956189a8dap+0,
                                        -0x1.ac5d705ebd6e0p-1, -0x1.0aa2adcbca268p-2};

TEST(LayerNorm, AgreesWithPyTorch) {
  const double tolerance = 64 * unit_roundoff(Scalar::f64);
  const Batch batch({3});
  const Context ctx{.simd = best_simd()};
  const Tensor x(Scalar::f64, 3, 8, kGoldenX), gain(Scalar::f64, 1, 8, kGoldenGain),
      bias(Scalar::f64, 1, 8, kGoldenBias), dy(Scalar::f64, 3, 8, kGoldenDy);
  Tensor y(Scalar::f64, 3, 8), mean(Scalar::f64, 1, 3), rstd(mean), dx(Scalar::f64, 3, 8),
      dgain(Scalar::f64, 1, 8), dbias(dgain);
  layernorm(ctx, batch.extent().tokens, {8, kEps, x, gain, bias, y, mean, rstd});
  layernorm_backward(ctx, batch.extent().tokens, {8, x, gain, mean, rstd, dy, {}, dx});
  layernorm_gain(ctx, batch.extent(), {8, x, mean, rstd, dy, dgain});
  token_sum(ctx, batch.extent(), {8, dy, dbias});
  for (std::int64_t i = 0; i < 24; ++i) {
    EXPECT_NEAR(y.get(i / 8, i % 8), kGoldenLayerY[i], tolerance);
    EXPECT_NEAR(dx.get(i / 8, i % 8), kGoldenLayerDx[i], tolerance);
  }
  for (std::int64_t c = 0; c < 8; ++c) {
    EXPECT_NEAR(dgain.get(0, c), kGoldenLayerDgain[c], tolerance);
    EXPECT_NEAR(dbias.get(0, c), kGoldenLayerDbias[c], tolerance);
  }
}

}  // namespace
}  // namespace mantissa::kernels::norm_golden_test
