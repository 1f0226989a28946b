#include "mantissa/setup/config/entries.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/policy/fields.h"
#include "mantissa/precision/policy/rule_toml.h"
#include "mantissa/setup/config/aliases.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/setup/config/unknown.h"

namespace mantissa::config {
namespace {

constexpr std::size_t kLongestConfig = std::size_t{1} << 20;
constexpr std::string_view kPrecision = "precision";
constexpr std::string_view kSet = "--set";  // where an override was written

bool is_section(std::string_view name) {
  return std::ranges::find(section_names(), name) != section_names().end();
}

bool is_key(std::string_view section, std::string_view key) {
  const std::vector<std::string> keys = keys_of(section);
  return std::ranges::find(keys, key) != keys.end() ||
         (section == kPrecision && precision::find_field(key) != nullptr);
}

/// Returns the position after the string that starts at `at`, or the end of the line for an unterminated
/// string.
std::size_t after_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool lines = text.substr(at, 3) == three;
  const std::string_view end = lines ? std::string_view(three) : std::string_view(three).substr(0, 1);
  for (at += end.size(); at < text.size(); ++at) {
    if (text[at] == '\\' && quote == '"') {
      ++at;
    } else if (text.substr(at, end.size()) == end) {
      return at + end.size();
    } else if (text[at] == '\n' && !lines) {
      return at;
    }
  }
  return text.size();
}

/// Rejects keys with very many parts: their nested tables overflow the stack when they are destroyed.
void check_keys(std::string_view text, const std::string& where) {
  constexpr int kMostDots = 32;
  const auto in_key = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
           c == '_' || c == ' ' || c == '\t';
  };
  int dots = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '"' || text[at] == '\'') {
      at = after_string(text, at);
      continue;
    }
    if (text[at] == '#') at = std::min(text.find('\n', at), text.size() - 1);
    dots = text[at] == '.' ? dots + 1 : in_key(text[at]) ? dots : 0;
    if (dots > kMostDots) {
      const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
      throw ConfigError("{}:{}: a key has more than {} parts; config keys have two or three", where, line,
                        kMostDots);
    }
    ++at;
  }
}

/// Throws the error for a key that is set twice, once as the alias `alias`.
[[noreturn]] void refuse_twice(std::string_view where, std::string_view alias, std::string_view section,
                               std::string_view key, std::string_view other) {
  throw ConfigError("{}: {} sets {}.{}, as {} does. Fix: keep one of them", where, alias, section, key,
                    other);
}

/// Returns the beginning of the note on an alias.
std::string note_start(const Entry& of) {
  return fmt::format("{}: {} sets ", of.origin, of.alias);
}

/// Returns the note on the alias of `of`, or "" if other keys override all of its own.
std::string alias_note(const Entries& out, const Entry& of) {
  std::string sets;
  for (const Entry& e : out.all) {
    if (e.alias != of.alias || e.origin != of.origin) continue;
    sets += fmt::format("{}{}.{} = {}", sets.empty() ? "" : " and ", e.section, e.key, e.shown_value);
  }
  return sets.empty() ? "" : note_start(of) + sets;
}

/// Adds the keys that an alias stands for, with a note. `entry` has the alias as its key, and its value.
void add_alias(Entries& out, const Entry& entry) {
  Entry own = entry;
  own.alias = entry.key;
  for (const AliasedKey& to : read_alias(entry.key, *entry.value, entry.where)) {
    own.value = entry.value;
    own.section = to.section;
    own.key = to.key;
    own.stray = entry.section != to.section;
    own.shown_value = to.value.empty() ? shown(*entry.value) : to.value;
    if (!to.value.empty()) {
      out.documents.push_back(std::make_unique<toml::table>(toml::parse("value = " + to.value)));
      own.value = out.documents.back()->get("value");
    }
    if (const Entry* other = out.find(to.section, to.key))
      refuse_twice(entry.where, entry.key, to.section, to.key, other->where);
    out.all.push_back(own);
  }
  out.notes.push_back(alias_note(out, own));
}

