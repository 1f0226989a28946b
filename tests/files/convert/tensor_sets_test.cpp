// Differences between sets of tensors: planted ones of each kind are found and measured.
#include "mantissa/files/convert/tensor_sets.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "core/disk/temporary.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/files/convert/value_format.h"

namespace mantissa::convert {
namespace {

namespace fs = std::filesystem;

/// A file of tensors in any formats.
class TensorFile {
 public:
  template <class T>
  void add(const std::string& name, io::Dtype dtype, std::vector<std::int64_t> shape,
           const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    bytes_.push_back(std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end()));
    tensors_.push_back({name, dtype, std::move(shape), *bytes_.back(), nullptr});
  }
  /// Adds values rounded to `format` and stored in it.
  void add_rounded(const std::string& name, Scalar format, std::vector<std::int64_t> shape,
                   const std::vector<double>& values) {
    std::vector<std::byte> codes;
    for (const double value : values) {
      const std::uint64_t code = encode(value, format);
      for (std::size_t i = 0; i < bytes_of(format); ++i)
        codes.push_back(static_cast<std::byte>(code >> (8 * i)));
    }
    add(name, io::dtype_of(format), std::move(shape), codes);
  }
  void write(const fs::path& path) const { io::write_safetensors(path, tensors_); }

 private:
  std::vector<std::unique_ptr<std::vector<std::byte>>> bytes_;
  std::vector<io::TensorToWrite> tensors_;
};

std::vector<float> normal_values(std::size_t n) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> values(n);
  for (float& x : values) x = normal(random);
  return values;
}

std::vector<double> wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

class TensorSets : public test::TemporaryFolder {
 protected:
  TensorDifferences compare(const TensorFile& a, const TensorFile& b, ShapeRule shapes = ShapeRule::exact,
                            const kernels::Context& ctx = {}) const {
    a.write(folder / "a.safetensors");
    b.write(folder / "b.safetensors");
    const io::WeightFiles files_a(folder / "a.safetensors"), files_b(folder / "b.safetensors");
    return compare_tensors({&files_a, names(files_a)}, {&files_b, names(files_b)}, shapes, ctx);
  }
  static std::vector<std::string> names(const io::WeightFiles& files) {
    std::vector<std::string> all;
    for (const io::TensorInfo& tensor : files.tensors()) all.push_back(tensor.name);
    return all;
  }
  /// Compares one tensor "w" of f32 values on both sides.
  TensorDifferences compare_values(const std::vector<float>& a, const std::vector<float>& b) const {
    const auto n = static_cast<std::int64_t>(a.size());
    TensorFile file_a, file_b;
    file_a.add("w", io::Dtype::f32, {n}, a);
    file_b.add("w", io::Dtype::f32, {n}, b);
    return compare(file_a, file_b);
  }
};

TEST_F(TensorSets, OneBitInOneWeightIsOneUlpOfItsFormat) {
  constexpr std::int64_t kColumns = 700, kRows = 1000;  // several pieces
  const std::vector<float> before = normal_values(kRows * kColumns);
  for (const Scalar format : {Scalar::f32, Scalar::bf16, Scalar::f16, Scalar::e4m3, Scalar::f64}) {
    std::vector<double> values = wide(before);
    for (double& x : values) x *= 1.1;  // not values of f32
    values[5 * kColumns + 17] = 0.75;
    TensorFile a, b;
    a.add_rounded("w", format, {kRows, kColumns}, values);
    values[5 * kColumns + 17] = 0.75 + ulp(0.75, format);
    b.add_rounded("w", format, {kRows, kColumns}, values);
    const TensorDifferences found = compare(a, b);
    ASSERT_EQ(found.different.size(), 1U) << name(format);
    const DifferentTensor& d = found.different[0];
    EXPECT_FALSE(d.equal_values());
    EXPECT_NE(d.hash_a, d.hash_b);
    EXPECT_EQ(d.unit, format);
    EXPECT_EQ(d.elements.count, kRows * kColumns);
    EXPECT_EQ(d.elements.differ, 1U);
    EXPECT_EQ(index_of(*d.elements.first, d.a.shape), (std::vector<std::uint64_t>{5, 17}));
    EXPECT_EQ(d.elements.first_a, 0.75);
    EXPECT_EQ(d.elements.first_b, 0.75 + ulp(0.75, format));
    EXPECT_EQ(d.elements.max_ulp, 1.0) << name(format);
    EXPECT_EQ(d.elements.max_abs, ulp(0.75, format));
    EXPECT_EQ(d.elements.sum, ulp(0.75, format)) << "the bias has a sign";
    EXPECT_EQ(d.elements.relative(), ulp(0.75, format) / (0.75 + ulp(0.75, format)));
  }
}

