// A run's config: parsed, printed in resolved form, and parsed again as the same config.
#include <optional>
#include <string>
#include <string_view>

#include "check.h"
#include "mantissa/setup/config/run_config.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(config, nullptr) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::optional<config::RunConfig> config;
  fuzz::expect_only_errors([&] { config = config::parse_config(text, "/folder/run.toml"); });
  if (!config) return 0;
  const std::string printed = config->to_toml();
  fuzz::expect_only_errors([&] {
    const config::RunConfig again = config::parse_config(printed, "/folder/run.toml");
    fuzz::require(again == *config, "a resolved config parses to itself");
    config.reset();
  });
  fuzz::require(!config, "a resolved config can be parsed");
  return 0;
}
