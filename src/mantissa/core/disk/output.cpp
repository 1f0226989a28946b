#include "mantissa/core/disk/output.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"

namespace mantissa::disk {
namespace {

namespace fs = std::filesystem;

/// Returns true if `out` is `input`, or a file of the directory `input`.
bool is_input(const fs::path& out, const fs::path& input) {
  if (is_same(out, input)) return true;
  if (!disk::is_directory(input)) return false;
  return std::ranges::any_of(entries(input), [&](const fs::path& file) { return is_same(out, file); });
}

}  // namespace

void check_output(const fs::path& out, std::span<const fs::path> inputs, bool overwrite) {
  const Kind kind = kind_of(out);
  if (kind == Kind::absent) return;
  if (kind == Kind::directory)
    throw FileError(fmt::format("{}: is a directory; give the path of a file", out.string()));
  if (std::ranges::any_of(inputs, [&](const fs::path& input) { return is_input(out, input); }))
    throw FileError(fmt::format("{}: is the input itself; choose another --out", out.string()));
  if (overwrite || kind == Kind::other || File::open_to_read(out).size() == 0) return;
  throw FileError(
      fmt::format("{}: exists already; choose another --out, or replace it with --overwrite", out.string()));
}

}  // namespace mantissa::disk
