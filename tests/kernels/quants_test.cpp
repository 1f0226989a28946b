// Matrices in quantized blocks: products, look-ups and log-probabilities have the bits of those of their
// dequantized values, and nothing after a matrix is read.
#include "mantissa/core/numeric/quants.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>

#include "kernels/gemm_case.h"
#include "kernels/reference/gemm.h"
#include "mantissa/core/base/error.h"
#include "mantissa/kernels/gather.h"
#include "mantissa/kernels/head.h"
#include "mantissa/kernels/interleave.h"
#include "mantissa/kernels/units.h"

namespace mantissa::kernels::quants_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

/// Bytes that end where memory ends: reading beyond them ends the process.
class LastBytes {
 public:
  explicit LastBytes(std::size_t size) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t whole = (size + page - 1) / page * page;
    size_ = whole + page;
    memory_ = static_cast<std::uint8_t*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory_ + whole, page, PROT_NONE);
    data_ = memory_ + whole - size;
  }
  ~LastBytes() { munmap(memory_, size_); }
  LastBytes(const LastBytes&) = delete;
  std::uint8_t* data() const { return data_; }

 private:
  std::uint8_t *memory_ = nullptr, *data_ = nullptr;
  std::size_t size_ = 0;
};

/// A matrix of random codes, scales and minima, zeros and subnormal f16 numbers among them.
class Quantized {
 public:
  Quantized(QuantFormat f, std::int64_t r, std::int64_t w, std::mt19937& random)
      : format(f), rows(r), width(w), blocks_(bytes()) {
    std::uint8_t* const all = blocks_.data();
    for (std::size_t i = 0; i < bytes(); ++i) all[i] = static_cast<std::uint8_t>(random());
    if (traits(f).apart) set_scales(random);
    for (std::size_t b = 0; !traits(f).apart && b < bytes(); b += traits(f).bytes) {
      set_half(all + b, random);
      if (traits(f).minimum) set_half(all + b + 2, random);
    }
  }

  /// Values of up to 127 · 2^7, so that they are finite in f16.
  static void set_half(std::uint8_t* to, std::mt19937& random) {
    const auto exponent = static_cast<std::uint32_t>(random() % 22);
    const auto half = static_cast<std::uint16_t>((random() & 0x83ffU) | exponent << 10U);
    std::memcpy(to, random() % 16 == 0 ? "\0\x80" : reinterpret_cast<const char*>(&half), sizeof half);
  }

  /// Scales of values that are finite in f16, zeros and numbers near the smallest of f32 among them.
  /// Differences from a mean are of any size.
  void set_scales(std::mt19937& random, int least = -130) {
    std::uint8_t* at = blocks_.data() + (view().scales - view().blocks);
    std::uint8_t* const end = blocks_.data() + bytes();
    const auto number = [&](std::uint8_t* to, int most) {
      const int exponent = least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
      const float x = random() % 16 == 0
                          ? 0.0F
                          : std::ldexp(1 + static_cast<float>(random() % (1U << 23U)) * 0x1p-23F, exponent);
      std::memcpy(to, &x, sizeof x);
    };
    number(at, 7);
    const bool nested = format == QuantFormat::nf4_double;
    for (at += sizeof(float); at < end; at += sizeof(float)) {
      number(at, 7);
      if (nested) at += kScaleGroup;
    }
  }

  std::size_t bytes() const {
    return quant_bytes(format, static_cast<std::size_t>(rows), static_cast<std::size_t>(width));
  }
  const std::uint8_t* data() const { return blocks_.data(); }
  QuantRows view() const {
    return quant_rows(format, blocks_.data(), static_cast<std::size_t>(rows),
                      static_cast<std::size_t>(width));
  }
  ConstMatrix matrix(Scalar type) const { return {blocks_.data(), type, width}; }
  GemmOperand operand(Scalar type, Factor factor, bool transposed) const {
    GemmOperand o{matrix(type), factor, transposed};
    o.quants = format;
    o.scales = view().scales;
    return o;
  }
  /// The dequantized values, rounded to `type`.
  Tensor values(Scalar type) const {
    const auto w = static_cast<std::size_t>(width);
    std::vector<float> wide(static_cast<std::size_t>(rows) * w);
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r)
      dequantize(view(), r, 0, w, wide.data() + r * w, testing::converter());
    Tensor to(type, rows, width);
    store_row(wide.data(), wide.size(), to.bytes.data(), type, 0, testing::converter());
    return to;
  }

  QuantFormat format;
  std::int64_t rows, width;

 private:
  LastBytes blocks_;
};

