#include "mantissa/app/api/new_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/setup/config/new_config.h"
#include "mantissa/text/chat/unicode.h"
#include "mantissa/text/reward/rule.h"
#include "mantissa/text/rows/labelled_row.h"
#include "mantissa/text/rows/preference_row.h"
#include "mantissa/text/rows/readers.h"
#include "mantissa/text/rows/sources.h"

namespace mantissa::api {
namespace {

ConfigTask to_api(const config::ConfigTask& t) {
  return {std::string(t.name),  std::string(t.summary), std::string(t.command),
          std::string(t.needs), std::string(t.source),  t.has_model};
}

/// Returns a path of the current directory as one of the directory of `file`, from where a config's paths
/// begin. Throws ConfigError for a path that a config cannot hold.
std::string from_file(const std::string& path, const std::filesystem::path& file) {
  if (path.empty() || path == "kk") return path;
  const std::filesystem::path folder = std::filesystem::absolute(file).lexically_normal().parent_path();
  std::string relative =
      std::filesystem::absolute(path).lexically_normal().lexically_proximate(folder).string();
  if (!chat::unicode::valid(relative))
    throw ConfigError(fmt::format(
        "{}: the name is not UTF-8, which a config, a file of TOML, cannot hold. Fix: rename it", relative));
  return relative;
}

/// Returns the rule that scores the answers to `row`. Throws FileError if it is not a prompt.
std::string rule_for(const nlohmann::ordered_json& row, const std::string& where) {
  text::read_prompt(row, where);
  return row.contains("solution_text_format") ? "kk" : "exact";
}

/// Returns the rule for the first row of the files, or for rows with an answer if there is none yet.
std::string rule_of(const std::string& source) {
  if (source.empty() || source == "kk") return "kk";
  std::string rule = "exact";
  try {
    text::read_rows(text::expand_files({source}).front(),
                    [&](const nlohmann::ordered_json& row, const text::FilePlace&) {
                      rule = rule_for(row, "");
                      return false;
                    });
  } catch (const Error&) {  // data_fault() tells it
  }
  return rule;
}

/// Throws the error of reading the first row of `path`, if a run would throw it.
void check_file(const std::string& path, config::Rows rows) {
  if (rows == config::Rows::text) {
    text::RowDocument first;
    if (text::holds_rows(path, "auto")) text::RowDocuments(path).next(first);
    return;
  }
  std::string line;
  for (text::Lines lines(path); trimmed(line).empty();) {
    if (!lines.next(line)) throw FileError(fmt::format("{}: empty", path));
  }
  const bool json = trimmed(line).starts_with('{') || trimmed(line).starts_with('[');
  if (!json && !text::without_compression(path).ends_with(".csv"))
    throw FileError(fmt::format("{}: not JSON or CSV, but begins with {}", path, in_quotes(trimmed(line))));
  text::read_rows(path, [&](const nlohmann::ordered_json& row, const text::FilePlace& place) {
    const std::string where = place.in(path);
    if (rows == config::Rows::conversations) text::read_conversation(row, where);
    if (rows == config::Rows::pairs) text::read_preference(row, where);
    if (rows == config::Rows::labelled) text::read_labelled(row, where);
    if (rows == config::Rows::prompts) reward::make_rule(rule_for(row, where))->check_row(row, where);
    return false;
  });
}

}  // namespace

std::vector<ConfigTask> config_tasks() {
  std::vector<ConfigTask> all;
  for (const config::ConfigTask& task : config::config_tasks()) all.push_back(to_api(task));
  return all;
}

ConfigTask config_task(const std::string& name) {
  return to_api(config::config_task(name));
}

std::string data_fault(const ConfigTask& task, const std::string& source) {
  const config::Rows rows = config::config_task(task.name).rows;
  if (source == "kk") {
    if (rows == config::Rows::labelled)
      return fmt::format("generated rows have no label; {} needs {}", task.name, task.needs);
    if (rows != config::Rows::pairs) return {};
    return fmt::format("generated rows have one answer each; {} needs {}", task.name, task.needs);
  }
  try {
    for (const std::string& path : text::expand_files({source})) check_file(path, rows);
  } catch (const Error& e) {
    return fmt::format("{}; {} needs {}", e.what(), task.name, task.needs);
  }
  return {};
}

void write_new_config(const NewConfig& o) {
  const config::ConfigTask& task = config::config_task(o.task);
  const std::string source = from_file(o.source, o.file);
  const config::NewConfig values{o.file.stem().string(), from_file(o.model, o.file), source,
                                 task.rows == config::Rows::prompts ? rule_of(o.source) : "kk"};
  const std::string text = config::new_config(task, values);
  if (disk::exists(o.file)) {
    // An earlier command may have been stopped after it had written the file.
    const bool same = disk::is_file(o.file) && disk::File::open_to_read(o.file).size() == text.size() &&
                      disk::read_text_file(o.file, text.size()) == text;
    if (same) return;
    throw FileError(fmt::format("{}: exists already; choose another name with --out FILE", o.file.string()));
  }
  disk::write_file_atomic(disk::given(o.file, false), text);
}

}  // namespace mantissa::api
