// Directories that the program may replace: it removes only files that it has written.
//
// A directory that it writes holds a list of its files, ".mantissa.json", with the kind of result to which
// each belongs, such as "model". To replace or remove the directory, every name in it must be in the list;
// otherwise the error names the first one that is not. A result replaces only one of its own kind.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::disk {

inline constexpr std::string_view kOwnedList = ".mantissa.json";

/// The kinds of results.
inline constexpr std::string_view kModel = "model", kAdapter = "adapter", kTokenizer = "tokenizer",
                                  kShards = "token shards", kRun = "training run", kAudit = "audit",
                                  kComparison = "comparison", kState = "state";

/// Returns the names in the list of `directory`; none if it has no list. Throws FileError if the list is
/// damaged.
std::set<std::string> owned_names(const std::filesystem::path& directory);

/// Names and the kinds of results to which they belong; "" in lists of earlier versions.
using OwnedKinds = std::map<std::string, std::string, std::less<>>;

/// Like owned_names(), with the kinds.
OwnedKinds owned_kinds(const std::filesystem::path& directory);

/// Adds names of a result of the kind `kind`.
void add_owned(OwnedKinds& all, const std::set<std::string>& names, std::string_view kind);

/// Returns the text of a list.
std::string owned_list(const OwnedKinds& all);
std::string owned_list(const std::set<std::string>& names, std::string_view kind);

/// Throws FileError if `path` is not a directory that a result of the kind `kind` may replace: absent, empty,
/// or with no files but those of a result of this kind, by its list, and `known`, and no directories. "" is
/// any kind.
void check_replaceable(const std::filesystem::path& path, std::string_view kind,
                       std::span<const std::string_view> known = {});

/// Throws FileError if a result of the kind `kind` may not be written beside what the list of `directory`
/// names. Reports, which are audits and comparisons, may be beside other results, under other names.
void check_kind(const std::filesystem::path& directory, std::string_view kind,
                const std::set<std::string>& names);

/// Removes a directory for which check_replaceable() holds. A link to a directory is removed alone.
void remove_owned(const std::filesystem::path& directory, std::span<const std::string_view> known = {});

/// Returns the names in a directory for which check_replaceable() holds, the list last; none for a link.
std::vector<std::string> removable_names(const std::filesystem::path& directory,
                                         std::span<const std::string_view> known = {});

/// Removes these names and the directory, or the link there.
void remove_names(const std::filesystem::path& directory, std::span<const std::string> names);

}  // namespace mantissa::disk
