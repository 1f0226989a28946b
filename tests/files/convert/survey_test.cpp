// A survey's figures for each format equal those of a conversion to it, bit for bit.
#include "mantissa/files/convert/survey.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/disk/temporary.h"
#include "kernels/row_testing.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/files/convert/block_rows.h"
#include "mantissa/files/convert/convert.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/model_path.h"

namespace mantissa::convert {
namespace {

namespace fs = std::filesystem;

bool same(const ErrorStats& a, const ErrorStats& b) {
  return a.count == b.count && a.measured == b.measured && a.max_abs == b.max_abs && a.max_ulp == b.max_ulp &&
         a.max_relative == b.max_relative && a.sum == b.sum && a.sum_squares == b.sum_squares &&
         a.squares_before == b.squares_before && a.largest == b.largest && a.overflows == b.overflows &&
         a.vanished == b.vanished && a.nonfinite == b.nonfinite;
}

/// A file with tensors of many shapes and dtypes, some with values that are not finite.
class Surveys : public test::TemporaryFolder {
 protected:
  void SetUp() override {
    test::TemporaryFolder::SetUp();
    std::mt19937_64 random(11);
    std::normal_distribution<double> normal(0, 0.02);
    for (const auto& [dtype, format] : {std::pair{io::Dtype::f32, Scalar::f32},
                                        {io::Dtype::f64, Scalar::f64},
                                        {io::Dtype::bf16, Scalar::bf16}}) {
      for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{},
                                                                                           {1},
                                                                                           {0, 5},
                                                                                           {5, 0},
                                                                                           {41, 7},
                                                                                           {20'001, 7},
                                                                                           {13, 33},
                                                                                           {2, 3, 33},
                                                                                           {3, 100'003},
                                                                                           {300'009}}) {
        std::int64_t count = 1;
        for (const std::int64_t size : shape) count *= size;
        std::vector<double> values(static_cast<std::size_t>(count));
        for (double& x : values) x = normal(random) * std::ldexp(1.0, static_cast<int>(random() % 24) - 12);
        add(dtype, format, shape, values);
        if (count < 100) continue;
        values[40] = INFINITY;
        values[values.size() - 1] = NAN;
        values[values.size() / 2] = dtype == io::Dtype::f64 ? -1e39 : -3.38e38;
        add(dtype, format, shape, values);
        std::fill(values.begin(), values.end(), -0.0);
        add(dtype, format, shape, values);
      }
    }
    io::write_safetensors(folder / "in", tensors_, {});
  }

  void add(io::Dtype dtype, Scalar format, const std::vector<std::int64_t>& shape,
           const std::vector<double>& values) {
    std::vector<std::byte>& bytes = stored_.emplace_back(values.size() * mantissa::bytes_of(format));
    store_row(values.data(), values.size(), bytes.data(), format, 0);
    tensors_.push_back({std::to_string(tensors_.size()), dtype, shape, bytes, nullptr});
  }

  /// Surveys of all tensors in order.
  std::vector<Survey> surveys(const kernels::Context& ctx) const {
    const io::WeightFiles files(folder / "in");
    std::vector<Survey> all;
    for (const io::TensorToWrite& t : tensors_) all.push_back(survey(files, *files.find(t.name), ctx));
    return all;
  }

  std::vector<RewrittenTensor> converted(Scalar format, std::optional<BlockFormat> blocks) const {
    Change change;
    change.format = format;
    change.blocks = blocks;
    return convert({io::open_model(folder / "in"), folder / "out", change, true}, {})->tensors;
  }

  std::vector<std::vector<std::byte>> stored_;
  std::vector<io::TensorToWrite> tensors_;
};

TEST_F(Surveys, EqualTheFiguresOfAConversion) {
  std::vector<std::vector<RewrittenTensor>> plain, blocks;
  for (const Scalar format : kSurveyed) plain.push_back(converted(format, {}));
  for (const BlockFormat f : kBlockFormats) blocks.push_back(converted(stored_as(f), f));
  for (const kernels::Context& ctx :
       {kernels::Context{.simd = kernels::best_simd(), .threads = 2}, kernels::testing::contexts().front()}) {
    SCOPED_TRACE(kernels::testing::describe(ctx));
    const std::vector<Survey> seen = surveys(ctx);
    for (std::size_t t = 0; t < seen.size(); ++t) {
      for (std::size_t f = 0; f < plain.size(); ++f) {
        ASSERT_EQ(plain[f][t].name, tensors_[t].name);
        EXPECT_TRUE(plain[f][t].copied || same(seen[t].losses[f], plain[f][t].errors))
            << "tensor " << t << ", " << name(kSurveyed[f]);
      }
      for (std::size_t f = 0; f < blocks.size(); ++f) {
        EXPECT_TRUE(same(seen[t].block_losses[f], blocks[f][t].errors))
            << "tensor " << t << ", " << traits(kBlockFormats[f]).name;
      }
    }
  }
}

TEST_F(Surveys, CountValuesThatShareABlockWithInfAsOverflow) {
  const io::WeightFiles files(folder / "in");
  for (const io::TensorInfo& t : files.tensors()) {
    if (t.dtype != io::Dtype::f32 || t.shape != std::vector<std::int64_t>{300'009}) continue;
    const Survey seen = survey(files, t, {});
    if (seen.values.nonfinite == 0) continue;
    EXPECT_EQ(seen.values.nonfinite, 2U);
    // inf shares a full block; nan shares the last block of a row: 300009 = 9375 · 32 + 9.
    for (const BlockFormat f : kBlockFormats) {
      const ErrorStats& losses = seen.block_losses[static_cast<std::size_t>(f)];
      EXPECT_EQ(losses.overflows, static_cast<std::uint64_t>(traits(f).block - 1 + 8)) << traits(f).name;
      EXPECT_EQ(losses.nonfinite, 2U);
    }
    return;
  }
  FAIL() << "the tensor is missing";
}

}  // namespace
}  // namespace mantissa::convert
