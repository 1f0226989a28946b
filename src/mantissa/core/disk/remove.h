// The error of a file or directory that cannot be removed.
#pragma once

#include <filesystem>

namespace mantissa::disk {

/// Throws FileError for a fault that the user can mend, and ResourceError otherwise. `error` is an errno.
[[noreturn]] void throw_remove_error(const std::filesystem::path& path, int error);

}  // namespace mantissa::disk
