#include "mantissa/files/convert/origin.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "mantissa/files/io/json.h"

namespace mantissa::convert {
namespace {

std::string rounding_text(const Change& change) {
  std::string text;
  switch (change.rounding) {
    case Rounding::nearest:
      text = "rounded to nearest";
      break;
    case Rounding::toward_zero:
      text = "rounded toward zero";
      break;
    case Rounding::stochastic:
      text = fmt::format("rounded stochastically with seed {}", change.seed);
      break;
  }
  return change.saturate ? text + ", saturated" : text;
}

void set_dtype(nlohmann::ordered_json& config, const std::string& name, bool always) {
  bool named = false;
  for (const char* key : {"torch_dtype", "dtype"}) {
    const auto it = config.find(key);
    if (it == config.end()) continue;
    *it = name;
    named = true;
  }
  if (!named && always) config["torch_dtype"] = name;
  for (auto& [key, value] : config.items()) {
    if (value.is_object() && key.ends_with("_config") && key != "quantization_config")
      set_dtype(value, name, false);
  }
}

}  // namespace

std::optional<std::string> described(std::span<const OutputTensor> outputs, const Change& change) {
  std::set<std::string_view> from;
  bool rounded = false, scaled = false, adapted = false;
  for (const OutputTensor& output : outputs) {
    if (keeps(output, change)) continue;
    from.insert(io::safetensors_name(output.tensor->dtype));
    rounded = rounded || rounds(output, change);
    scaled = scaled || output.scale != nullptr;
    adapted = adapted || output.adapter != nullptr;
  }
  if (from.empty()) return std::nullopt;
  const std::string to =
      change.format ? std::string(rounded_to(change)) : fmt::format("{}", fmt::join(from, " and "));
  return fmt::format("{}{}{} to {}{}", fmt::join(from, " and "), scaled ? " times its scales" : "",
                     adapted ? " and an adapter" : "", to, rounded ? ", " + rounding_text(change) : "");
}

Metadata metadata_after(Metadata before, std::span<const OutputTensor> outputs, const Change& change) {
  const std::optional<std::string> what = described(outputs, change);
  if (!what) return before;
  std::string& history = before[kHistoryKey];
  history += (history.empty() ? "" : "; ") + *what;
  std::optional<Scalar> narrowest;
  for (const OutputTensor& output : outputs) {
    if (rounds(output, change)) {
      before[kRoundedToKey] = change.format ? rounded_to(change) : name(*io::scalar_of(output.tensor->dtype));
      return before;
    }
    const std::optional<Scalar> stored = io::scalar_of(output.tensor->dtype);
    if (stored && (!narrowest || mantissa::bytes_of(*stored) < mantissa::bytes_of(*narrowest)))
      narrowest = stored;
  }
  if (!narrowest) return before;
  const auto known = before.find(kRoundedToKey);
  if (known != before.end() && !parse_scalar(known->second))
    return before;  // a block format or a quantized type, narrower than any plain format
  const std::optional<Scalar> last = known == before.end() ? std::nullopt : parse_scalar(known->second);
  if (!last || mantissa::bytes_of(*narrowest) < mantissa::bytes_of(*last))
    before[kRoundedToKey] = name(*narrowest);
  return before;
}

std::string config_with_dtype(const std::string& text, const std::filesystem::path& file, io::Dtype stored,
                              bool dequantized) {
  io::parse_json(text, file);  // checks the text; the second parse keeps the order of the keys
  nlohmann::ordered_json config = nlohmann::ordered_json::parse(text);
  if (!config.is_object()) return text;
  set_dtype(config, std::string(io::torch_name(stored)), true);
  if (dequantized) config.erase("quantization_config");
  return config.dump(2) + "\n";
}

}  // namespace mantissa::convert
