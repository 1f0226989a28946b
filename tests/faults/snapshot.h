// What is in a folder: names, kinds, modes, targets of links and bytes.
#pragma once

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "app/api/tiny.h"

namespace mantissa::faults {

using Snapshot = std::map<std::string, std::string>;  // from path in the folder to kind, mode and contents

inline std::string described(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const fs::file_status status = fs::symlink_status(path);
  const std::string mode = fmt::format("{:o} ", static_cast<unsigned>(status.permissions()));
  if (fs::is_symlink(status)) return "link " + fs::read_symlink(path).string();
  if (fs::is_directory(status)) return "folder " + mode;
  if (!fs::is_regular_file(status)) return "other " + mode;
  return "file " + mode + testing::read_all(path);
}

inline Snapshot snapshot(const std::filesystem::path& folder) {
  Snapshot all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    all[entry.path().lexically_relative(folder).string()] = described(entry.path());
  return all;
}

/// Returns whether `path` is `top`, or lies in it.
inline bool is_in(const std::string& path, const std::string& top) {
  return path == top || path.starts_with(top + "/");
}

/// Returns whether `path` is a file beside `top` whose name says that it belongs to it: `top.partial`.
inline bool is_beside(const std::string& path, const std::string& top) {
  const std::size_t slash = top.rfind('/') + 1;  // 0 without a folder
  return path.starts_with(top + ".") || path.starts_with(top.substr(0, slash) + "." + top.substr(slash));
}

/// Returns whether a path is that of a file in work, which only the failure of its removal leaves.
inline bool is_unfinished(const std::string& path) {
  return testing::has(path, ".partial") || testing::has(path, ".replaced") || testing::has(path, "/.");
}

/// Removes members that depend on the clock or on the memory of the process, at any depth.
inline void remove_measured(nlohmann::json& json) {
  if (json.is_object()) {
    const std::regex measured(
        "seconds.*|.*_per_second|.*peak.*|speed.*|memory.*|.*_ms|time.*|machine|command");
    for (auto member = json.begin(); member != json.end();) {
      if (std::regex_match(member.key(), measured)) {
        member = json.erase(member);
      } else {
        remove_measured(*member++);
      }
    }
  } else if (json.is_array()) {
    for (nlohmann::json& element : json) remove_measured(element);
  }
}

/// Returns the part of a snapshot below `outputs` that two runs with the same arguments share: without the
/// clock, the memory of the process, and what depends on the number of times a run was continued.
inline Snapshot results(const Snapshot& all, const std::vector<std::string>& outputs) {
  std::string newest;
  for (const auto& [path, contents] : all) {
    if (std::smatch m; std::regex_match(path, m, std::regex(".*/state/(step-\\d+)"))) newest = m[1];
  }
  Snapshot kept;
  for (const auto& [path, contents] : all) {
    const auto in = [&](const std::string& top) { return is_in(path, top); };
    if (std::none_of(outputs.begin(), outputs.end(), in)) continue;
    if (testing::has(path, "tfevents")) continue;
    if (std::smatch m; std::regex_search(path, m, std::regex("/state/(step-\\d+)(?=$|/)")) && m[1] != newest)
      continue;
    // The sticky bit marks what is being written, and may stay where a process was killed.
    std::string text = std::regex_replace(contents.substr(0, 12), std::regex("^(file|folder) 1"), "$1 ") +
                       contents.substr(std::min<std::size_t>(contents.size(), 12));
    const std::string name = path.substr(path.rfind('/') + 1);
    // The list of a run has the names of its event files, which contain the time.
    if (name == ".mantissa.json")
      text = std::regex_replace(text, std::regex("\\s*\"events\\.out\\.tfevents[^\"]*\",?"), "");
    if (name == "metrics.jsonl") text = testing::timeless(text);
    if (name == "plan.txt" || name == "report.html") text.resize(std::min<std::size_t>(text.size(), 12));
    if (name == "summary.json" || name == "audit.json" || name == "compare.json") {
      const std::size_t begin = std::min(text.find('{'), text.size());
      nlohmann::json json = nlohmann::json::parse(text.substr(begin), nullptr, false);
      remove_measured(json);
      if (!json.is_discarded()) text = text.substr(0, begin) + json.dump();
    }
    kept[path] = text;
  }
  return kept;
}

/// Returns a snapshot without files in work.
inline Snapshot finished(Snapshot all) {
  std::erase_if(all, [](const auto& entry) { return is_unfinished(entry.first); });
  return all;
}

/// Names the first difference between two snapshots; empty if there is none.
inline std::string difference(const Snapshot& expected, const Snapshot& found) {
  for (const auto& [path, contents] : expected) {
    const auto other = found.find(path);
    if (other == found.end()) return path + " is missing";
    if (other->second == contents) continue;
    std::size_t at = 0;
    while (at < contents.size() && at < other->second.size() && contents[at] == other->second[at]) ++at;
    return fmt::format(
        "{} differs at byte {} of its description: expected {} bytes …{:?}, got {} bytes …{:?}", path, at,
        contents.size(), contents.substr(at, 60), other->second.size(), other->second.substr(at, 60));
  }
  for (const auto& [path, contents] : found) {
    if (expected.find(path) == expected.end()) return path + " is left over";
  }
  return "";
}

/// The same for what a command must not touch: everything that is not below `outputs`. A command that was
/// killed may leave its unfinished files `beside` them.
inline std::string foreign_difference(const Snapshot& before, const Snapshot& after,
                                      const std::vector<std::string>& outputs, bool beside = false) {
  const auto without = [&](const Snapshot& all) {
    Snapshot kept;
    for (const auto& [path, contents] : all) {
      const auto in = [&](const std::string& top) {
        return is_in(path, top) || (beside && is_beside(path, top));
      };
      if (std::none_of(outputs.begin(), outputs.end(), in)) kept[path] = contents;
    }
    return kept;
  };
  return difference(without(before), without(after));
}

}  // namespace mantissa::faults
