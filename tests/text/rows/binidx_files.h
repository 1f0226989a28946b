// Pairs of Megatron for tests, as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mantissa::text {

inline std::string little_endian_bytes(const std::vector<std::int64_t>& numbers, int width) {
  std::string bytes;
  for (const std::int64_t n : numbers) {
    for (int b = 0; b < width; ++b) bytes += static_cast<char>(static_cast<std::uint64_t>(n) >> (8 * b));
  }
  return bytes;
}

/// Documents of one item each, as RWKV-LM's and GPT-NeoX's tools write them. Fields may be damaged before
/// idx() and bin().
struct Binidx {
  explicit Binidx(std::vector<std::vector<std::int64_t>> items, int type_code = 8, int id_width = 2)
      : documents(std::move(items)), code(type_code), width(id_width) {
    std::int64_t place = 0;
    for (const std::vector<std::int64_t>& d : documents) {
      bounds.push_back(static_cast<std::int64_t>(sizes.size()));
      sizes.push_back(static_cast<std::int64_t>(d.size()));
      places.push_back(place);
      place += width * sizes.back();
    }
    bounds.push_back(static_cast<std::int64_t>(sizes.size()));
    item_count = static_cast<std::int64_t>(sizes.size());
    bound_count = static_cast<std::int64_t>(bounds.size());
  }

  std::string idx() const {
    return magic + little_endian_bytes({version}, 8) + little_endian_bytes({code}, 1) +
           little_endian_bytes({item_count, bound_count}, 8) + little_endian_bytes(sizes, 4) +
           little_endian_bytes(places, 8) + little_endian_bytes(bounds, 8);
  }
  std::string bin() const {
    std::string bytes;
    for (const std::vector<std::int64_t>& d : documents) bytes += little_endian_bytes(d, width);
    return bytes;
  }

  std::vector<std::vector<std::int64_t>> documents;
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::int64_t version = 1, code = 8, item_count = 0, bound_count = 0;
  int width = 2;
  std::vector<std::int64_t> sizes = {}, places = {}, bounds = {};
};

}  // namespace mantissa::text
