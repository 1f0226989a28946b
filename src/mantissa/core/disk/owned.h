// Directories that the program may replace: it removes only files that it has written.
//
// A directory that it writes holds a list of its files, ".mantissa.json". To replace or remove the directory,
// every name in it must be in the list; otherwise the error names the first one that is not.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::disk {

inline constexpr std::string_view kOwnedList = ".mantissa.json";

/// Returns the names in the list of `directory`; none if it has no list. Throws FileError if the list is
/// damaged.
std::set<std::string> owned_names(const std::filesystem::path& directory);

/// Returns the text of a list.
std::string owned_list(const std::set<std::string>& names);

/// Throws FileError if `path` is not a directory that may be replaced: absent, empty, or with no files but
/// those of its list and `known`, and no directories.
void check_replaceable(const std::filesystem::path& path, std::span<const std::string_view> known = {});

/// Removes a directory for which check_replaceable() holds. A link to a directory is removed alone.
void remove_owned(const std::filesystem::path& directory, std::span<const std::string_view> known = {});

}  // namespace mantissa::disk
