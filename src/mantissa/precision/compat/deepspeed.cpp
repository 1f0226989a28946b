#include "mantissa/precision/compat/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <limits>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/numeric/format.h"
#include "mantissa/precision/compat/deepspeed_block.h"
#include "mantissa/precision/compat/foreign_dtypes.h"

namespace mantissa::compat {
namespace {

constexpr std::string_view kPrecision = "precision";
constexpr std::string_view kLossScale = "precision.loss_scale";
constexpr std::string_view kDistributed = "distributed";

/// The state of a block's "enabled" key. DeepSpeed's default is off.
enum class Switch { unsaid, off, on, automatic };

/// A block without "enabled" is off. Reports its keys outside `known`, among which may be a misspelt
/// "enabled".
void look_for_switch(DeepSpeedBlock& block, std::initializer_list<std::string_view> known) {
  if (!block.exists() || block.has("enabled")) return;
  for (const std::string_view key : known) block.skip(key);
  block.rest();
}

Switch enabled(DeepSpeedBlock& block) {
  if (!block.exists()) return Switch::unsaid;
  if (block.is_auto("enabled")) {
    block.flag("enabled", {kPrecision, "policy"});
    return Switch::automatic;
  }
  return block.flag("enabled").value_or(false) ? Switch::on : Switch::off;
}

/// Returns the key that decides: "bf16.enabled", or the block if it lacks that key.
std::string switch_of(const DeepSpeedBlock& block) {
  const std::string key = block.path("enabled");
  return block.has("enabled") ? key
                              : fmt::format("{}, which does not set enabled", key.substr(0, key.rfind('.')));
}

/// Reads "fp32", "fp16", "bf16" or another spelling that DeepSpeed accepts.
std::optional<std::string> dtype(DeepSpeedBlock& block, std::string_view key, ConfigKey config) {
  constexpr std::array kFloats = {Scalar::f32, Scalar::bf16, Scalar::f16};
  const std::optional<std::string> text = block.text(key, config);
  if (!text) return std::nullopt;
  const std::optional<Scalar> format = parse_scalar(*text);
  if (!format || std::ranges::find(kFloats, *format) == kFloats.end()) {
    static const std::vector<std::string> kNames = {"fp32", "fp16", "bf16"};
    block.refuse(key, fmt::format("must be fp32, fp16 or bf16{}", did_you_mean(*text, kNames)));
  }
  return std::string(name(*format));
}

struct Reader {
  DeepSpeedFile& out;
  std::vector<DeepSpeedSetting> distributed = {};  // the last ones of the file

  void set(std::string_view section, std::string_view key, std::string value, std::string from) {
    out.settings.push_back({std::string(section), std::string(key), std::move(value), std::move(from)});
  }
  void set_scaler(std::string_view key, std::string value, std::string from, bool said = true) {
    out.scaler.push_back(
        {std::string(kLossScale), std::string(key), std::move(value), std::move(from), said});
  }

  void contradiction(const std::string& a, const std::string& b) const {
    throw ConfigError("{}: {} and {} are both true; keep one", out.name, a, b);
  }

  /// Returns the stage of ZeRO, or null for a file that consists only of precision blocks and omits the
  /// stage.
  std::optional<std::int64_t> stage(DeepSpeedBlock& root, bool fragment) {
    if (root.has("zero_optimization")) {
      DeepSpeedBlock zero = root.block("zero_optimization", true);
      if (!zero.exists()) {
        // Old files have a boolean: true means stage 1.
        return root.flag("zero_optimization").value_or(false) ? 1 : 0;
      }
      const std::optional<std::int64_t> said = zero.whole("stage", 0, {kDistributed, "zero"});
      if (said && *said > 3) zero.refuse("stage", "must be 0, 1, 2 or 3");
      if (said)
        distributed.push_back({std::string(kDistributed), "zero", std::to_string(*said), zero.path("stage")});
      const ConfigKey threshold = {kDistributed, "persistence_threshold"};
      if (const auto least = zero.whole("stage3_param_persistence_threshold", 0, threshold))
        distributed.push_back({std::string(threshold.section), std::string(threshold.key),
                               std::to_string(*least), zero.path("stage3_param_persistence_threshold")});
      zero.rest();
      return said.value_or(0);
    }
    return fragment ? std::nullopt : std::optional<std::int64_t>(0);
  }

