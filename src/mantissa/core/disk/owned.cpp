#include "mantissa/core/disk/owned.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"

namespace mantissa::disk {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLongestList = std::uint64_t{1} << 24;

/// Returns the first name in `directory` that is neither in its list nor in `known`, or is a directory, or
/// "".
std::string stranger_in(const fs::path& directory, std::span<const std::string_view> known) {
  const std::set<std::string> owned = owned_names(directory);
  for (const fs::path& entry : entries(directory)) {
    const std::string name = entry.filename().string();
    const bool is_ours =
        name == kOwnedList || owned.contains(name) || std::ranges::find(known, name) != known.end();
    if (!is_ours || (!is_link(entry) && disk::is_directory(entry))) return name;
  }
  return "";
}

bool is_report(std::string_view kind) {
  return kind == kAudit || kind == kComparison;
}

std::string with_article(std::string_view kind) {
  if (kind == kShards) return std::string(kind);
  return fmt::format("{} {}", std::string_view("aeiou").find(kind.front()) == kind.npos ? "a" : "an", kind);
}

[[noreturn]] void throw_other_kind(const fs::path& path, std::string_view kind, std::string_view there) {
  throw FileError(fmt::format(
      "{}: contains {}, which is never replaced by {}; remove it with rm -r {}, or choose another place",
      path.string(), with_article(there), with_article(kind), path.string()));
}

/// Throws FileError for a directory whose files this user cannot remove.
void check_removable(const fs::path& directory) {
  if (entries(directory).empty() || ::access(directory.c_str(), W_OK | X_OK) == 0) return;
  const int error = errno;
  if (error != EACCES && error != EROFS) return;  // the removal will tell
  throw FileError(fmt::format(
      "{}: is not replaced, since its files cannot be removed: {}. Fix: give this user the right to write in it "
      "(chmod u+w), or choose another place",
      directory.string(), reason(error)));
}

}  // namespace

std::set<std::string> owned_names(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& [name, kind] : owned_kinds(directory)) names.insert(name);
  return names;
}

OwnedKinds owned_kinds(const fs::path& directory) {
  const fs::path list = directory / kOwnedList;
  if (!has_name(list)) return {};
  const nlohmann::json json = nlohmann::json::parse(read_text_file(list, kLongestList), nullptr, false);
  const auto damaged = [&] {
    return FileError(fmt::format("{}: is not a list of files of this program; move it away", list.string()));
  };
  if (!json.is_object() || !json.contains("files") || !json["files"].is_array()) throw damaged();
  const auto name_in = [&](const nlohmann::json& name) {
    if (!name.is_string()) throw damaged();
    const std::string text = name.get<std::string>();
    if (text.empty() || text == "." || text == ".." || text.find('/') != std::string::npos) throw damaged();
    return text;
  };
  OwnedKinds all;
  for (const nlohmann::json& name : json["files"]) all.emplace(name_in(name), "");
  const nlohmann::json results = json.value("results", nlohmann::json::object());
  if (!results.is_object()) throw damaged();
  for (const auto& [kind, names] : results.items()) {
    if (!names.is_array()) throw damaged();
    for (const nlohmann::json& name : names) {
      if (const auto at = all.find(name_in(name)); at != all.end()) at->second = kind;
    }
  }
  return all;
}

void add_owned(OwnedKinds& all, const std::set<std::string>& names, std::string_view kind) {
  for (const std::string& name : names) all[name] = kind;
}

std::string owned_list(const OwnedKinds& all) {
  std::set<std::string> names;
  std::map<std::string, std::set<std::string>> results;
  for (const auto& [name, kind] : all) {
    names.insert(name);
    if (!kind.empty()) results[kind].insert(name);
  }
  nlohmann::ordered_json json = {
      {"about", "The files here that Mantissa wrote. It replaces and removes no others."}, {"files", names}};
  if (!results.empty()) json["results"] = nlohmann::ordered_json::object();
  for (const auto& [kind, of] : results) json["results"][kind] = of;
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string owned_list(const std::set<std::string>& names, std::string_view kind) {
  OwnedKinds all;
  add_owned(all, names, kind);
  return owned_list(all);
}

void check_replaceable(const fs::path& path, std::string_view kind, std::span<const std::string_view> known) {
  if (is_link(path) || kind_of(path) == Kind::absent) return;
  if (!disk::is_directory(path)) {
    throw FileError(fmt::format("{}: is a {}; expected a directory", path.string(),
                                kind_of(path) == Kind::file ? "file" : "device or a pipe"));
  }
  for (const auto& [name, other] : owned_kinds(path)) {
    if (!kind.empty() && !other.empty() && other != kind && has_name(path / name))
      throw_other_kind(path, kind, other);
  }
  const std::string stranger = stranger_in(path, known);
  if (stranger.empty()) return check_removable(path);
  if (has_name(path / kOwnedList) || !known.empty()) {
    throw FileError(
        fmt::format("{}: contains {}, which this program did not write; move it away, or choose "
                    "another place",
                    path.string(), name_in_quotes(stranger)));
  }
  throw FileError(fmt::format(
      "{}: is not replaced: it has no {}, the list of files that this program writes, so they may be somebody "
      "else's; remove the directory yourself, or choose another place",
      path.string(), kOwnedList));
}

void check_kind(const fs::path& directory, std::string_view kind, const std::set<std::string>& names) {
  for (const auto& [name, other] : owned_kinds(directory)) {
    if (other.empty() || other == kind || !has_name(directory / name)) continue;
    const bool beside = is_report(kind) || is_report(other);
    if (!beside || names.contains(name)) throw_other_kind(directory, kind, other);
  }
}

void remove_owned(const fs::path& directory, std::span<const std::string_view> known) {
  if (is_link(directory) || disk::exists(directory))
    remove_names(directory, removable_names(directory, known));
}

std::vector<std::string> removable_names(const fs::path& directory, std::span<const std::string_view> known) {
  if (is_link(directory)) return {};
  check_replaceable(directory, "", known);
  std::vector<std::string> names;
  for (const fs::path& entry : entries(directory)) names.push_back(entry.filename().string());
  std::ranges::partition(names, [](const std::string& name) { return name != kOwnedList; });
  return names;
}

void remove_names(const fs::path& directory, std::span<const std::string> names) {
  if (is_link(directory)) return remove_file(directory);
  for (const std::string& name : names) remove_file(directory / name);
  if (::rmdir(directory.c_str()) != 0 && errno != ENOENT) throw_remove_error(directory, errno);
}

}  // namespace mantissa::disk
