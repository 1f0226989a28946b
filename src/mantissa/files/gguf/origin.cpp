#include "mantissa/files/gguf/origin.h"

#include <fmt/format.h>

#include "mantissa/files/gguf/type_counts.h"

namespace mantissa::gguf {
namespace {

constexpr const char* kPolicyKey = "mantissa.policy";
constexpr const char* kRoundedToKey = "mantissa.rounded_to";
constexpr const char* kHistoryKey = "mantissa.history";

}  // namespace

std::map<std::string, std::string> origin_of(const GgufFile& file) {
  std::map<std::string, std::string> metadata;
  for (const char* key : {kPolicyKey, kRoundedToKey, kHistoryKey}) {
    if (const std::optional<std::string> text = file.text(key)) metadata[key] = *text;
  }
  const TypeTraits* narrowest = narrowest_type(file);
  const bool plain = narrowest == nullptr || narrowest->plain;
  std::string& history = metadata[kHistoryKey];
  if (!history.empty()) history += "; ";
  history +=
      fmt::format("GGUF file with {}{}", types_text(type_counts(file)), plain ? "" : ", dequantized to f32");
  // A file that was written here may have been rounded to a narrower type before.
  if (narrowest != nullptr) metadata.emplace(kRoundedToKey, lower_name(*narrowest));
  return metadata;
}

}  // namespace mantissa::gguf