class Quants : public ::testing::TestWithParam<QuantFormat> {};
INSTANTIATE_TEST_SUITE_P(Of, Quants, ::testing::ValuesIn(kQuantFormats), [](const auto& info) {
  return info.param == QuantFormat::nf4_double ? std::string("nf4_double")
                                               : std::string(traits(info.param).name);
});

/// Formats with scales in their blocks, in which files store tables.
class BlockQuants : public Quants {};
INSTANTIATE_TEST_SUITE_P(Of, BlockQuants, ::testing::ValuesIn(std::span(kQuantFormats).first<5>()),
                         [](const auto& info) { return std::string(traits(info.param).name); });

/// The nearest multiple of the elements that share a scale, at least 32.
std::int64_t whole(QuantFormat f, std::int64_t n) {
  const auto block = std::max<std::int64_t>(32, static_cast<std::int64_t>(traits(f).per_scale));
  return (n + block - 1) / block * block;
}

/// The formats that a weight is read in and that factors are rounded to, and the order of sums.
struct Reading {
  Scalar type;
  Factor operand;
  SumOrder order;
};
const Reading kReadings[] = {
    {Scalar::f32, Scalar::f32, SumOrder::chain},   {Scalar::bf16, Scalar::bf16, SumOrder::tile},
    {Scalar::f32, Scalar::bf16, SumOrder::tile},   {Scalar::bf16, Scalar::bf16, SumOrder::chain},
    {Scalar::f16, Scalar::f16, SumOrder::chain},   {Scalar::f16, Scalar::bf16, SumOrder::tile},
    {Scalar::tf32, Scalar::tf32, SumOrder::chain}, {Scalar::f32, {Scalar::bf16, 2}, SumOrder::tile},
};

TEST_P(Quants, PartsOfARowHaveTheBitsOfTheWholeRow) {
  std::mt19937 random(kSeed);
  const Quantized matrix(GetParam(), 1, 192, random);
  const std::vector<double> want = matrix.values(Scalar::f32).values();
  for (const SimdTarget target : simd_targets()) {
    for (std::size_t begin = 0; begin < 192; begin += 7) {
      for (std::size_t n = 1; begin + n <= 192; n += 13) {
        std::vector<float> got(n + 1, 7.0F);
        dequantize(matrix.view(), 0, begin, n, got.data(), target);
        EXPECT_EQ(got[n], 7.0F);
        for (std::size_t i = 0; i < n; ++i)
          ASSERT_EQ(got[i], static_cast<float>(want[begin + i])) << begin << " + " << i;
      }
    }
  }
}

TEST_P(Quants, MultiplyEveryNumberOfFewRowsWithTheBitsOfTheirValues) {
  std::mt19937 random(kSeed);
  const std::int64_t depth = whole(GetParam(), 544);
  const Quantized matrix(GetParam(), 53, depth, random);
  for (const Reading& reading : {kReadings[0], kReadings[1]}) {
    const Tensor values = matrix.values(reading.type);
    std::vector<std::int64_t> counts(33);
    std::iota(counts.begin(), counts.end(), 1);
    for (const std::int64_t m : mantissa::testing::cases(counts, 4)) {
      Case x({m, 53, depth}, kF32, 2);
      x.g.a.operand = reading.operand;
      x.g.accumulator.order = reading.order;
      x.g.b = {values, reading.operand, true};
      const Tensor want = x.result();
      x.g.b = matrix.operand(reading.type, reading.operand, true);
      for (const Context& ctx : product_contexts()) {
        if (ctx.simd == Simd::amx_model && m % 8 != 1) continue;  // slow
        EXPECT_TRUE(x.result(ctx) == want)
            << describe(ctx) << ", " << m << " rows as " << name(reading.type) << ", seed " << kSeed;
      }
    }
  }
}

