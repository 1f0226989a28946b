#include "mantissa/files/io/state_header.h"

#include <cmath>
#include <limits>

#include "mantissa/core/base/error_text.h"
#include "mantissa/files/io/hash.h"

namespace mantissa::io {
namespace {

constexpr int kVersion = 1;  // increased when an older program could misread the file

std::string checksum(const nlohmann::json& json) {
  const std::string text = json.dump();
  Hash64 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hex(hash.digest());
}

/// Returns an entry that is a whole number. Throws for fractions, which get() would convert, without a
/// defined result beyond the range.
std::int64_t whole(const nlohmann::json& object, const char* key) {
  return object.at(key).get_ref<const nlohmann::json::number_integer_t&>();
}
/// The same, or 0 without the entry, which states of earlier versions may lack.
std::int64_t whole_or_0(const nlohmann::json& object, const char* key) {
  return object.contains(key) ? whole(object, key) : 0;
}

}  // namespace

nlohmann::json json_of_header(const StateHeader& header) {
  nlohmann::json json = {
      {"format", "mantissa.state"},
      {"version", kVersion},
      {"step", header.step},
      {"applied", header.applied},
      {"skipped", header.skipped},
      {"tokens", header.tokens},
      {"data_position", header.data_position},
      {"loss", std::isfinite(header.loss) ? nlohmann::json(header.loss) : nlohmann::json()},
      {"seed", header.seed},
      {"rng", header.rng},
      {"scaler", nullptr},
      {"config_toml", header.config_toml},
      {"model_config", header.model_config},
      {"policy", header.policy},
      {"changes", header.changes}};
  if (header.stage_applied != 0) json["stage_applied"] = header.stage_applied;
  if (header.validates) json["validates"] = true;
  if (!header.frozen_xxh64.empty()) json["frozen_xxh64"] = header.frozen_xxh64;
  if (!header.fixed_xxh64.empty()) json["fixed_xxh64"] = header.fixed_xxh64;
  if (!header.data_xxh64.empty()) json["data_xxh64"] = header.data_xxh64;
  if (header.scaler) {
    json["scaler"] = {{"scale", header.scaler->scale},
                      {"iteration", header.scaler->iteration},
                      {"last_overflow", header.scaler->last_overflow},
                      {"hysteresis", header.scaler->hysteresis},
                      {"forward_overflows", header.forward_overflows}};
  }
  return json;
}

std::string sealed(nlohmann::json json) {
  try {
    json["xxh64"] = checksum(json);
    return json.dump(2) + "\n";
  } catch (const nlohmann::json::exception&) {
    throw ConfigError(
        "the state cannot be written: its config, policy or a tensor name is not UTF-8. Fix: write it in "
        "UTF-8");
  }
}

StateHeader open_sealed(nlohmann::json json, const std::filesystem::path& file) {
  const std::string name = file.string();
  if (!json.is_object() || !json.contains("format") || json["format"] != "mantissa.state") {
    throw FileError("{}: is not the state of a run", name);
  }
  if (json.at("version") != kVersion) {
    throw FileError("{}: has version {}, but this program reads version {}; use the program that wrote it",
                    name, json.at("version").dump(), kVersion);
  }
  const std::string written = json.at("xxh64").get<std::string>();
  json.erase("xxh64");
  const std::string found = checksum(json);
  if (found != written) {
    throw FileError("{}: this state is damaged: its checksum is {}, but {} was written", name, found,
                    written);
  }
  StateHeader header;
  header.step = whole(json, "step");
  header.applied = whole(json, "applied");
  header.stage_applied = whole_or_0(json, "stage_applied");  // absent in the first stage
  header.skipped = whole(json, "skipped");
  header.tokens = whole(json, "tokens");
  header.data_position = whole(json, "data_position");
  const nlohmann::json& loss = json.at("loss");
  header.loss = loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>();
  using Counter = nlohmann::json::number_unsigned_t;
  header.seed = json.at("seed").get_ref<const Counter&>();
  for (const auto& [name, counter] : json.at("rng").get_ref<const nlohmann::json::object_t&>())
    header.rng.emplace(name, counter.get_ref<const Counter&>());
  json.at("config_toml").get_to(header.config_toml);
  json.at("model_config").get_to(header.model_config);
  json.at("policy").get_to(header.policy);
  json.at("changes").get_to(header.changes);
  header.validates = json.value("validates", false);  // absent unless a stop came
  header.frozen_xxh64 = json.value("frozen_xxh64", "");
  header.fixed_xxh64 = json.value("fixed_xxh64", "");
  header.data_xxh64 = json.value("data_xxh64", "");
  if (const nlohmann::json& scaler = json.at("scaler"); !scaler.is_null()) {
    header.scaler = precision::ScalerState{scaler.at("scale").get<double>(), whole(scaler, "iteration"),
                                           whole(scaler, "last_overflow"), whole(scaler, "hysteresis")};
    header.forward_overflows = whole_or_0(scaler, "forward_overflows");  // absent in older states
  }
  return header;
}

}  // namespace mantissa::io