  void scaler(DeepSpeedBlock& fp16, std::optional<std::int64_t> stage) {
    const double constant = fp16.number("loss_scale", {kLossScale, "loss_scale"}).value_or(0);
    if (constant < 0 || constant > std::numeric_limits<float>::max())
      fp16.refuse("loss_scale", "must be 0 (dynamic) or a positive constant within f32");
    const auto power = fp16.whole("initial_scale_power", 0, {kLossScale, "initial_scale_power"});
    const auto window =
        fp16.whole("loss_scale_window", constant > 0 ? 0 : 1, {kLossScale, "loss_scale_window"});
    const auto hysteresis = fp16.whole("hysteresis", 1, {kLossScale, "hysteresis"});
    const auto consecutive = fp16.flag("consecutive_hysteresis", {kLossScale, "consecutive_hysteresis"});
    const auto minimum = fp16.number("min_loss_scale", {kLossScale, "min_loss_scale"});
    if (constant > 0) {
      set_scaler("loss_scale", fmt::format("{}", constant), fp16.path("loss_scale"));
      return;
    }
    if (minimum && !(*minimum > 0)) fp16.refuse("min_loss_scale", "must be above 0");
    if (power && *power > 127) fp16.refuse("initial_scale_power", "must be at most 127: the loss is f32");
    const auto set_from = [&](std::string_view key, std::string value) {
      set_scaler(key, std::move(value), fp16.path(key), fp16.has(key) && !fp16.is_auto(key));
    };
    set_scaler("rule", "\"deepspeed\"", fp16.path("enabled"), false);
    set_from("loss_scale", "0");
    set_from("initial_scale_power", std::to_string(power.value_or(16)));
    set_from("loss_scale_window", std::to_string(window.value_or(1000)));
    set_from("min_loss_scale", fmt::format("{}", minimum.value_or(1)));
    if (stage == 0) {
      for (const auto& [key, value] :
           {std::pair{"hysteresis", "1"}, std::pair{"consecutive_hysteresis", "false"},
            std::pair{"raise_error_at_min_scale", "false"}})
        set_scaler(key, value, "zero_optimization.stage");
      out.scaler_warning =
          "zero_optimization.stage is 0: DeepSpeed's scaler then has no hysteresis and never stops at the "
          "minimum scale, where it skips every step that overflows; this run does the same. Stages 1, 2 and "
          "3 use hysteresis and stop at the minimum";
      return;
    }
    set_from("hysteresis", std::to_string(hysteresis.value_or(2)));
    set_from("consecutive_hysteresis", consecutive.value_or(false) ? "true" : "false");
    set_scaler("raise_error_at_min_scale", "true", "zero_optimization.stage", false);
  }

  /// NVIDIA apex: the levels O0 to O3, and a scaler with PyTorch's rule.
  std::optional<std::string> amp(DeepSpeedBlock& amp) {
    if (enabled(amp) != Switch::on) {
      look_for_switch(amp, {"opt_level"});
      return std::nullopt;
    }
    const std::string level = amp.text("opt_level").value_or("O1");
    if (level != "O0" && level != "O1" && level != "O2" && level != "O3")
      amp.refuse("opt_level", "must be O0, O1, O2 or O3");
    amp.rest();
    if (level == "O0") return "32-true";
    if (level == "O3") return "16-true";
    set_scaler("rule", "\"torch\"", "amp.enabled");
    return "16-mixed";
  }

  std::optional<std::string> autocast(DeepSpeedBlock& block) {
    if (enabled(block) != Switch::on) {
      look_for_switch(block, {"dtype", "lower_precision_safe_modules"});
      return std::nullopt;
    }
    const std::string format = dtype(block, "dtype", {}).value_or("f16");
    block.rest();
    if (format != "f16") return format == "bf16" ? "bf16-mixed" : "32-true";
    set_scaler("rule", "\"torch\"", "torch_autocast.dtype");
    return "16-mixed";
  }

  std::string fp16_policy(DeepSpeedBlock& fp16) {
    return fp16.flag("fp16_master_weights_and_grads").value_or(false) ? "16-true loss_scale=dynamic"
                                                                      : "16-mixed residual=f16";
  }