/// The matrix of blocks is not read.
TEST_P(BlockQuants, AreMultipliedInterleavedWithTheBitsOfTheirValues) {
  std::mt19937 random(kSeed);
  for (const std::int64_t n : {1, 16, 24, 53, 112}) {
    const Quantized matrix(GetParam(), n, 544, random);
    const Storage copy(interleaved_bytes(n, 544, GetParam()));
    interleave(best(), n, 544, GetParam(), reinterpret_cast<const std::byte*>(matrix.data()), copy.data());
    const LastBytes nothing(matrix.bytes());
    for (const Reading& reading : kReadings) {
      const bool reads_copy = reading.operand.parts == 1 && reading.type != Scalar::f16 &&
                              reading.type != Scalar::tf32 &&
                              (reading.order == SumOrder::tile) == (reading.operand.format == Scalar::bf16);
      const Tensor values = matrix.values(reading.type);
      for (const std::int64_t m : {1, 2, 3, 4, 5, 7, 8}) {
        Case x({m, n, 544}, kF32, 2);
        x.g.a.operand = reading.operand;
        x.g.accumulator.order = reading.order;
        x.g.b = {values, reading.operand, true};
        const Tensor want = x.result();
        x.g.b = matrix.operand(reading.type, reading.operand, true);
        x.g.b.interleaved = copy.data();
        if (reads_copy && m < kStripRows) x.g.b.matrix.data = nothing.data();
        for (const Context& ctx : contexts())
          EXPECT_TRUE(x.result(ctx) == want)
              << describe(ctx) << ", " << m << " rows, " << n << " columns as " << name(reading.type);
      }
    }
  }
}

TEST_P(Quants, MultiplyInEveryFormatAndOrientationWithTheBitsOfTheirValues) {
  std::mt19937 random(kSeed);
  for (const Size& size : mantissa::testing::cases<Size>(
           {{1, 17, 32}, {3, 40, 96}, {16, 70, 320}, {97, 67, 160}, {70, 33, 1056}, {300, 9, 288}}, 3)) {
    // Rows of blocks lie along the depth, or along the columns.
    for (const bool along : {true, false}) {
      const std::int64_t n = along ? size.n : whole(GetParam(), size.n),
                         k = along ? whole(GetParam(), size.k) : size.k;
      const Quantized matrix(GetParam(), along ? n : k, along ? k : n, random);
      for (const Reading& reading : kReadings) {
        const Tensor values = matrix.values(reading.type);
        Case x({size.m, n, k}, kF32, 2);
        x.g.a.operand = reading.operand;
        x.g.accumulator.order = reading.order;
        x.g.b = {values, reading.operand, along};
        const Tensor want = x.result();
        x.g.b = matrix.operand(reading.type, reading.operand, along);
        for (const Context& ctx : product_contexts()) {
          if (ctx.simd == Simd::amx_model && size.m > 70) continue;  // slow
          EXPECT_TRUE(x.result(ctx) == want) << fmt::format(
              "{}, {} × {} × {}, {} to {} in {} parts, along the depth: {}, seed {}", describe(ctx), size.m,
              n, k, name(reading.type), name(reading.operand.format), reading.operand.parts, along, kSeed);
        }
      }
    }
  }
}

