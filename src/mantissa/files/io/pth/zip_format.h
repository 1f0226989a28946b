// Numbers of the ZIP format that its reader and its writer share (APPNOTE.TXT of PKWARE, 6.3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace mantissa::io::pth {

inline constexpr std::size_t kLocalBytes = 30;  // of a local file header, without its name and extra field
inline constexpr std::uint16_t kZip64Field = 1;
inline constexpr std::uint32_t kIn64 =
    std::numeric_limits<std::uint32_t>::max();  // the value is in the zip64 field

}  // namespace mantissa::io::pth