TEST_F(TensorSets, ResultDoesNotDependOnThreads) {
  std::vector<float> a = normal_values(900'000), b = a;
  for (std::size_t i = 0; i < b.size(); i += 3) b[i] *= 1.001F;
  TensorFile file_a, file_b;
  file_a.add("w", io::Dtype::f32, {900'000}, a);
  file_b.add("w", io::Dtype::f32, {900'000}, b);
  const auto one = compare(file_a, file_b), three = compare(file_a, file_b, ShapeRule::exact, {.threads = 3});
  const ElementDifferences &x = one.different.at(0).elements, &y = three.different.at(0).elements;
  EXPECT_EQ(x.sum, y.sum);
  EXPECT_EQ(x.sum_abs, y.sum_abs);
  EXPECT_EQ(x.max_ulp, y.max_ulp);
  EXPECT_EQ(x.differ, y.differ);
  EXPECT_EQ(one.different[0].hash_b, three.different[0].hash_b);
}

TEST_F(TensorSets, SignsOfZerosAndPayloadsOfNanAreEqualValuesWithOtherBytes) {
  std::vector<float> a = normal_values(100), b = a;
  a[3] = 0.0F, b[3] = -0.0F;
  a[7] = std::bit_cast<float>(0x7fc00000U), b[7] = std::bit_cast<float>(0x7fc00001U);
  a[8] = b[8] = std::bit_cast<float>(0x7fc00123U);
  a[9] = b[9] = INFINITY;
  const TensorDifferences found = compare_values(a, b);
  EXPECT_TRUE(found.equal(false));
  EXPECT_FALSE(found.equal(true));
  const DifferentTensor& d = found.different.at(0);
  EXPECT_EQ(d.elements.zero_signs, 1U);
  EXPECT_EQ(d.elements.nan_bits, 1U);
  EXPECT_EQ(d.elements.differ, 0U);
  EXPECT_EQ(d.elements.first_bits, 3U);
  EXPECT_FALSE(d.elements.first.has_value());
}

TEST_F(TensorSets, ValuesThatAreNotFiniteDifferWithoutAnError) {
  std::vector<float> a = {1, 2, INFINITY, NAN, 5, 1e38F}, b = {1, NAN, -INFINITY, 4, 6, -INFINITY};
  const ElementDifferences e = compare_values(a, b).different.at(0).elements;
  EXPECT_EQ(e.differ, 5U);
  EXPECT_EQ(e.nonfinite, 4U);
  EXPECT_EQ(e.measured, 2U);
  EXPECT_EQ(e.max_abs, 1.0);
  EXPECT_EQ(e.bias(), 0.5);
  EXPECT_EQ(e.largest, static_cast<double>(1e38F));
}

TEST_F(TensorSets, OtherDtypesAreComparedAsNumbersInTheNarrowerFormat) {
  const std::vector<double> values = wide(normal_values(5000));
  TensorFile a, b, widened;
  a.add_rounded("w", Scalar::f32, {50, 100}, values);
  b.add_rounded("w", Scalar::bf16, {50, 100}, values);
  std::vector<double> rounded = values;
  for (double& x : rounded) x = round_to(x, Scalar::bf16);
  widened.add_rounded("w", Scalar::f32, {50, 100}, rounded);
  for (const TensorFile* other : {&b, &widened}) {
    const TensorDifferences found = compare(a, *other);
    const DifferentTensor& d = found.different.at(0);
    EXPECT_EQ(d.unit, Scalar::bf16) << "also of values that f32 stores";
    EXPECT_LE(d.elements.max_ulp, 0.5);
    EXPECT_GT(d.elements.max_ulp, 0.49);
  }
  const TensorDifferences same = compare(b, widened);
  EXPECT_TRUE(same.equal(false));
  EXPECT_FALSE(same.equal(true));
}

TEST_F(TensorSets, IntegersAreComparedExactlyAcrossDtypes) {
  constexpr std::int64_t kLarge = (std::int64_t{1} << 62) + 1;  // a double does not represent it
  TensorFile a, b;
  a.add<std::int64_t>("ids", io::Dtype::i64, {2}, {kLarge, -3});
  b.add<std::int64_t>("ids", io::Dtype::i64, {2}, {kLarge + 1, -3});
  a.add<std::int32_t>("small", io::Dtype::i32, {2}, {7, -1});
  b.add<std::int64_t>("small", io::Dtype::i64, {2}, {7, -1});
  a.add<std::uint8_t>("mask", io::Dtype::boolean, {3}, {0, 1, 1});
  b.add<std::uint8_t>("mask", io::Dtype::boolean, {3}, {0, 0, 1});
  a.add<std::int32_t>("mixed", io::Dtype::i32, {1}, {2});
  b.add<float>("mixed", io::Dtype::f32, {1}, {2.5F});
  const TensorDifferences found = compare(a, b);
  std::map<std::string, ElementDifferences> by_name;
  for (const DifferentTensor& d : found.different) {
    EXPECT_EQ(d.unit, std::nullopt);
    by_name[d.name] = d.elements;
  }
  EXPECT_EQ(by_name.at("ids").differ, 1U);
  EXPECT_EQ(by_name.at("ids").max_abs, 1.0);
  EXPECT_EQ(by_name.at("small").differ, 0U);
  EXPECT_EQ(by_name.at("mask").differ, 1U);
  EXPECT_EQ(by_name.at("mixed").max_abs, 0.5);
}

TEST_F(TensorSets, DtypesWithoutNumbersAreComparedAsBytes) {
  TensorFile a, b;
  a.add<std::uint8_t>("scales", io::Dtype::e8m0, {3}, {1, 2, 3});
  b.add<std::uint8_t>("scales", io::Dtype::e8m0, {3}, {1, 2, 4});
  a.add<float>("complex", io::Dtype::c64, {2}, {1, 0, 0, 1});
  b.add<float>("complex", io::Dtype::c64, {2}, {1, 0, 0, 1});
  const TensorDifferences found = compare(a, b);
  ASSERT_EQ(found.different.size(), 1U);
  EXPECT_EQ(found.different[0].elements.differ, 1U);
  EXPECT_EQ(found.different[0].elements.first, 2U);
}

TEST_F(TensorSets, EmptyTensorsScalarsAndOtherOrdersAreHandled) {
  TensorFile a, b;
  a.add<float>("empty", io::Dtype::f32, {0, 5}, {});
  a.add<float>("scalar", io::Dtype::f32, {}, {1});
  a.add<float>("w", io::Dtype::f32, {2}, {1, 2});
  b.add<float>("w", io::Dtype::f32, {2}, {1, 2});
  b.add<float>("scalar", io::Dtype::f32, {}, {2});
  b.add<float>("empty", io::Dtype::f32, {5, 0}, {});
  const TensorDifferences found = compare(a, b);
  EXPECT_EQ(found.compared, 3U);
  ASSERT_EQ(found.different.size(), 2U);
  for (const DifferentTensor& d : found.different) {
    if (d.name == "empty") {
      EXPECT_FALSE(d.comparable) << "the shapes differ";
    } else {
      EXPECT_TRUE(index_of(*d.elements.first, d.a.shape).empty());
    }
  }
  EXPECT_TRUE(compare(a, b, ShapeRule::rows).differing(false)[0]->name == "scalar");
}

TEST_F(TensorSets, MissingTensorsAreListedWithTheNearestName) {
  TensorFile a, b;
  a.add<float>("model.norm.weight", io::Dtype::f32, {1}, {1});
  a.add<float>("layers.0.up_proj.weight", io::Dtype::f32, {1}, {1});
  b.add<float>("model.norm.weight", io::Dtype::f32, {1}, {1});
  b.add<float>("layers.0.up_prj.weight", io::Dtype::f32, {1}, {1});
  b.add<float>("zzzzzzzz", io::Dtype::f32, {1}, {1});
  const TensorDifferences found = compare(a, b);
  EXPECT_FALSE(found.equal(false));
  ASSERT_EQ(found.only_a.size(), 1U);
  EXPECT_EQ(found.only_a[0].nearest, "layers.0.up_prj.weight");
  ASSERT_EQ(found.only_b.size(), 2U);
  EXPECT_EQ(found.only_b[1].nearest, "");
}

TEST_F(TensorSets, RowsOfTracesMayBeDividedInAnotherWayButNotReordered) {
  TensorFile a, b;
  a.add<float>("logits", io::Dtype::f32, {2, 3, 2}, std::vector<float>(12, 1.0F));
  b.add<float>("logits", io::Dtype::f32, {6, 2}, std::vector<float>(12, 1.0F));
  EXPECT_TRUE(compare(a, b, ShapeRule::rows).equal(false));
  EXPECT_FALSE(compare(a, b, ShapeRule::rows).equal(true));
  EXPECT_FALSE(compare(a, b).equal(false));
  const auto comparable = [&](std::vector<std::int64_t> left, std::vector<std::int64_t> right) {
    TensorFile c, d;
    c.add<float>("w", io::Dtype::f32, left, std::vector<float>(24, 1.0F));
    d.add<float>("w", io::Dtype::f32, right, std::vector<float>(24, 2.0F));
    const TensorDifferences found = compare(c, d, ShapeRule::rows);
    EXPECT_EQ(found.different.at(0).reordered(), !found.different[0].comparable);
    return found.different[0].comparable;
  };
  EXPECT_TRUE(comparable({2, 3, 4}, {6, 4}));
  EXPECT_TRUE(comparable({1, 6, 4}, {6, 4, 1}));
  EXPECT_TRUE(comparable({24, 1}, {2, 12})) << "a vector of rows";
  EXPECT_FALSE(comparable({3, 8}, {6, 4})) << "[tokens, heads · width] and [heads · tokens, width]";
  EXPECT_FALSE(comparable({4, 6}, {6, 4})) << "a transposed matrix";
}

TEST_F(TensorSets, FormatOfValuesIsTheNarrowestWhoseLastPlaceTheyNeed) {
  TensorFile file;
  file.add<float>("ones", io::Dtype::f32, {64}, std::vector<float>(64, 1.0F));
  for (const Scalar format : {Scalar::bf16, Scalar::f16, Scalar::tf32, Scalar::e4m3}) {
    std::vector<double> values = wide(normal_values(5000));
    for (double& x : values) x = round_to(x * 20, format);
    values[11] = NAN;
    file.add_rounded(std::string(name(format)), Scalar::f32, {5000}, values);
  }
  file.write(folder / "a.safetensors");
  const io::WeightFiles files(folder / "a.safetensors");
  EXPECT_EQ(value_format(files, *files.find("ones"), {}), Scalar::f32) << "ones need no place of any format";
  EXPECT_EQ(value_format(files, *files.find("bf16"), {}), Scalar::bf16);
  EXPECT_EQ(value_format(files, *files.find("f16"), {}), Scalar::f16);
  EXPECT_EQ(value_format(files, *files.find("e4m3"), {}), Scalar::e4m3);
}

}  // namespace
}  // namespace mantissa::convert
