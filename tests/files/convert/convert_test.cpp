// Rewriting of files: formats and blocks, reports, the kept contents, and the errors.
#include "mantissa/files/convert/convert.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "core/numeric/round_block.h"
#include "files/convert/convert_testing.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/files/convert/origin.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/state.h"

namespace mantissa::convert {
namespace {

using nlohmann::json;
using test::contents_of;
using test::message_of;
using test::put;

TEST_F(Convert, RoundsEveryValueAsItsDefinitionDoes) {
  const fs::path in = write_file();
  for (const Rounding rounding : {Rounding::nearest, Rounding::toward_zero, Rounding::stochastic}) {
    const Change change{Scalar::f16, rounding, false, 9};
    run(in, folder / "out.safetensors", change, true, {.threads = 2});
    const std::vector<std::uint16_t> codes = words(folder / "out.safetensors", "up_proj.weight");
    const RandomStream stream(9, RandomUse::conversion, hash_name("up_proj.weight"), 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double x = static_cast<double>(values[i]);
      ASSERT_EQ(codes[i], encode(x, Scalar::f16, {rounding}, stream.bits(i))) << x << " at " << i;
    }
  }
}

TEST_F(Convert, ReportsLosses) {
  const Result r = run(write_file(), folder / "out.safetensors", {Scalar::f16});
  ASSERT_EQ(r.tensors.size(), 3U);
  ErrorStats want;
  for (const float x : values)
    want.add(static_cast<double>(x), round_to(static_cast<double>(x), Scalar::f16), Scalar::f16);
  const auto weight = std::find_if(r.tensors.begin(), r.tensors.end(),
                                   [](const RewrittenTensor& t) { return t.name == "up_proj.weight"; });
  const ErrorStats& got = weight->errors;
  EXPECT_EQ(got.count, values.size());
  EXPECT_EQ(got.max_abs, want.max_abs);
  EXPECT_EQ(got.max_relative, 1);
  EXPECT_EQ(got.vanished, 1U);
  EXPECT_EQ(got.overflows, 0U);
  const double bound = static_cast<double>(values.size()) * 0x1p-52;
  EXPECT_NEAR(got.rms(), want.rms(), bound * want.rms());
  EXPECT_NEAR(got.relative(), want.relative(), bound * want.relative());
  EXPECT_EQ(weight->from, io::Dtype::f32);
  EXPECT_EQ(weight->to, io::Dtype::f16);
}

TEST_F(Convert, DoesNotDependOnThreads) {
  const fs::path in = write_file();
  const Change change{Scalar::bf16, Rounding::stochastic};
  const Result one = run(in, folder / "1", change),
               many = run(in, folder / "3", change, false, {.threads = 3});
  EXPECT_TRUE(contents_of(folder / "1") == contents_of(folder / "3"));
  for (std::size_t t = 0; t < one.tensors.size(); ++t) {
    EXPECT_EQ(one.tensors[t].errors.sum, many.tensors[t].errors.sum);
    EXPECT_EQ(one.tensors[t].errors.sum_squares, many.tensors[t].errors.sum_squares);
  }
  Change other = change;
  other.seed = 2;
  run(in, folder / "other", other);
  EXPECT_FALSE(contents_of(folder / "1") == contents_of(folder / "other"));
}

TEST_F(Convert, CopiesOtherTypesAndWithoutAFormatEverything) {
  const fs::path in = write_file({{"author", "somebody"}});
  run(in, folder / "same", {});
  const io::SafetensorsReader same(folder / "same"), before(in);
  for (const io::TensorInfo& t : before.tensors()) {
    std::vector<std::byte> x(t.end - t.begin), y(x.size());
    before.read(t, x);
    ASSERT_NE(same.find(t.name), nullptr);
    EXPECT_EQ(same.find(t.name)->dtype, t.dtype);
    same.read(*same.find(t.name), y);
    EXPECT_TRUE(x == y) << t.name;
  }
  EXPECT_EQ(same.metadata(), before.metadata());
  const Result r = run(in, folder / "small", {Scalar::e4m3});
  const io::SafetensorsReader small(folder / "small");
  EXPECT_EQ(small.find("up_proj.weight")->dtype, io::Dtype::e4m3);
  std::vector<std::int64_t> steps(3);
  small.read(*small.find("steps"), std::as_writable_bytes(std::span(steps)));
  EXPECT_EQ(steps, integers);
  EXPECT_EQ(small.find("mask")->dtype, io::Dtype::boolean);
  EXPECT_EQ(small.metadata().at("author"), "somebody");
}

TEST_F(Convert, CopiesTypesThatAreNotFormats) {
  std::vector<std::uint8_t> bytes(16);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(37 * i);
  std::vector<io::TensorToWrite> all = tensors();
  for (const io::Dtype dtype : {io::Dtype::u64, io::Dtype::u32, io::Dtype::u16, io::Dtype::c64,
                                io::Dtype::e8m0, io::Dtype::e4m3fnuz, io::Dtype::e5m2fnuz}) {
    const auto count = static_cast<std::int64_t>(bytes.size() / io::bytes_of(dtype));
    all.push_back(
        of(std::string(io::safetensors_name(dtype)), dtype, {count}, std::as_bytes(std::span(bytes))));
  }
  io::write_safetensors(folder / "in.safetensors", all);
  const Result r = run(folder / "in.safetensors", folder / "out", {Scalar::bf16});
  EXPECT_NE(r.notes.front().find("9 tensors were copied unchanged"), std::string::npos) << r.notes.front();
  const io::SafetensorsReader out(folder / "out");
  for (const char* name : {"U64", "U32", "U16", "C64", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}) {
    const io::TensorInfo* tensor = out.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(io::safetensors_name(tensor->dtype), name);
    std::vector<std::uint8_t> read(bytes.size());
    out.read(*tensor, std::as_writable_bytes(std::span(read)));
    EXPECT_EQ(read, bytes) << name;
  }
}

/// Rounds `values` in rows of `width` to blocks of `f`, block by block by the definition, stored as `stored`.
std::vector<float> blocks_of(BlockFormat f, std::vector<float> values, std::size_t width, Scalar stored) {
  float amax = 0;
  for (const float x : values) amax = std::isfinite(x) ? std::max(amax, std::abs(x)) : amax;
  const float scale = f == BlockFormat::nvfp4 ? nvfp4_tensor_scale(amax) : 1;
  const auto block = static_cast<std::size_t>(traits(f).block);
  for (std::size_t row = 0; row < values.size(); row += width) {
    for (std::size_t at = 0; at < width; at += block)
      mantissa::testing::round_block(f, values.data() + row + at, std::min(block, width - at), scale);
  }
  for (float& x : values) x = static_cast<float>(round_to(static_cast<double>(x * scale), stored));
  return values;
}

TEST_F(Convert, RoundsToBlocksAlongTheLastAxis) {
  std::vector<float> scattered = values;
  for (std::size_t i = 0; i < scattered.size(); ++i)
    scattered[i] *= std::ldexp(1.0F, static_cast<int>(i * i % 31) - 15);
  const std::vector<double> wide(scattered.begin(), scattered.end());
  const auto bytes = std::as_bytes(std::span(scattered));
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes = {
      {"rows", {kRows, kColumns}},
      {"one row", {kRows * kColumns}},
      {"short rows", {kRows * kColumns / 7 * 7 / 7, 7}}};
  std::vector<io::TensorToWrite> tensors;
  for (const auto& [name, shape] : shapes) {
    const auto count = static_cast<std::size_t>(shape.size() == 2 ? shape[0] * shape[1] : shape[0]);
    tensors.push_back(of(name, io::Dtype::f32, shape, bytes.first(count * sizeof(float))));
  }
  tensors.push_back(of("wide", io::Dtype::f64, {kRows, kColumns}, std::as_bytes(std::span(wide))));
  io::write_safetensors(folder / "in.safetensors", tensors, {});
  for (const BlockFormat f : kBlockFormats) {
    SCOPED_TRACE(traits(f).name);
    Change change;
    change.blocks = f;
    change.format = f == BlockFormat::nvfp4 ? Scalar::f32 : Scalar::bf16;
    const Result r = run(folder / "in.safetensors", folder / "out", change, true, {.threads = 2});
    EXPECT_NE(r.notes.front().find(fmt::format("no name for {}: its values, in blocks of {} ", traits(f).name,
                                               traits(f).block)),
              std::string::npos)
        << r.notes.front();
    const io::WeightFiles out(folder / "out");
    EXPECT_EQ(out.metadata().at(kRoundedToKey), traits(f).name);
    for (const RewrittenTensor& t : r.tensors) {
      SCOPED_TRACE(t.name);
      std::vector<float> got(static_cast<std::size_t>(out.find(t.name)->count()));
      std::vector<double> read(got.size());
      out.read_f64(t.name, read);
      std::transform(read.begin(), read.end(), got.begin(), [](double x) { return static_cast<float>(x); });
      const std::vector<float> before(scattered.begin(),
                                      scattered.begin() + static_cast<std::ptrdiff_t>(got.size()));
      const std::vector<float> want =
          blocks_of(f, before, static_cast<std::size_t>(t.shape.back()), *change.format);
      ASSERT_TRUE(got == want);
      ErrorStats errors;
      for (std::size_t i = 0; i < want.size(); ++i)
        errors.add(static_cast<double>(before[i]), static_cast<double>(want[i]), *change.format);
      EXPECT_EQ(t.errors.max_abs, errors.max_abs);
      EXPECT_EQ(t.errors.vanished, errors.vanished);
      EXPECT_EQ(t.errors.overflows, 0U);
    }
    // Converting to a wider dtype afterwards does not change the recorded format.
    run(folder / "out", folder / "again", {Scalar::f64}, true);
    EXPECT_EQ(io::SafetensorsReader(folder / "again").metadata().at(kRoundedToKey), traits(f).name);
  }
}

/// Rounds a block of `values` by its definition, in f64 throughout, with a tensor scale of 1.
std::vector<double> block_in_f64(BlockFormat f, std::vector<double> values) {
  const BlockTraits t = traits(f);
  double amax = 0;
  for (const double x : values) amax = std::max(amax, std::abs(x));
  const double scale = t.power_of_two_scale ? std::ldexp(1.0, std::ilogb(amax) - t.max_exp)
                                            : round_to(amax / t.max_finite, Scalar::e4m3, {.saturate = true});
  for (double& x : values) {
    const double y = x / scale;
    const double step = std::ldexp(1.0, std::max(std::ilogb(y), t.min_normal_exp) - t.mantissa_bits);
    x = std::copysign(std::min(std::abs(std::nearbyint(y / step) * step), t.max_finite), y) * scale;
  }
  return values;
}

TEST_F(Convert, RoundsF64ToBlocksOnce) {
  constexpr std::size_t kBlock = 32, kBlocks = 200;
  std::mt19937_64 random(3);
  std::vector<double> wide;
  for (std::size_t b = 0; b < kBlocks; ++b) {
    // The largest value is just below or above a change of the scale; many values are at and near midpoints.
    const double nudge = std::ldexp(1.0, -30 - static_cast<int>(b % 20));
    const double largest = b % 4 == 0   ? 1 - 0x1p-40
                           : b % 4 == 1 ? 6.375 * (1 + nudge)
                           : b % 4 == 2 ? 4 * (1 - nudge)
                                        : 5 * (1 + nudge);
    wide.push_back(largest);
    while (wide.size() % kBlock != 0) {
      const double middle =
          std::ldexp(static_cast<double>(2 * (random() % 16) + 1), static_cast<int>(random() % 4) - 6);
      const double near = middle * (1 + (random() % 3 == 0 ? 0 : random() % 2 == 0 ? nudge : -nudge));
      const double unit = b % 4 == 1 && random() % 2 == 0 ? 1.125 : 1;  // the nvfp4 scale in this case
      wide.push_back(std::ldexp((random() % 2 == 0 ? near : -near) * unit, std::ilogb(largest) - 3));
    }
  }
  wide[16] = 448 * 6;  // makes nvfp4's tensor scale 1
  const std::vector<io::TensorToWrite> tensors = {
      of("wide", io::Dtype::f64, {static_cast<std::int64_t>(wide.size())}, std::as_bytes(std::span(wide)))};
  io::write_safetensors(folder / "in.safetensors", tensors);
  for (const BlockFormat f : kBlockFormats) {
    SCOPED_TRACE(traits(f).name);
    Change change;
    change.blocks = f;
    change.format = f == BlockFormat::nvfp4 ? Scalar::f32 : Scalar::bf16;
    run(folder / "in.safetensors", folder / "out", change, true);
    std::vector<double> got(wide.size());
    io::WeightFiles(folder / "out").read_f64("wide", got);
    const auto length = static_cast<std::ptrdiff_t>(traits(f).block);
    for (auto at = wide.begin(); at < wide.end(); at += length) {
      const std::vector<double> want = block_in_f64(f, {at, at + length});
      for (std::size_t i = 0; i < want.size(); ++i) {
        const auto index = static_cast<std::size_t>(at - wide.begin()) + i;
        ASSERT_EQ(got[index], want[i]) << wide[index] << " at " << index;
      }
    }
  }
}

TEST_F(Convert, ReportsHowManyValuesOfABlockBecameNan) {
  values[40] = INFINITY;  // in a block of 31 finite values
  const fs::path in = write_file();
  Change change;
  change.format = Scalar::bf16;
  change.blocks = BlockFormat::mxfp8;
  const Result r = run(in, folder / "out", change);
  std::uint64_t overflows = 0;
  for (const RewrittenTensor& t : r.tensors) overflows += t.errors.overflows;
  EXPECT_EQ(overflows, 31U);
  ASSERT_EQ(r.warnings.size(), 1U);
  EXPECT_EQ(r.warnings[0],
            "31 of 300009 values of up_proj.weight became nan: they share a block of mxfp8 with inf, nan or "
            "a value beyond f32");
}

TEST_F(Convert, KeepsTheOrigin) {
  const fs::path in = write_file({{kPolicyKey, "params=f32"}, {kRoundedToKey, "f32"}});
  run(in, folder / "half", {Scalar::bf16, Rounding::stochastic, false, 3});
  run(folder / "half", folder / "wide", {Scalar::f32});
  const Metadata wide = io::SafetensorsReader(folder / "wide").metadata();
  EXPECT_EQ(wide.at(kPolicyKey), "params=f32");
  EXPECT_EQ(wide.at(kRoundedToKey), "bf16");
  EXPECT_EQ(wide.at(kHistoryKey), "F32 to bf16, rounded stochastically with seed 3; BF16 to f32");
  io::write_safetensors(folder / "plain", {{of("x", io::Dtype::f16, {1}, std::as_bytes(std::span(truths)))}});
  run(folder / "plain", folder / "widened", {Scalar::f32});
  EXPECT_EQ(io::SafetensorsReader(folder / "widened").metadata().at(kRoundedToKey), "f16");
  run(in, folder / "tf32", {Scalar::tf32});
  EXPECT_EQ(io::SafetensorsReader(folder / "tf32").metadata().at(kRoundedToKey), "tf32");
  EXPECT_EQ(io::SafetensorsReader(folder / "tf32").find("up_proj.weight")->dtype, io::Dtype::f32);
}

TEST_F(Convert, AFileWithoutTensorsIsAnError) {
  const fs::path in = folder / "none.safetensors";
  io::write_safetensors(in, {}, {});
  for (const char* out : {"out.safetensors", "out.pth", "out"}) {
    EXPECT_NE(message_of<FileError>([&] { run(in, folder / out, {}); }).find("contains no tensors"),
              std::string::npos)
        << out;
    EXPECT_FALSE(fs::exists(folder / out)) << out;
  }
}

TEST_F(Convert, OverflowSucceedsWithAWarning) {
  values[kLarge] = 70000;
  const fs::path in = write_file();
  struct Case {
    Change change;
    std::uint16_t code;
    std::uint64_t overflows;
    bool warns;
  };
  const Case cases[] = {{{Scalar::f16}, 0x7c00, 1, true},
                        {{Scalar::f16, Rounding::stochastic}, 0x7c00, 1, true},
                        {{Scalar::f16, Rounding::toward_zero}, 0x7bff, 0, false},
                        {{Scalar::f16, Rounding::nearest, true}, 0x7bff, 1, false}};
  for (const Case& c : cases) {
    const Result r = run(in, folder / "out", c.change, true);
    EXPECT_EQ(words(folder / "out", "up_proj.weight")[kLarge], c.code);
    std::uint64_t overflows = 0;
    for (const RewrittenTensor& t : r.tensors) overflows += t.errors.overflows;
    EXPECT_EQ(overflows, c.overflows);
    ASSERT_EQ(r.warnings.size(), c.warns ? 1U : 0U);
    if (c.warns) {
      EXPECT_EQ(
          r.warnings[0],
          "1 of 300009 values of up_proj.weight became inf: the largest f16 is 65504, and the largest of "
          "them 70000; --saturate keeps them finite");
    }
  }
  const Result nans = run(in, folder / "out", {Scalar::e4m3}, true);
  EXPECT_NE(nans.warnings.at(0).find("became nan: the largest e4m3 is 448,"), std::string::npos);
}

TEST_F(Convert, ManyOverflowingTensorsGiveOneWarning) {
  const std::vector<float> large = {1e6F, 1, -2e6F};
  std::vector<io::TensorToWrite> all;
  for (int i = 0; i < 6; ++i)
    all.push_back(of(std::to_string(i), io::Dtype::f32, {3}, std::as_bytes(std::span(large))));
  io::write_safetensors(folder / "in.safetensors", all);
  const Result r = run(folder / "in.safetensors", folder / "out", {Scalar::f16});
  ASSERT_EQ(r.warnings.size(), 1U);
  EXPECT_NE(r.warnings[0].find("2 of 3 values of 3, 4 values of 2 more tensors became inf"),
            std::string::npos)
      << r.warnings[0];
}

TEST_F(Convert, NeverOverwritesWithoutPermission) {
  const fs::path in = write_file();
  put(folder / "out", "mine");
  EXPECT_NE(message_of<FileError>([&] { run(in, folder / "out", {}); }).find("exists already"),
            std::string::npos);
  EXPECT_EQ(contents_of(folder / "out"), "mine");
  run(in, folder / "out", {}, true);
  EXPECT_NE(contents_of(folder / "out"), "mine");
  EXPECT_NE(message_of<FileError>([&] { run(in, in, {}, true); }).find("is the input itself"),
            std::string::npos);
  fs::create_symlink(in, folder / "link");
  EXPECT_THROW(run(in, folder / "link", {}, true), FileError);
  EXPECT_THROW(run(in, folder, {}, true), FileError);
}

}  // namespace
}  // namespace mantissa::convert
