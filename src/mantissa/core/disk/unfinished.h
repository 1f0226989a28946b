// What is being written, beside the name that it will have. Three marks tell what it is:
//
// - its name is the final one with ".partial" (unfinished());
// - its sticky bit says that this program made it: the system sets it as the name appears, nothing else uses
//   it on such names, and files without it are somebody else's;
// - a lock on it says that a process is writing it. The system releases the lock of a process that dies, so
//   what has the bit and no lock was left by a killed process, and the next writer removes it.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace mantissa::disk {

/// The bit of a name's mode that is the mark.
inline constexpr mode_t kMark = S_ISVTX;

inline constexpr std::string_view kPartial = ".partial";

/// Returns the unfinished name of `path`. A name that would become too long for the file system is cut, and
/// gets a hash of the whole.
std::filesystem::path unfinished(const std::filesystem::path& path);

/// Returns `path` with `suffix`, cut like unfinished().
std::filesystem::path with_suffix(const std::filesystem::path& path, std::string_view suffix);

/// Returns `path` with the final names of its parts, for messages.
std::string final_name(const std::filesystem::path& path);

/// What became of a lock: no_locks on a file system without them.
enum class Locked { taken, in_use, no_locks };

/// Locks an open file or directory for this descriptor. Throws ResourceError for an error of the system.
Locked lock(int descriptor, const std::filesystem::path& path);

/// Returns true if `path` still names the open file or directory. Throws FileError if the system cannot tell.
bool is_still(const std::filesystem::path& path, int descriptor);

/// Creates `path` for writing, marked and locked, and returns its descriptor. Removes what a killed process
/// left under this name; a directory without the mark is that, too, if it holds nothing but files of `known`
/// names. Throws FileError if another process is writing it, or if the name is somebody
/// else's; ResourceError if the disk is full.
int create_unfinished_file(const std::filesystem::path& path);
int create_unfinished_directory(const std::filesystem::path& path,
                                std::span<const std::string_view> known = {});

/// Throws FileError if the unfinished name of `path` is somebody else's, or if another process is writing it.
/// Removes what a killed process left there.
void check_unfinished(const std::filesystem::path& path, std::span<const std::string_view> known = {});

/// Removes the mark of a file: call it once the final name is there.
void finish(int descriptor, const std::filesystem::path& path);

/// Removes the marks of a directory and its files: call it once the final name is there.
void finish_directory(int descriptor, const std::filesystem::path& path);

/// Removes the mark of a directory.
void unmark_directory(const std::filesystem::path& path);

/// Marks a directory, durably, which is about to be removed under an unfinished name.
void mark_directory(const std::filesystem::path& path);

/// Returns true if `path` bears the mark.
bool has_mark(const std::filesystem::path& path);

/// Returns the bytes on the disk that are free again once what is being written at `path`, an unfinished file
/// or one in an unfinished directory, is removed.
std::uint64_t unfinished_bytes(const std::filesystem::path& path);

/// Returns true if `path` is a directory with the mark: files in it are written in place.
bool is_unfinished_directory(const std::filesystem::path& path);

/// Removes what killed processes left in `directory` under names that end with ".partial". `known` as for
/// create_unfinished_directory(). Returns why the first of them stays, or "". Throws if `directory` cannot be
/// read.
std::string remove_abandoned(const std::filesystem::path& directory,
                             std::span<const std::string_view> known = {});

}  // namespace mantissa::disk
