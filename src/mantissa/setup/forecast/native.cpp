#include "mantissa/setup/forecast/native.h"

#include <fmt/format.h>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/plan/caveats.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/kernels/processor.h"
#include "mantissa/setup/forecast/target_forecast.h"

namespace mantissa::forecast {

void check_native(const plan::Program& program, const runtime::Device& device,
                  std::span<const Target> targets) {
  const auto refuse = [](const std::string& why, const std::string& cure) {
    throw ConfigError("precision.native_only = true: {}; use {}, or native_only = false", why, cure);
  };
  for (const Target& target : targets) {
    const std::vector<std::string> lacks = format_warnings(program, target);
    if (!lacks.empty()) refuse(lacks.front(), "another policy or target");
  }
  if (!targets.empty()) return;
  for (const plan::FormatUse& use : plan::formats_used(program)) {
    const kernels::FormatSupport support = kernels::format_support(use.format, device.host().simd);
    if (support.how == kernels::How::native) continue;
    refuse(fmt::format("{} is {} on this machine ({}), and {} needs it", use.format,
                       kernels::name(support.how), support.why, use.use),
           "a policy with only f32 or f64, such as 32-true");
  }
  for (const plan::Imitation& i : plan::imitations(program))
    refuse(fmt::format("{} is simulated by code of this program, and {} needs it", i.what, i.use),
           "a policy without it");
}

}  // namespace mantissa::forecast
