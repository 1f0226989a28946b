#include "mantissa/setup/config/new_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "assets/init.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::config {
namespace {

/// Returns `text` for a string of TOML in double quotes.
std::string in_toml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 127) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

using Place = std::pair<std::string_view, std::string_view>;

/// Returns `text` with the second of each pair in place of the first.
std::string filled(std::string_view text, std::span<const Place> places) {
  std::string out;
  while (!text.empty()) {
    const auto place =
        std::ranges::find_if(places, [&](const Place& p) { return text.starts_with(p.first); });
    const bool found = place != places.end();
    out += found ? place->second : text.substr(0, 1);
    text.remove_prefix(found ? place->first.size() : 1);
  }
  return out;
}

}  // namespace

const ConfigTask& config_task(std::string_view name) {
  const std::span<const ConfigTask> tasks = config_tasks();
  const auto found = std::ranges::find(tasks, name, &ConfigTask::name);
  if (found != tasks.end()) return *found;
  const std::vector<std::string> names = names_of(tasks, &ConfigTask::name);
  throw ConfigError("init: expected one of {}, got {}{}", list_of(names), in_quotes(name),
                    did_you_mean(name, names));
}

std::string new_config(const ConfigTask& task, const NewConfig& o) {
  std::string about(task.summary);
  about.front() = static_cast<char>(about.front() - 'a' + 'A');
  const std::string name = in_toml(o.name),
                    model = in_toml(o.model.empty() ? kUnknownModel : std::string_view(o.model)),
                    source = in_toml(o.source.empty() ? task.source : std::string_view(o.source)),
                    reward = in_toml(o.reward);
  const Place values[] = {{"{about}", about},   {"{precision}", assets::kPrecisionPartToml},
                          {"{name}", name},     {"{model}", model},
                          {"{source}", source}, {"{reward}", reward}};
  const std::string text = std::string(assets::kFirstPartToml) + '\n' + std::string(task.text) + '\n';
  return filled(filled(text, config_pieces()), values);
}

}  // namespace mantissa::config
