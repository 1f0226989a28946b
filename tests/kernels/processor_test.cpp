// Compares the detected processor features with those that the system reports.
#include "mantissa/kernels/processor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "mantissa/core/base/error.h"

namespace mantissa::kernels::processor_test {
namespace {

std::vector<std::string> system_flags() {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

/// Returns the system's name of a feature.
std::string system_name(std::string_view name) {
  if (name == "neon") return "asimd";
  return name == "fp16" ? "asimdhp" : std::string(name);
}

TEST(Processor, HasTheFeaturesThatTheSystemReports) {
  const std::vector<std::string> flags = system_flags();
  if (flags.empty()) GTEST_SKIP() << "the system does not list the processor's extensions";
  for (const ProcessorFeature& f : processor_features(best_simd())) {
    const bool listed = std::find(flags.begin(), flags.end(), system_name(f.name)) != flags.end();
    EXPECT_EQ(f.present, listed) << f.name;
  }
}

TEST(Processor, ReportsTheInstructionSetOfTheKernelsWithAReason) {
  const auto used = [](Simd simd, std::string_view name) {
    const std::vector<ProcessorFeature> all = processor_features(simd);
    const auto f =
        std::find_if(all.begin(), all.end(), [&](const ProcessorFeature& g) { return g.name == name; });
    return f != all.end() && f->used;
  };
  for (const ProcessorFeature& f : processor_features(best_simd())) EXPECT_FALSE(f.why.empty()) << f.name;
#if defined(__x86_64__)
  EXPECT_TRUE(used(Simd::avx512, "avx512f"));
  EXPECT_FALSE(used(Simd::avx2, "avx512f"));
  EXPECT_TRUE(used(Simd::avx2, "avx2"));
  EXPECT_FALSE(used(Simd::avx512, "avx512_bf16"));
  EXPECT_TRUE(used(Simd::avx512_bf16, "avx512_bf16"));
  EXPECT_TRUE(used(Simd::amx, "amx_bf16"));
  EXPECT_TRUE(used(Simd::amx, "avx512f"));
  EXPECT_FALSE(used(Simd::amx_model, "amx_bf16"));
#endif
}

TEST(InstructionSets, AreParsedByTheirNamesOrExplained) {
  for (const Simd simd : kSimds) {
    if (is_supported(simd)) {
      EXPECT_EQ(parse_simd(name(simd)), simd);
      continue;
    }
    try {
      parse_simd(name(simd));
      ADD_FAILURE() << name(simd) << " is accepted";
    } catch (const ConfigError& e) {
      bool left_out = false;  // by a machine that has less than this one
#if defined(__x86_64__)
      left_out = !is_compiled(simd) && simd != Simd::neon && __builtin_cpu_supports("avx512f") != 0;
#endif
      const char* why =
          left_out ? "the machine that built this program does not" : "this processor does not support it";
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
      const bool names_model = std::string(e.what()).find("amx-model") != std::string::npos;
      EXPECT_EQ(names_model, simd == Simd::amx) << e.what();
    }
  }
}

TEST(InstructionSets, ThatAreModelsAreNeverTheDefault) {
  EXPECT_TRUE(is_supported(Simd::amx_model));
  EXPECT_NE(best_simd(), Simd::amx_model);
  if (is_supported(Simd::amx)) {
    EXPECT_EQ(best_simd(), Simd::amx);
  }
}

TEST(Processor, FormatsThatAUnitMultipliesAreNative) {
  for (const Simd simd : kSimds) {
    const auto support = [&](std::string_view format) { return format_support(format, simd); };
    for (const char* format : {"f64", "f32"}) EXPECT_EQ(support(format).how, How::native) << format;
    const bool tiles = simd == Simd::amx || simd == Simd::amx_model, pairs = simd == Simd::avx512_bf16;
    EXPECT_EQ(support("bf16").how, simd == Simd::amx_model ? How::simulated
                                   : pairs || tiles        ? How::native
                                                           : How::converted)
        << name(simd);
    EXPECT_TRUE(support("bf16").unit.starts_with(tiles   ? "TDPBF16PS"
                                                 : pairs ? "VDPBF16PS"
                                                         : "FMA"))
        << name(simd);
    EXPECT_EQ(support("f16").how, How::converted);
    for (const char* format : {"tf32", "e4m3", "e5m2", "bf16x3", "mxfp4", "unknown"})
      EXPECT_EQ(support(format).how, How::simulated) << format;
    for (const char* format : {"e4m3", "mxfp4", "mxfp6-e2m3", "mxfp6-e3m2", "bf16x3", "bf16x6"})
      EXPECT_EQ(support(format).unit, support("bf16").unit);
    EXPECT_EQ(support("tf32").unit, "FMA");
  }
}

}  // namespace
}  // namespace mantissa::kernels::processor_test
