// Checkpoints of PyTorch, byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::test {

struct ZipPart {
  std::string name, contents;
  std::uint16_t method = 0, flags = 0;
  bool zip64 = false;  // its sizes and offset are in the zip64 field
};

template <class T>
void put_raw(std::string& out, T x) {
  out.append(reinterpret_cast<const char*>(&x), sizeof(x));
}

/// Returns an archive of `parts`.
inline std::string zip_of(const std::vector<ZipPart>& parts) {
  std::string out, directory;
  bool wide = false;
  for (const ZipPart& part : parts) {
    const std::uint64_t local = out.size(), size = part.contents.size();
    const auto small = static_cast<std::uint32_t>(part.zip64 ? 0xffffffffU : size);
    std::string extra;
    if (part.zip64) {
      put_raw(extra, std::uint32_t{0x00180001});
      for (const std::uint64_t x : {size, size, local}) put_raw(extra, x);
    }
    wide = wide || part.zip64;
    const auto describe = [&](std::string& to) {
      put_raw(to, std::uint16_t{45});
      put_raw(to, part.flags);
      put_raw(to, part.method);
      put_raw(to, std::uint64_t{0});  // time, date, checksum
      put_raw(to, small);
      put_raw(to, small);
      put_raw(to, static_cast<std::uint16_t>(part.name.size()));
    };
    out += "PK\x03\x04";
    describe(out);
    put_raw(out, std::uint16_t{0});
    out += part.name + part.contents;
    directory += "PK\x01\x02";
    put_raw(directory, std::uint16_t{45});
    describe(directory);
    put_raw(directory, static_cast<std::uint16_t>(extra.size()));
    directory.append(10, '\0');
    put_raw(directory, part.zip64 ? 0xffffffffU : static_cast<std::uint32_t>(local));
    directory += part.name + extra;
  }
  const std::uint64_t begin = out.size(), size = directory.size(), count = parts.size();
  out += directory;
  if (wide) {
    const std::uint64_t at = out.size();
    out += "PK\x06\x06";
    put_raw(out, std::uint64_t{44});
    put_raw(out, std::uint32_t{0x002d002d});
    put_raw(out, std::uint64_t{0});
    for (const std::uint64_t x : {count, count, size, begin}) put_raw(out, x);
    out += "PK\x06\x07";
    put_raw(out, std::uint32_t{0});
    put_raw(out, at);
    put_raw(out, std::uint32_t{1});
  }
  out += "PK\x05\x06";
  put_raw(out, std::uint32_t{0});
  put_raw(out, static_cast<std::uint16_t>(count));
  put_raw(out, static_cast<std::uint16_t>(count));
  put_raw(out, wide ? 0xffffffffU : static_cast<std::uint32_t>(size));
  put_raw(out, wide ? 0xffffffffU : static_cast<std::uint32_t>(begin));
  put_raw(out, std::uint16_t{0});
  return out;
}

/// Returns the pickle of one f32 tensor "w" of the storage "0" with `elements`. The integers are BININT1.
inline std::string pickle_of_tensor(char elements, char offset, std::string_view shape,
                                    std::string_view strides) {
  const auto text = [](std::string_view x) {
    return std::string("\x8c") + static_cast<char>(x.size()) + std::string(x);
  };
  const auto tuple = [](std::string_view items) {
    std::string out = "(";
    for (const char x : items) out += std::string("K") + x;
    return out + "t";
  };
  return "\x80\x02}" + text("w") + "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") +
         "ctorch\nFloatStorage\n" + text("0") + text("cpu") + "K" + elements + "tQK" + offset + tuple(shape) +
         tuple(strides) + "\x89NtRs.";
}

}  // namespace mantissa::test
