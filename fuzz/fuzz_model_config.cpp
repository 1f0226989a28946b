// A model's config.json, of any family: parsed, written, and parsed again with the same sizes and the same
// file.
#include <optional>
#include <string_view>

#include "check.h"
#include "mantissa/engine/model/config.h"
#include "mantissa/files/io/json.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(model_config, fuzz::mutate_json) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::optional<model::ModelConfig> config;
  fuzz::expect_only_errors(
      [&] { config = model::parse_model_config(io::parse_json(text, "config.json"), "config.json"); });
  if (!config) return 0;
  const std::int64_t parameters = config->parameters();
  fuzz::require(parameters > 0, "a model has parameters");
  const nlohmann::json written = model::to_json(*config, "float32");
  fuzz::expect_only_errors([&] {
    const model::ModelConfig again = model::parse_model_config(written, "config.json");
    fuzz::require(again.parameters() == parameters, "a written config describes the same model");
    fuzz::require(model::to_json(again, "float32") == written,
                  "writing a parsed config again gives the same file");
    config.reset();
  });
  fuzz::require(!config, "a written config can be parsed");
  return 0;
}
