#include "mantissa/lab/diff/config_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/policy/toml.h"
#include "mantissa/setup/config/entries.h"

namespace mantissa::lab {
namespace {

using ConfigKeys = std::vector<std::pair<std::string, std::string>>;  // in the order of the file

std::string toml_of(const toml::node& value) {
  std::ostringstream out;
  value.visit([&](const auto& node) {
    if constexpr (toml::is_table<decltype(node)>) {
      out << toml::toml_formatter(
          node, toml::toml_formatter::default_flags | toml::format_flags::terse_key_value_pairs);
    } else {
      out << node;
    }
  });
  return out.str();
}

/// Appends the keys of `table` in the order of their lines. The fields of a policy's line are keys of their
/// own.
void flatten(const toml::table& table, const std::string& prefix, ConfigKeys& keys) {
  std::vector<std::pair<const toml::key*, const toml::node*>> nodes;
  for (const auto& [key, node] : table) nodes.emplace_back(&key, &node);
  std::ranges::stable_sort(nodes, {}, [](const auto& entry) { return entry.first->source().begin.line; });
  for (const auto& [key, node] : nodes) {
    const std::string name = prefix + std::string(key->str());
    if (const toml::table* inner = node->as_table()) {
      flatten(*inner, name + ".", keys);
      continue;
    }
    const auto* text = node->as_string();
    if (name == "precision.policy" && text != nullptr && text->get().find('=') != std::string::npos) {
      for (const std::string_view field : split_words(text->get(), " ")) {
        const std::size_t equals = std::min(field.find('='), field.size());
        keys.emplace_back("precision." + std::string(field.substr(0, equals)),
                          std::string(field.substr(std::min(equals + 1, field.size()))));
      }
      continue;
    }
    keys.emplace_back(name, toml_of(*node));
  }
}

ConfigKeys keys_in(std::string_view text, const std::filesystem::path& file) {
  config::check_toml_text(text, file.string());
  ConfigKeys keys;
  try {
    flatten(toml::parse(text), "", keys);
  } catch (const toml::parse_error& e) {
    throw ConfigError(
        fmt::format("{}:{}: not valid TOML: {}", file.string(), e.source().begin.line, e.description()));
  }
  return keys;
}

std::string value_of(const ConfigKeys& keys, const std::string& key) {
  const auto found = std::ranges::find(keys, key, &ConfigKeys::value_type::first);
  return found == keys.end() ? "" : found->second;
}

/// True for keys that change memory, time or output, but no bit of a result (docs/cli/config-file.md).
bool changes_no_bit(std::string_view key) {
  return key == "run.threads" || key == "batch.micro_batch_size" || key == "batch.recompute" ||
         key == "batch.chunk_tokens" || key == "precision.native_only" || key.starts_with("log.") ||
         key.starts_with("checkpoint.");
}

bool is_absolute_path(std::string_view value) {
  for (const std::string_view start : {"\"/", "'/", "[ \"/", "[ '/", "[\"/", "['/"}) {
    if (value.starts_with(start)) return true;
  }
  return false;
}

}  // namespace

std::vector<ConfigDifference> compare_configs(std::string_view a, const std::filesystem::path& file_a,
                                              std::string_view b, const std::filesystem::path& file_b) {
  const ConfigKeys keys_a = keys_in(a, file_a), keys_b = keys_in(b, file_b);
  std::vector<ConfigDifference> all;
  const auto add = [&](const std::string& key) {
    if (key == "run.name" || key == "run.out") return;
    ConfigDifference d{key, value_of(keys_a, key), value_of(keys_b, key), ""};
    if (d.a == d.b) return;
    if (is_absolute_path(d.a) && is_absolute_path(d.b)) d.exempt = "paths";
    if (changes_no_bit(key)) {
      d.exempt = key == "batch.micro_batch_size" ? "changes no bit, unless a plan says that bits depend on it"
                                                 : "changes no bit";
    }
    all.push_back(std::move(d));
  };
  for (const auto& [key, value] : keys_a) add(key);
  for (const auto& [key, value] : keys_b) {
    if (value_of(keys_a, key).empty()) add(key);
  }
  return all;
}

}  // namespace mantissa::lab
