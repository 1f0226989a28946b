// What a user gives as the place of a result, checked before the work: nothing is created or changed.
//
// Links are followed, and stay. An output is not an input, does not contain one and is not inside of one. A
// result that is written from its beginning to its end may go to a device or a pipe; others need a file.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace mantissa::disk {

/// What a command writes.
enum class Shape {
  stream,    // a file, from its beginning to its end
  file,      // a file, in any order
  directory  // a directory
};

/// The place of a result.
struct Output {
  std::filesystem::path path;
  Shape shape = Shape::stream;
  bool overwrite = false;             // an existing result is replaced
  std::string_view option = "--out";  // that gives the path
  bool offers_overwrite = true;       // the command has --overwrite
};

/// Throws FileError if the file or directory `out` must not or cannot be written: if it is of another shape,
/// if it exists, unless it is empty or replaced, or if its folder is missing (of a file) or cannot be
/// written.
void check_output(const Output& out);

/// Also throws FileError if `out` is one of `inputs` (through links too), contains one, or lies in one. "" is
/// no input.
void check_output(const Output& out, std::span<const std::filesystem::path> inputs);

/// Returns `inputs` with the files of directories in place of them, for an output that may be beside these.
std::vector<std::filesystem::path> with_files(std::span<const std::filesystem::path> inputs);

/// Throws FileError if a file at `path` cannot be created because its folder cannot be written; of a
/// directory, `makes_folders`, because the first folder that is there cannot.
void check_creatable(const std::filesystem::path& path, bool makes_folders);

}  // namespace mantissa::disk