  std::string bf16_policy(DeepSpeedBlock& bf16) {
    const bool low = bf16.flag("bf16_master_weights_and_grads").value_or(false);
    const bool moments = bf16.flag("bf16_optimizer_states").value_or(false);
    if (moments && !low) {
      throw ConfigError("{}: bf16.bf16_optimizer_states needs bf16.bf16_master_weights_and_grads", out.name);
    }
    if (!moments) return low ? "bf16-true" : "bf16-mixed residual=bf16";
    out.warnings.push_back(
        "bf16.bf16_optimizer_states: DeepSpeed rounds the moments to nearest, which discards small changes "
        "of the second moment; this run rounds bf16 weights and moments stochastically");
    return "bf16-true optimizer=bf16 rounding=stochastic";
  }

  /// DeepSpeed casts the whole module, not only its products.
  void set_whole_module(const std::string& policy, const std::string& from, Scalar format) {
    set(kPrecision, "policy", fmt::format("\"{}\"", policy), from);
    if (policy.find("residual=") != std::string::npos) out.policy_note = whole_module_note(from, format);
  }

  void precision(DeepSpeedBlock& root, bool fragment) {
    DeepSpeedBlock fp16 = root.switched("fp16");
    const bool old = !root.has("bf16") && root.has("bfloat16");
    DeepSpeedBlock bf16 = root.switched(old ? "bfloat16" : "bf16");
    if (root.has("bf16") && root.has("bfloat16"))
      throw ConfigError("{}: bf16 and bfloat16 are the same block; keep one", out.name);
    DeepSpeedBlock apex = root.switched("amp"), torch = root.switched("torch_autocast");
    const Switch f16 = enabled(fp16), b16 = enabled(bf16);
    const std::string f16_key = switch_of(fp16), b16_key = switch_of(bf16);
    if (f16 == Switch::on && b16 == Switch::on) contradiction(f16_key, b16_key);
    const std::optional<std::int64_t> zero = stage(root, fragment);
    const std::optional<std::string> by_amp = amp(apex), by_torch = autocast(torch);
    if (by_amp && by_torch) contradiction("amp.enabled", "torch_autocast.enabled");
    // torch_autocast in the same 16-bit format as DeepSpeed's own block is not a contradiction.
    const bool same =
        (f16 == Switch::on && by_torch == "16-mixed") || (b16 == Switch::on && by_torch == "bf16-mixed");
    for (const auto& [by, key] :
         {std::pair{&by_amp, "amp.enabled"}, std::pair{&by_torch, "torch_autocast.enabled"}}) {
      if (!*by || (same && by == &by_torch)) continue;
      if (f16 == Switch::on) contradiction(f16_key, key);
      if (b16 == Switch::on) contradiction(b16_key, key);
      set(kPrecision, "policy", fmt::format("\"{}\"", **by), key);
    }
    const bool others = (by_amp || by_torch) && !same;
    if (same)
      std::erase_if(out.scaler, [](const DeepSpeedSetting& s) { return s.from == "torch_autocast.dtype"; });
    if (f16 == Switch::on) {
      set_whole_module(fp16_policy(fp16), f16_key, Scalar::f16);
    } else if (b16 == Switch::on) {
      set_whole_module(bf16_policy(bf16), b16_key, Scalar::bf16);
    } else if (!others && f16 != Switch::automatic && b16 != Switch::automatic &&
               (f16 == Switch::off || b16 == Switch::off)) {
      set(kPrecision, "policy", "\"32-true\"", f16 == Switch::off ? f16_key : b16_key);
    }
    if (!others && (f16 == Switch::on || f16 == Switch::automatic)) {
      scaler(fp16, zero);
      fp16.skip("fp16_master_weights_and_grads");
      fp16.rest();
    }
    if (b16 == Switch::on || b16 == Switch::automatic) {
      bf16.skip("bf16_master_weights_and_grads");
      bf16.skip("bf16_optimizer_states");
      bf16.rest();
    }
    look_for_switch(
        fp16, {"loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis",
               "consecutive_hysteresis", "min_loss_scale", "auto_cast", "fp16_master_weights_and_grads"});
    look_for_switch(bf16, {"bf16_master_weights_and_grads", "bf16_optimizer_states"});
  }

