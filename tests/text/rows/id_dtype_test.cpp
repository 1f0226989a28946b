#include "mantissa/text/rows/id_dtype.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "mantissa/core/numeric/convert.h"

namespace mantissa::text {
namespace {

std::vector<double> ids(std::size_t count) {
  std::mt19937_64 random(3);
  std::vector<double> out(count);
  for (double& id : out) id = static_cast<double>(random() % 200);
  return out;
}

std::vector<std::byte> stored(const std::vector<double>& values, Scalar format) {
  std::vector<std::byte> bytes(values.size() * bytes_of(format));
  store_row(values.data(), values.size(), bytes.data(), format, 0);
  return bytes;
}

TEST(IdDtype, DetectsFloatingPointNumbers) {
  for (const Scalar format : {Scalar::f64, Scalar::f32, Scalar::f16, Scalar::bf16}) {
    EXPECT_EQ(stranger_among_ids(stored(ids(64), format), 256), name(format));
    std::vector<double> values = ids(64);
    values[40] = 2.5;
    EXPECT_EQ(stranger_among_ids(stored(values, format), 256), std::nullopt);
    EXPECT_EQ(stranger_among_ids(stored(std::vector<double>(64), format), 256), std::nullopt);
  }
  EXPECT_EQ(stranger_among_ids(std::as_bytes(std::span("\x93NUMPY\x01", 7)), 256), ".npy");
}

TEST(IdDtype, AcceptsIds) {
  std::mt19937_64 random(4);
  for (const std::int64_t vocabulary : {2, 256, 32'000, 65'000}) {
    std::vector<std::uint16_t> narrow(64);
    for (std::uint16_t& id : narrow)
      id = static_cast<std::uint16_t>(random() % static_cast<std::uint64_t>(vocabulary));
    EXPECT_EQ(stranger_among_ids(std::as_bytes(std::span(narrow)), vocabulary), std::nullopt);
  }
  std::vector<std::uint32_t> wide(64);
  for (std::uint32_t& id : wide) id = static_cast<std::uint32_t>(random() % 128'000);
  EXPECT_EQ(stranger_among_ids(std::as_bytes(std::span(wide)), 128'000), std::nullopt);
}

}  // namespace
}  // namespace mantissa::text
