#include "mantissa/setup/config/aliases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "mantissa/core/base/error_text.h"
#include "mantissa/setup/config/entries.h"
#include "mantissa/setup/config/options.h"

namespace mantissa::config {
namespace {

/// Returns the translated value as TOML, or "" for the value itself.
using Translate = std::string (*)(const toml::node& value, const std::string& where);

std::string same(const toml::node& /*value*/, const std::string& /*where*/) {
  return "";
}

/// Lit-GPT's names of bitsandbytes' formats, and the names here.
std::string quantized_base(const toml::node& value, const std::string& where) {
  struct Format {
    std::string_view name, base;
  };
  static constexpr Format kFormats[] = {{"bnb.nf4", "nf4"},
                                        {"bnb.nf4-dq", "nf4-double"},
                                        {"bnb.int8-training", "int8"},
                                        {"bnb.int8", "int8"},
                                        {"nf4", "nf4"},
                                        {"nf4-double", "nf4-double"},
                                        {"int8", "int8"}};
  const std::string name = value.value<std::string>().value_or("");
  for (const Format& format : kFormats) {
    if (format.name == name) return toml_text(std::string(format.base));
  }
  throw ConfigError(
      "{} = {}: expected bnb.nf4, bnb.nf4-dq or bnb.int8-training. Fix: adapter.base = "
      "\"nf4\", \"nf4-double\" or \"int8\"",
      where, shown(value));
}

/// PEFT's target_modules are the ends of layers' names, or "all-linear". A single string is a regular
/// expression there.
std::string scopes(const toml::node& value, const std::string& where) {
  const toml::array* array = value.as_array();
  const auto text = value.value<std::string>();
  const auto refuse_value = [&] {
    throw ConfigError(
        "{} = {}: expected names of linear layers, such as [\"q_proj\", \"v_proj\"], or "
        "\"all-linear\". Fix: adapter.target = [\"*.q_proj\", \"*.v_proj\"]",
        where, shown(value));
  };
  std::vector<std::string> names;
  if (array != nullptr) {
    for (const toml::node& item : *array) names.push_back(item.value<std::string>().value_or(""));
  } else if (text) {
    names.push_back(*text);
  }
  if (names.empty()) refuse_value();
  for (std::string& name : names) {
    if (name == "all-linear") continue;
    if (name.empty() || name.find_first_of("*?[]{}()|^$\\+ ") != std::string::npos) refuse_value();
    name.insert(0, "*.");
  }
  return toml_text(names);
}

struct Alias {
  std::string_view name;
  std::vector<std::string_view> keys;  // "adapter.rank"
  Translate translate = same;
};

/// Of PEFT (lora_alpha, lora_dropout, target_modules), Lit-GPT (lora_r, quantize) and OpenRLHF (lora_rank,
/// eps_clip, generate_max_len, actor_learning_rate, rollout_batch_size).
const std::vector<Alias>& aliases() {
  static const std::vector<Alias> all = {
      {"lora_r", {"adapter.rank"}},
      {"lora_rank", {"adapter.rank"}},
      {"lora_alpha", {"adapter.alpha"}},
      {"lora_dropout", {"adapter.dropout"}},
      {"attn_pdrop", {"train.attention_dropout"}},
      {"resid_pdrop", {"train.residual_dropout"}},
      {"target_modules", {"adapter.target"}, scopes},
      {"quantize", {"adapter.base"}, quantized_base},
      {"clip_eps", {"rl.clip_low", "rl.clip_high"}},
      {"eps_clip", {"rl.clip_low", "rl.clip_high"}},
      {"generate_max_len", {"rl.max_new_tokens"}},
      {"actor_learning_rate", {"optimizer.lr"}},
      {"rollout_batch_size", {"rl.prompts_per_step"}},
  };
  return all;
}

const Alias* find_alias(std::string_view name) {
  const auto found = std::ranges::find(aliases(), name, &Alias::name);
  return found == aliases().end() ? nullptr : &*found;
}

}  // namespace

bool is_alias(std::string_view name) {
  return find_alias(name) != nullptr;
}

std::string key_of_alias(std::string_view name) {
  const Alias* alias = find_alias(name);
  return alias == nullptr ? "" : std::string(alias->keys.front());
}

std::string about_alias(std::string_view name) {
  if (name == "all-linear")
    return "all-linear is a value of adapter.target: all linear layers but the head, as \"*\".";
  const Alias* alias = find_alias(name);
  if (alias == nullptr || alias->keys.size() == 1) return "";
  return fmt::format("{} is {} here.", name, fmt::join(alias->keys, " and "));
}

std::vector<std::string_view> alias_names() {
  std::vector<std::string_view> names;
  for (const Alias& alias : aliases()) names.push_back(alias.name);
  return names;
}

std::vector<AliasedKey> read_alias(std::string_view name, const toml::node& value, const std::string& where) {
  const Alias& alias = *find_alias(name);
  const std::string translated = alias.translate(value, fmt::format("{}: {}", where, name));
  std::vector<AliasedKey> keys;
  for (const std::string_view key : alias.keys) {
    const std::size_t dot = key.find('.');
    keys.push_back({std::string(key.substr(0, dot)), std::string(key.substr(dot + 1)), translated});
  }
  return keys;
}

}  // namespace mantissa::config