TEST_P(Quants, TinyScalesKeepTheirBits) {
  // Scales down to the smallest f16, and factors of A for which products are subnormal: units that drop
  // subnormal numbers must not be used.
  std::mt19937 random(kSeed);
  Quantized matrix(GetParam(), 48, 64, random);
  const bool apart = traits(GetParam()).apart;
  if (apart) matrix.set_scales(random, -149);
  for (std::size_t b = 0; !apart && b < matrix.bytes(); b += traits(GetParam()).bytes) {
    auto* block = const_cast<std::uint8_t*>(matrix.data()) + b;
    std::memset(block, 0, traits(GetParam()).minimum ? 4 : 2);
    block[0] = static_cast<std::uint8_t>(1 + random() % 3);
  }
  const Storage copy(apart ? 0 : interleaved_bytes(48, 64, GetParam()));
  if (!apart)
    interleave(best(), 48, 64, GetParam(), reinterpret_cast<const std::byte*>(matrix.data()), copy.data());
  for (const std::int64_t m : {1, 5, 12, 40}) {
    for (const Reading& reading : {kReadings[0], kReadings[1]}) {
      const Tensor values = matrix.values(reading.type);
      for (const int exponent : {-130, -120, -103, -102, -89, -88, -87, -86}) {
        Case x({m, 48, 64}, kF32, 2);
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t k = 0; k < 64; ++k) x.a.set(i, k, std::ldexp(1 + x.a.get(i, k), exponent));
        }
        x.g.a.operand = reading.operand;
        x.g.accumulator.order = reading.order;
        x.g.b = {values, reading.operand, true};
        const Tensor want = x.result();
        x.g.b = matrix.operand(reading.type, reading.operand, true);
        for (const bool interleaved : {false, true}) {
          if (interleaved && !apart) x.g.b.interleaved = copy.data();
          for (const Context& ctx : product_contexts())
            EXPECT_TRUE(x.result(ctx) == want) << describe(ctx) << ", 2^" << exponent << ", " << m << " rows";
        }
      }
    }
  }
}

TEST_P(BlockQuants, RowsThatAreLookedUpHaveTheBitsOfTheirValues) {
  std::mt19937 random(kSeed);
  const std::vector<std::int32_t> ids = {4, 0, 18, 4, 7};
  const Quantized table(GetParam(), 19, 1056, random);
  for (const Scalar type : {Scalar::f32, Scalar::bf16}) {
    for (const Scalar to : {Scalar::f64, Scalar::f32, Scalar::bf16, Scalar::f16}) {
      Tensor want(to, 5, 1056, 3);
      gather(best(), 5, 1056, table.values(type), ids.data(), want);
      for (const Context& ctx : contexts()) {
        Tensor got(to, 5, 1056, 3);
        gather(ctx, 5, 1056, table.matrix(type), ids.data(), got, GetParam());
        EXPECT_EQ(got, want) << name(type) << " to " << name(to) << ", " << describe(ctx);
      }
    }
  }
}

TEST_P(BlockQuants, LogProbabilitiesHaveTheBitsOfTheirValues) {
  constexpr std::int64_t kTokens = 5, kChannels = 64, kEntries = kVocabularyChunk + 37;
  std::mt19937 random(kSeed);
  const Quantized weight(GetParam(), kEntries, kChannels, random);
  const testing::Batch batch({kTokens});
  const std::vector<std::int32_t> ids = {3, -1, 1060, 0, 512};
  for (const Reading& reading : {kReadings[0], kReadings[1]}) {
    const Tensor x = Tensor(reading.type, kTokens, kChannels).fill_normal(random);
    const Tensor values = weight.values(reading.type);
    const auto result = [&](const GemmOperand& w, Context ctx) {
      Tensor log_prob(Scalar::f32, kTokens, 1), lse = log_prob;
      LogProb h;
      h.channels = kChannels;
      h.vocabulary = kEntries;
      h.x = {x, reading.operand, false};
      h.weight = w;
      h.ids = ids.data();
      h.log_prob = log_prob;
      h.lse = lse;
      h.accumulator.order = reading.order;
      ctx.workspace_bytes =
          log_prob_workspace(ctx, kTokens, kTokens, kChannels, kEntries, Scalar::f32, reading.operand.parts);
      const Storage workspace(ctx.workspace_bytes);
      ctx.workspace = workspace.data();
      kernels::log_prob(ctx, batch.extent(), h);
      return std::pair(log_prob, lse);
    };
    const auto want = result({values, reading.operand, false}, best());
    for (const Context& ctx : contexts())
      EXPECT_EQ(result(weight.operand(reading.type, reading.operand, false), ctx), want) << describe(ctx);
  }
}

