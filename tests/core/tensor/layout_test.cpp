// Sizes and offsets of buffers in plain formats and in packed blocks.
#include "mantissa/core/tensor/layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "mantissa/core/tensor/storage.h"

namespace mantissa {
namespace {

TEST(Layout, OfAPlainFormatHasItsElementsOnly) {
  for (const Scalar s : kScalars) {
    const Layout layout{.type = s};
    EXPECT_EQ(layout.bytes(Shape{7, 5}), 35 * bytes_of(s));
    EXPECT_EQ(layout.bytes(Shape::tokens(3, {2, 5})), 30 * bytes_of(s));
    EXPECT_EQ(layout.bytes(Shape{}), bytes_of(s)) << "a scalar";
    EXPECT_EQ(layout.bytes(Shape{0, 5}), 0U);
    EXPECT_EQ(layout.element_offset(2, 3, 5), 13 * bytes_of(s));
  }
  EXPECT_EQ((Layout{.type = Scalar::bf16, .integer = true}.bytes(Shape{3})), 12U);
}

struct Sizes {
  Blocks blocks;
  std::int64_t rows, width;
  std::size_t elements, scales;  // bytes
};

class PackedLayout : public ::testing::TestWithParam<Sizes> {};

TEST_P(PackedLayout, HasWholeBytesOfElementsPerRowThenAlignedScales) {
  const auto& [blocks, rows, width, elements, scales] = GetParam();
  const Layout layout{.type = Scalar::bf16, .blocks = blocks};
  EXPECT_EQ(layout.row_bytes(width) * static_cast<std::size_t>(rows), elements);
  EXPECT_EQ(layout.scales_begin(rows, width), aligned(elements));
  EXPECT_EQ(layout.bytes(rows, width), aligned(elements) + scales);
  EXPECT_EQ(layout.bytes(Shape{rows, width}), layout.bytes(rows, width));
}

INSTANTIATE_TEST_SUITE_P(
    Of, PackedLayout,
    ::testing::Values(Sizes{{BlockFormat::mxfp4, false}, 64, 64, 64 * 32, 64 * 2},
                      Sizes{{BlockFormat::mxfp4, true}, 64, 64, 64 * 32, 64 * 2},
                      // 33 columns of 4 bits take 17 bytes, and a second block holds one column.
                      Sizes{{BlockFormat::mxfp4, false}, 5, 33, 5 * 17, 5 * 2},
                      Sizes{{BlockFormat::mxfp4, true}, 33, 5, 33 * 3, 2 * 5},
                      Sizes{{BlockFormat::nvfp4, false}, 3, 17, 3 * 9, 3 * 2},
                      Sizes{{BlockFormat::nvfp4, true}, 17, 3, 17 * 2, 2 * 3},
                      Sizes{{BlockFormat::mxfp8, false}, 2, 31, 2 * 31, 2},
                      Sizes{{BlockFormat::mxfp8_e5m2, true}, 1, 31, 31, 31},
                      Sizes{{BlockFormat::nvfp4, false}, 0, 16, 0, 0}),
    [](const auto& i) {
      const Sizes& s = i.param;
      std::string name = fmt::format("{}_{}x{}{}", traits(s.blocks.format).name, s.rows, s.width,
                                     s.blocks.along_rows ? "_along_rows" : "");
      std::ranges::replace(name, '-', '_');
      return name;
    });

TEST(PackedLayout, GivesEveryBlockAScaleOfItsOwn) {
  constexpr std::int64_t kRows = 37, kWidth = 35;
  for (const BlockFormat f : kBlockFormats) {
    for (const bool along_rows : {false, true}) {
      const Layout layout{.blocks = Blocks{f, along_rows}};
      const std::int64_t block = traits(f).block;
      std::set<std::pair<std::int64_t, std::int64_t>> blocks;
      std::set<std::size_t> scales, elements;
      for (std::int64_t i = 0; i < kRows; ++i) {
        for (std::int64_t j = 0; j < kWidth; ++j) {
          blocks.emplace(along_rows ? i / block : i, along_rows ? j : j / block);
          scales.insert(layout.scale_offset(i, j, kWidth));
          elements.insert(layout.element_offset(i, j, kWidth));
        }
      }
      EXPECT_EQ(scales.size(), blocks.size());
      EXPECT_EQ(layout.scales_begin(kRows, kWidth) + *scales.rbegin() + 1, layout.bytes(kRows, kWidth));
      EXPECT_EQ(*elements.rbegin() + 1, static_cast<std::size_t>(kRows) * layout.row_bytes(kWidth));
    }
  }
}

}  // namespace
}  // namespace mantissa