  /// Some trainers put an "fp8" block next to DeepSpeed's own.
  void fp8(DeepSpeedBlock& root) {
    DeepSpeedBlock block = root.switched("fp8");
    if (enabled(block) != Switch::on) return;
    out.warnings.push_back(
        "fp8.enabled is not a DeepSpeed key and has no effect; use --precision fp8-hybrid");
  }

  void formats(DeepSpeedBlock& root) {
    DeepSpeedBlock types = root.block("data_types");
    if (const auto format = dtype(types, "grad_accum_dtype", {kPrecision, "grads"}))
      set(kPrecision, "grads", fmt::format("\"{}\"", *format), types.path("grad_accum_dtype"));
    types.rest();
    if (const auto format = dtype(root, "communication_data_type", {kPrecision, "reduce"}))
      set(kPrecision, "reduce", fmt::format("\"{}\"", *format), "communication_data_type");
  }
};

/// True if the object is the fp16 block itself, without the file around it.
bool is_fp16_block(const JsonValue& root) {
  return root.find("enabled") != nullptr &&
         (root.find("loss_scale") != nullptr || root.find("loss_scale_window") != nullptr ||
          root.find("initial_scale_power") != nullptr || root.find("hysteresis") != nullptr);
}

}  // namespace

std::string DeepSpeedFile::short_name() const {
  return std::filesystem::path(name).filename().string();
}

const DeepSpeedSetting* DeepSpeedFile::find(std::string_view section, std::string_view key) const {
  for (const std::vector<DeepSpeedSetting>* list : {&settings, &scaler}) {
    const auto found = std::ranges::find_if(
        *list, [&](const DeepSpeedSetting& s) { return s.section == section && s.key == key; });
    if (found != list->end()) return &*found;
  }
  return nullptr;
}

std::optional<std::string> DeepSpeedFile::policy_line() const {
  const DeepSpeedSetting* policy = find(kPrecision, "policy");
  if (policy == nullptr) return std::nullopt;
  std::string line(unquoted(policy->value));
  for (const DeepSpeedSetting& s : settings) {
    if (s.section == kPrecision && s.key != "policy") line += fmt::format(" {}={}", s.key, unquoted(s.value));
  }
  if (!line.starts_with("16-mixed")) return line;
  const DeepSpeedSetting* constant = find(kLossScale, "loss_scale");
  const DeepSpeedSetting* power = find(kLossScale, "initial_scale_power");
  if (constant != nullptr && constant->value != "0") return line + " loss_scale=" + constant->value;
  return power == nullptr ? line : line + " loss_scale=dynamic:2^" + power->value;
}

DeepSpeedFile parse_deepspeed(std::string_view text, const std::string& name) {
  const JsonValue file = parse_relaxed_json(text, name);
  JsonValue wrapped;
  const bool block = is_fp16_block(file);
  if (block) {
    wrapped.kind = JsonValue::Kind::object;
    wrapped.keys = {"fp16"};
    wrapped.items = {file};
  }
  const JsonValue& value = block ? wrapped : file;
  constexpr std::array<std::string_view, 6> kPrecisionKeys = {"fp16", "bf16",           "bfloat16",
                                                              "amp",  "torch_autocast", "data_types"};
  const bool fragment = !value.keys.empty() && std::ranges::all_of(value.keys, [&](const std::string& key) {
    return std::ranges::find(kPrecisionKeys, key) != kPrecisionKeys.end();
  });
  DeepSpeedFile out;
  out.name = name;
  DeepSpeedBlock root(&value, "", out);
  Reader reader{out};
  reader.precision(root, fragment);
  reader.formats(root);
  reader.fp8(root);
  read_run(root, out);
  std::ranges::move(reader.distributed, std::back_inserter(out.settings));
  root.rest();
  return out;
}

DeepSpeedFile read_deepspeed(const std::filesystem::path& path, const std::string& named_by) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 20;
  if (!disk::is_file(path)) {
    throw FileError("{} {}: is not a file; expected the path of a DeepSpeed JSON file", named_by,
                    path.string());
  }
  return parse_deepspeed(disk::read_text_file(path, kLimit), path.string());
}

}  // namespace mantissa::compat
