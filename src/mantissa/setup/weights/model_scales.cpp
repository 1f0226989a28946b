#include "mantissa/setup/weights/model_scales.h"

#include <fmt/format.h>

#include <limits>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/json.h"

namespace mantissa::weights {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& why) {
  throw FileError(
      "{}: the metadata entry \"{}\" {}; copy the model from its run again, remove the entry to "
      "start with scales of 1, or use scaling=current",
      file.string(), io::kAmaxKey, why);
}

bool has_history(const runtime::Scales& scales) {
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (scales.slot(i).history > 0) return true;
  }
  return false;
}

}  // namespace

std::string amax_text(const runtime::Scales& scales) {
  const std::map<std::string, float> magnitudes = scales.magnitudes();
  return magnitudes.empty() ? "" : nlohmann::json(magnitudes).dump();
}

void read_amax(runtime::Scales& scales, const std::map<std::string, std::string>& metadata,
               const std::filesystem::path& file) {
  const auto entry = metadata.find(io::kAmaxKey);
  if (entry == metadata.end() || !has_history(scales)) return;
  nlohmann::json object;
  try {
    object = io::parse_json(entry->second, file);
  } catch (const FileError&) {
    refuse(file, "is not JSON");
  }
  if (!object.is_object()) refuse(file, "is not a JSON object of magnitudes by tensor");
  std::map<std::string, float> magnitudes;
  for (const auto& [name, value] : object.items()) {
    const double amax = value.is_number() ? value.get<double>() : 0;
    if (!(amax > 0) || amax > std::numeric_limits<float>::max())
      refuse(file, fmt::format("has {} for {}, which is not a magnitude of f32", value.dump(),
                               name_in_quotes(name)));
    magnitudes.emplace(name, static_cast<float>(amax));
  }
  scales.begin_with(magnitudes);
}

}  // namespace mantissa::weights
