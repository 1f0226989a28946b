#include "mantissa/files/io/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "mantissa/core/base/error.h"

namespace mantissa::io {
namespace {

namespace fs = std::filesystem;

bool is_same(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error);
}

/// Returns true if `out` is `input`, or a file of the directory `input`.
bool is_input(const fs::path& out, const fs::path& input) {
  if (is_same(out, input)) return true;
  std::error_code error;
  return std::ranges::any_of(fs::directory_iterator(input, error),
                             [&](const fs::directory_entry& file) { return is_same(out, file.path()); });
}

}  // namespace

void check_output(const fs::path& out, std::span<const fs::path> inputs, bool overwrite) {
  std::error_code error;
  if (!fs::exists(out, error)) return;
  if (fs::is_directory(out, error))
    throw FileError(fmt::format("{}: is a directory; give the path of a file", out.string()));
  if (std::ranges::any_of(inputs, [&](const fs::path& input) { return is_input(out, input); }))
    throw FileError(fmt::format("{}: is the input itself; choose another --out", out.string()));
  if (overwrite || !fs::is_regular_file(out, error) || fs::is_empty(out, error)) return;
  throw FileError(
      fmt::format("{}: exists already; choose another --out, or replace it with --overwrite", out.string()));
}

}  // namespace mantissa::io
