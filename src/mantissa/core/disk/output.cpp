#include "mantissa/core/disk/output.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"

namespace mantissa::disk {
namespace {

namespace fs = std::filesystem;

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::file:
      return "a file";
    case Kind::directory:
      return "a directory";
    case Kind::absent:
    case Kind::other:
      break;
  }
  return "a device or a pipe";
}

void check_shape(const Output& out, Kind kind) {
  const bool fits = kind == Kind::file        ? out.shape != Shape::directory
                    : kind == Kind::directory ? out.shape == Shape::directory
                                              : out.shape == Shape::stream;
  if (fits) return;
  const bool is_seekable = out.shape == Shape::file && kind == Kind::other;
  throw FileError(fmt::format("{}: is {}; expected the path of a {}{}. Fix: choose another {}",
                              out.path.string(), name_of(kind),
                              out.shape == Shape::directory ? "directory" : "file",
                              is_seekable ? ", because its parts are written in any order" : "", out.option));
}

bool is_empty(const fs::path& path, Kind kind) {
  if (kind == Kind::directory) return entries(path).empty();
  return kind == Kind::other || File::open_to_read(path).size() == 0;
}

/// Returns true if standard output goes to the file `path`.
bool is_standard_output(const fs::path& path) {
  struct stat named {
  }, out{};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(STDOUT_FILENO, &out) == 0 && S_ISREG(out.st_mode) &&
         named.st_dev == out.st_dev && named.st_ino == out.st_ino;
}

void check_input(const Output& out, const fs::path& input) {
  if (input.empty() || !disk::exists(input) || kind_of(out.path) == Kind::other) return;
  const char* how = is_same(out.path, input)   ? "is the input itself"
                    : lies_in(out.path, input) ? "lies in the input"
                    : lies_in(input, out.path) ? "contains the input"
                                               : nullptr;
  if (how == nullptr) return;
  throw FileError(fmt::format("{}: {}{}; choose another {}", out.path.string(), how,
                              is_same(out.path, input) ? "" : " " + input.string(), out.option));
}

}  // namespace

void check_creatable(const fs::path& path, bool makes_folders) {
  fs::path folder = followed(path);
  do {
    folder = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  } while (makes_folders && !has_name(folder) && folder != ".");
  const Kind kind = kind_of(folder);
  if (kind == Kind::absent && makes_folders) return;  // a link that leads nowhere
  if (kind != Kind::directory) throw_write_error(path, ENOENT);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) throw_write_error(path, errno);
}

void check_output(const Output& out) {
  const Kind kind = kind_of(out.path);
  if (kind == Kind::absent) return check_creatable(out.path, out.shape == Shape::directory);
  check_shape(out, kind);
  if (out.shape == Shape::file && is_standard_output(out.path)) {
    throw FileError(fmt::format("{}: is standard output, where the report goes; choose another {}",
                                out.path.string(), out.option));
  }
  if (!out.overwrite && !is_empty(out.path, kind)) {
    throw FileError(fmt::format("{}: exists already; choose another {}{}", out.path.string(), out.option,
                                out.offers_overwrite ? ", or replace it with --overwrite" : ""));
  }
  if (kind != Kind::other) check_creatable(out.path, out.shape == Shape::directory);
}

void check_output(const Output& out, std::span<const fs::path> inputs) {
  if (const Kind kind = kind_of(out.path); kind == Kind::directory) check_shape(out, kind);
  for (const fs::path& input : inputs) check_input(out, input);
  check_output(out);
}

std::vector<fs::path> with_files(std::span<const fs::path> inputs) {
  std::vector<fs::path> files;
  for (const fs::path& input : inputs) {
    const std::vector<fs::path> inside = disk::is_directory(input) ? entries(input) : std::vector{input};
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

}  // namespace mantissa::disk
