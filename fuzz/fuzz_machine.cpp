// The description of another machine, a TOML file of explain --target.
#include <cmath>
#include <string_view>

#include "check.h"
#include "mantissa/setup/forecast/target.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(machine, nullptr) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::expect_only_errors([&] {
    const forecast::Target target = forecast::parse_target(text, "target.toml");
    fuzz::require(!target.name.empty() && !target.rates.empty(), "a machine has a name and rates");
    for (const double number : {target.bytes_per_second, target.memory_bytes, target.memory_share,
                                target.product_share, target.attention_share, target.stream_share})
      fuzz::require(std::isfinite(number) && number > 0, "a number of a machine is positive");
    for (const std::string& format : forecast::target_formats()) {
      const forecast::TargetFormat found = forecast::format_on(target, format);
      fuzz::require(std::isfinite(found.flops_per_second) && found.flops_per_second >= 0, "a rate is finite");
    }
  });
  return 0;
}