TEST(QuantTables, WithScalesApartAreErrors) {
  std::mt19937 random(kSeed);
  const Quantized table(QuantFormat::nf4, 3, 64, random);
  Tensor to(Scalar::f32, 1, 64);
  const std::int32_t id = 1;
  EXPECT_THROW(gather(best(), 1, 64, table.matrix(Scalar::f32), &id, to, QuantFormat::nf4), DtypeError);
}

TEST_P(BlockQuants, BlocksWithScalesThatAreNotFiniteAreFound) {
  std::mt19937 random(kSeed);
  const Quantized matrix(GetParam(), 3, 64, random);
  std::vector<std::uint8_t> bytes(matrix.data(), matrix.data() + matrix.bytes());
  EXPECT_EQ(first_nonfinite_block(GetParam(), bytes), 6U);
  for (const std::size_t place : {0, 2}) {
    if (place > 0 && !traits(GetParam()).minimum) continue;
    for (const int upper : {0x7c, 0xfc, 0x7e}) {
      std::vector<std::uint8_t> damaged = bytes;
      damaged[4 * traits(GetParam()).bytes + place + 1] = static_cast<std::uint8_t>(upper);
      EXPECT_EQ(first_nonfinite_block(GetParam(), damaged), 4U);
    }
  }
}

TEST_P(Quants, ReferenceProductsAreThoseOfTheirValues) {
  std::mt19937 random(kSeed);
  const Quantized matrix(GetParam(), 9, 64, random);
  for (const Scalar type : {Scalar::f32, Scalar::bf16}) {
    const Tensor values = matrix.values(type);
    Case x({4, 9, 64}, kF32, 2);
    x.g.b = {values, type, true};
    const std::vector<double> want = reference::gemm(x.g).c;
    x.g.b = matrix.operand(type, type, true);
    EXPECT_EQ(reference::gemm(x.g).c, want);
  }
}

/// int8 rows of any width: blocks end where rows end, and so does what is read.
TEST(QuantFactors, Int8MultipliesRowsOfAnyWidth) {
  std::mt19937 random(kSeed);
  for (const std::int64_t width : {1, 31, 45, 100, 257}) {
    const Quantized matrix(QuantFormat::int8, 19, width, random);
    for (const Reading& reading : {kReadings[0], kReadings[1]}) {
      const Tensor values = matrix.values(reading.type);
      for (const std::int64_t m : {1, 7, 40}) {
        for (const bool along : {true, false}) {
          Case x({m, along ? 19 : width, along ? width : 19}, kF32, 2);
          x.g.a.operand = reading.operand;
          x.g.accumulator.order = reading.order;
          x.g.b = {values, reading.operand, along};
          const Tensor want = x.result();
          x.g.b = matrix.operand(reading.type, reading.operand, along);
          for (const Context& ctx : product_contexts())
            EXPECT_TRUE(x.result(ctx) == want) << describe(ctx) << ", " << m << " × " << width;
        }
      }
    }
  }
}

TEST(QuantFactors, AreErrorsInF64AndInRowsOfPartsOfBlocks) {
  std::mt19937 random(kSeed);
  const Quantized b(QuantFormat::q8_0, 2, 32, random);
  const Tensor a(Scalar::f64, 2, 32);
  Tensor c(Scalar::f64, 2, 2);
  Gemm g;
  g.m = g.n = 2;
  g.k = 32;
  g.a = {a, Scalar::f64, false};
  g.b = b.operand(Scalar::f32, Scalar::f64, true);
  g.c = c;
  EXPECT_THROW(run(g), DtypeError);
  Tensor narrow(Scalar::f32, 2, 2);
  g.c = narrow;
  g.a.operand = g.b.operand = Scalar::f32;
  g.b.matrix.ld = 40;
  EXPECT_THROW(run(g), ShapeError);
  g.b.matrix.ld = 96;
  g.b.quants = QuantFormat::nf4;
  EXPECT_THROW(run(g), ShapeError);
}

}  // namespace
}  // namespace mantissa::kernels::quants_test