/// Removes a key that an override sets, under the name `by`. The note on an alias then names what it still
/// sets. Throws ConfigError if another override sets the same key under another name.
void replace_key(Entries& out, std::string_view section, std::string_view key, std::string_view by) {
  const auto at =
      std::ranges::find_if(out.all, [&](const Entry& e) { return e.section == section && e.key == key; });
  if (at == out.all.end()) return;
  const Entry old = *at;
  const std::string name = fmt::format("{}.{}", section, key);
  const std::string written = old.alias.empty() ? name : old.alias;
  if (old.where == kSet && written != by) {
    const bool alias = by != name;
    refuse_twice(kSet, alias ? by : written, section, key,
                 fmt::format("--set {}", alias ? written : std::string(by)));
  }
  out.all.erase(at);
  if (old.alias.empty()) return;
  const auto note =
      std::ranges::find_if(out.notes, [&](const std::string& n) { return n.starts_with(note_start(old)); });
  if (note == out.notes.end()) return;
  *note = alias_note(out, old);
  if (note->empty()) out.notes.erase(note);
}

class Collector {
 public:
  Collector(Entries& out, const std::filesystem::path& file)
      : out_(out), base_(file.parent_path()), short_name_(file.filename().string()) {}

  void add_document(const toml::table& document) {
    for (const auto& [key, node] : document) {
      const std::string name(key.str());
      if (const toml::table* table = node.as_table()) {
        if (!is_section(name)) throw ConfigError("{}: {}", where(node), unknown_section(name));
        add_section(name, *table);
      } else if (is_section(name) && name != kPrecision) {
        throw ConfigError("{}: \"{}\" is a section; write its keys under [{}]", where(node), name, name);
      } else if (is_alias(name)) {
        aliases_.push_back(entry("", name, node));
      } else {
        throw ConfigError("{}: {}", where(node), unknown_key("", name));
      }
    }
    const auto by_line = [](std::vector<Entry>& entries) {
      std::ranges::stable_sort(entries, {}, [](const Entry& e) { return e.value->source().begin.line; });
    };
    by_line(out_.all);
    by_line(aliases_);
    for (const Entry& alias : aliases_) add_alias(out_, alias);
  }

 private:
  std::string where(const toml::node& node) const {
    return fmt::format("{}:{}", out_.file, node.source().begin.line);
  }

  void add_section(const std::string& section, const toml::table& table) {
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      if (section == kPrecision && name == "loss_scale" && node.is_table()) {
        add_section(std::string(kLossScale), *node.as_table());
        continue;
      }
      if (is_key(section, name)) {
        out_.all.push_back(entry(section, name, node));
      } else if (is_alias(name)) {
        aliases_.push_back(entry(section, name, node));
      } else {
        throw ConfigError("{}: {}", where(node), unknown_key(section, name));
      }
    }
  }

  Entry entry(const std::string& section, const std::string& name, const toml::node& node) const {
    const std::string origin = fmt::format("{}:{}", short_name_, node.source().begin.line);
    return {section, name, &node, where(node), origin, base_, "", false};
  }

  Entries& out_;
  std::filesystem::path base_;
  std::string short_name_;
  std::vector<Entry> aliases_;  // keys of other trainers
};

/// Parses the value of an override as TOML or, failing that, as a bare string.
std::unique_ptr<toml::table> override_value(std::string_view value, std::string_view whole) {
  check_keys(value, "--set");
  const auto parse = [](const std::string& text) {
    return std::make_unique<toml::table>(toml::parse("value = " + text));
  };
  try {
    std::unique_ptr<toml::table> table = parse(std::string(value));
    if (table->size() == 1 && table->contains("value")) return table;
  } catch (const toml::parse_error&) {
    // a bare string
  }
  try {
    return parse(toml_text(std::string(value)));
  } catch (const toml::parse_error&) {
    throw ConfigError("--set {}: the value is not UTF-8", in_quotes(whole));
  }
}

void add_override(Entries& out, std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string_view name = trimmed(text.substr(0, equals));
  if (equals == std::string_view::npos || name.empty()) {
    throw ConfigError("--set {}: must be section.key=value, such as run.steps=100", in_quotes(text));
  }
  const std::size_t dot = name.rfind('.');
  const std::string section(dot == std::string_view::npos ? "" : name.substr(0, dot));
  const std::string key(dot == std::string_view::npos ? name : name.substr(dot + 1));
  if (!section.empty() && !is_section(section)) {
    throw ConfigError("--set {}: {}", in_quotes(text), unknown_section(section));
  }
  const bool alias = is_alias(key) && !is_key(section, key);
  if (!alias && (section.empty() || !is_key(section, key))) {
    throw ConfigError("--set {}: {}", in_quotes(text), unknown_key(section, key));
  }
  const std::string_view value = trimmed(text.substr(equals + 1));
  out.documents.push_back(override_value(value, text));
  const Entry entry{
      section, key, out.documents.back()->get("value"), "--set", "--set", "", std::string(value), false};
  if (alias) {
    for (const AliasedKey& to : read_alias(key, *entry.value, "--set"))
      replace_key(out, to.section, to.key, key);
    return add_alias(out, entry);
  }
  replace_key(out, section, key, fmt::format("{}.{}", section, key));
  out.all.push_back(entry);
}

