// A DeepSpeed file applied to a run's config: the result prints and parses to itself.
#include <optional>
#include <string>
#include <string_view>

#include "check.h"
#include "mantissa/setup/config/run_config.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(deepspeed, fuzz::mutate_json) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kRun = "[run]\nsteps = 3\n[model]\nhidden_size = 8\n[data]\nsource = \"kk\"\n";
  std::optional<config::RunConfig> config;
  fuzz::expect_only_errors([&] {
    const compat::DeepSpeedFile file = compat::parse_deepspeed(text, "/folder/ds.json");
    config::PrecisionArguments precision;
    precision.deepspeed = &file;
    config::Told told;
    config = config::parse_config(kRun, "/folder/run.toml", {}, precision, &told);
  });
  if (!config) return 0;
  const std::string printed = config->to_toml();
  fuzz::expect_only_errors([&] {
    fuzz::require(config::parse_config(printed, "/folder/run.toml") == *config,
                  "a resolved config parses to itself");
    config.reset();
  });
  fuzz::require(!config, "a resolved config can be parsed");
  return 0;
}
