// The directory of a zip archive whose entries are stored without compression, as PyTorch writes them.
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mantissa::io::pth {

struct ZipEntry {
  std::string name;
  std::uint64_t begin = 0, size = 0;  // of the contents, in the file
};

/// Returns the entries of `file`, the bytes of the whole archive, in the order of its directory. Trusts none
/// of them: every entry lies within the file, no two overlap, and names differ. Names are never used as
/// paths. Throws FileError with `where` as the file's name, also for a compressed or encrypted entry.
std::vector<ZipEntry> parse_zip(std::span<const std::byte> file, const std::string& where);

}  // namespace mantissa::io::pth