/// Makes the run one of LoRA if keys of other trainers describe an adapter, unless the config says otherwise.
void add_adapter(Entries& out) {
  if (out.find("adapter", "kind") != nullptr) return;
  const auto of_adapter = std::ranges::find_if(
      out.all, [](const Entry& e) { return e.section == "adapter" && !e.alias.empty() && e.key != "base"; });
  if (of_adapter == out.all.end()) return;
  out.documents.push_back(std::make_unique<toml::table>(toml::parse("value = \"lora\"")));
  Entry kind = *of_adapter;
  kind.key = "kind";
  kind.value = out.documents.back()->get("value");
  out.notes.push_back(fmt::format("{}: {} sets adapter.kind = \"lora\"", kind.origin, kind.alias));
  out.all.push_back(std::move(kind));
}

/// Adds the keys of a DeepSpeed file, which override those of the config's text.
void add_deepspeed(Entries& out, const compat::DeepSpeedFile& file, bool policy_replaced) {
  const bool policy = !policy_replaced && file.find(kPrecision, "policy") != nullptr;
  std::erase_if(out.all, [&](const Entry& e) {
    const bool of_policy =
        (e.section == kPrecision && (e.key == "policy" || precision::find_field(e.key) != nullptr)) ||
        e.section == kLossScale;
    return (policy && of_policy) || file.find(e.section, e.key) != nullptr;
  });
  for (const std::vector<compat::DeepSpeedSetting>* list : {&file.settings, &file.scaler}) {
    for (const compat::DeepSpeedSetting& s : *list) {
      if (policy_replaced && s.section == kPrecision) continue;
      out.documents.push_back(std::make_unique<toml::table>(toml::parse("value = " + s.value)));
      const std::string where = fmt::format("{} ({})", file.name, s.from);
      out.all.push_back({s.section, s.key, out.documents.back()->get("value"), where, where, "", "", true});
    }
  }
}

}  // namespace

void check_toml_text(std::string_view text, const std::string& file) {
  if (text.size() > kLongestConfig) {
    throw FileError("{}: is larger than 1 MiB, too large for a config; give the path of a config file", file);
  }
  if (text.find('\0') != std::string_view::npos) {
    throw FileError("{}: expected a config, a TOML text, got binary data; give the path of a config file",
                    file);
  }
  check_keys(text, file);
}

const Entry* Entries::find(std::string_view section, std::string_view key) const {
  const auto found =
      std::ranges::find_if(all, [&](const Entry& e) { return e.section == section && e.key == key; });
  return found == all.end() ? nullptr : &*found;
}

std::string Entries::where(std::string_view section, std::string_view key) const {
  const Entry* entry = find(section, key);
  return entry == nullptr ? file : entry->where;
}

Entries read_entries(std::string_view text, const std::filesystem::path& file,
                     std::span<const std::string> overrides, const compat::DeepSpeedFile* deepspeed,
                     bool policy_replaced) {
  Entries entries;
  entries.file = file.string();
  check_toml_text(text, entries.file);
  try {
    entries.documents.push_back(std::make_unique<toml::table>(toml::parse(text)));
  } catch (const toml::parse_error& e) {
    const toml::source_position at = e.source().begin;
    throw ConfigError("{}:{}: not valid TOML at column {}: {}", entries.file, at.line, at.column,
                      e.description());
  }
  Collector(entries, file).add_document(*entries.documents.front());
  if (deepspeed != nullptr) add_deepspeed(entries, *deepspeed, policy_replaced);
  for (const std::string& text_of_override : overrides) add_override(entries, text_of_override);
  add_adapter(entries);
  return entries;
}

std::string shown(const toml::node& value) {
  if (const auto* text = value.as_string()) return in_quotes(text->get());
  if (const auto* number = value.as_floating_point()) return toml_text(number->get());
  if (const auto scalar = precision::value_text(value)) return *scalar;
  return value.is_array() ? "an array" : value.is_table() ? "a table" : "a date or time";
}

void refuse(const Entry& entry, std::string_view why) {
  const std::string name = entry.alias.empty()
                               ? fmt::format("{}.{}", entry.section, entry.key)
                               : fmt::format("{} ({}.{})", entry.alias, entry.section, entry.key);
  throw ConfigError("{}: {} = {}: {}", entry.where, name, shown(*entry.value), why);
}

}  // namespace mantissa::config
