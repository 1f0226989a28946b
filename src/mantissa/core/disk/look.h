// What a path names. What cannot be read is never taken for absence: an error of the system is an exception.
#pragma once

#include <chrono>
#include <filesystem>
#include <vector>

namespace mantissa::disk {

/// What a path leads to, through links.
enum class Kind { absent, file, directory, other };  // other: a device, a pipe, a socket

/// Throws FileError if the system cannot tell, for example for a name in a folder that may not be searched or
/// for a loop of links. A link that leads nowhere is absent.
Kind kind_of(const std::filesystem::path& path);

/// Like kind_of().
bool exists(const std::filesystem::path& path);
bool is_file(const std::filesystem::path& path);
bool is_directory(const std::filesystem::path& path);

/// Returns true if the name itself is there, as a link that may lead nowhere too. Throws FileError.
bool has_name(const std::filesystem::path& path);

/// Returns true if the name itself is a link. Throws FileError.
bool is_link(const std::filesystem::path& path);

/// Returns the path to which the links at `path` lead, where a file or directory may not exist yet, or `path`
/// itself if it is not a link. A link to a descriptor that has no path, such as /dev/stdout, is returned as
/// it is. Throws FileError for a loop.
std::filesystem::path followed(const std::filesystem::path& path);

/// Returns true if `inner` is `outer` or lies in it, through links. Neither must exist. Throws FileError.
bool lies_in(const std::filesystem::path& inner, const std::filesystem::path& outer);

/// Returns true if both paths lead to one file or directory. Throws FileError.
bool is_same(const std::filesystem::path& a, const std::filesystem::path& b);

/// Returns when the file or directory was last changed. Throws FileError.
std::chrono::system_clock::time_point changed(const std::filesystem::path& path);

/// Returns the paths in `directory`, sorted by name. Throws FileError if it cannot be read to the end.
std::vector<std::filesystem::path> entries(const std::filesystem::path& directory);

/// Returns kind_of(), and absent where that throws: for hints in messages, which decide nothing.
Kind guess_kind(const std::filesystem::path& path);

}  // namespace mantissa::disk
