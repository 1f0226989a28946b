// Rewriting of checkpoints: files, directories and states, the kept contents, and the errors.
#include "mantissa/convert/convert.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "io/temporary.h"
#include "mantissa/base/error.h"
#include "mantissa/convert/origin.h"
#include "mantissa/io/checkpoint.h"
#include "mantissa/io/state.h"
#include "mantissa/numeric/philox.h"
#include "mantissa/numeric/round.h"
#include "mantissa/numeric/scaled.h"

namespace mantissa::convert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::contents_of;
using test::message_of;
using test::put;

constexpr std::int64_t kRows = 3,
                       kColumns = 100'003;  // more than a piece, and not a multiple of a block or piece

class Convert : public test::TemporaryFolder {
 protected:
  void SetUp() override {
    test::TemporaryFolder::SetUp();
    std::mt19937_64 random(7);
    std::normal_distribution<float> normal(0, 0.02F);
    values.resize(static_cast<std::size_t>(kRows * kColumns));
    for (float& x : values) x = normal(random);
    values[5] = 1e-9F;
    values[kLarge] = 3.0F;
  }

  static io::TensorToWrite of(std::string name, io::Dtype dtype, std::vector<std::int64_t> shape,
                              std::span<const std::byte> bytes) {
    return {std::move(name), dtype, std::move(shape), bytes, nullptr};
  }
  std::vector<io::TensorToWrite> tensors() const {
    return {of("up_proj.weight", io::Dtype::f32, {kRows, kColumns}, std::as_bytes(std::span(values))),
            of("steps", io::Dtype::i64, {3}, std::as_bytes(std::span(integers))),
            of("mask", io::Dtype::boolean, {2}, std::as_bytes(std::span(truths)))};
  }
  fs::path write_file(const std::map<std::string, std::string>& metadata = {}) const {
    io::write_safetensors(folder / "in.safetensors", tensors(), metadata);
    return folder / "in.safetensors";
  }
  Result run(const fs::path& in, const fs::path& out, Change change, bool overwrite = false,
             const kernels::Context& ctx = {}) const {
    return *convert({find_source(in), out, change, overwrite}, ctx);
  }
  static std::vector<std::uint16_t> words(const fs::path& file, const std::string& name) {
    const io::SafetensorsReader reader(file);
    const io::TensorInfo* info = reader.find(name);
    std::vector<std::uint16_t> out(static_cast<std::size_t>(info->count()));
    reader.read(*info, std::as_writable_bytes(std::span(out)));
    return out;
  }

  static constexpr std::size_t kLarge = 262'200;  // in the second piece
  std::vector<float> values;
  std::vector<std::int64_t> integers = {1, -2, std::int64_t{1} << 40};
  std::vector<std::uint8_t> truths = {0, 1};
};

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
      round_block(f, values.data() + row + at, std::min(block, width - at), scale);
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

class ConvertModel : public Convert {
 protected:
  fs::path model() const { return folder / "model"; }
  /// Writes two shards, a tokenizer, pickles and a folder.
  void write_model() const {
    const std::vector<io::TensorToWrite> all = tensors();
    io::ModelToWrite m;
    m.config_json = R"({"model_type": "llama", "torch_dtype": "float32", "rope_theta": 10000.0,
                        "text_config": {"dtype": "float32"}})";
    m.generation_config_json = R"({"do_sample": true})";
    m.files = {{"tokenizer.json", "{}"}, {"pytorch_model.bin", "PK"}, {"README.md", "text"}};
    m.tensors = all;
    m.metadata = {{kPolicyKey, "params=f32"}};
    m.shard_bytes = 1'200'040;
    io::write_model(model(), m);
    fs::create_directories(model() / "original");
  }
};

TEST_F(ConvertModel, KeepsADirectoryAndNamesTheNewDtype) {
  write_model();
  const Result r = run(model(), folder / "out", {Scalar::bf16});
  EXPECT_EQ(r.copied, (std::vector<std::string>{"README.md", "config.json", "generation_config.json",
                                                "tokenizer.json"}));
  EXPECT_EQ(r.left_out, (std::vector<std::string>{"original/", "pytorch_model.bin"}));
  const json config = json::parse(contents_of(folder / "out/config.json"));
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_EQ(config["text_config"]["dtype"], "bfloat16");
  EXPECT_EQ(config["rope_theta"], 10000.0);
  EXPECT_EQ(contents_of(folder / "out/generation_config.json"),
            contents_of(model() / "generation_config.json"));
  const json index = json::parse(contents_of(folder / "out/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], r.bytes_out);
  EXPECT_EQ(r.bytes_out, 2 * values.size() + 8 * 3 + 2);
  const io::WeightFiles files(folder / "out");
  EXPECT_EQ(files.shards().size(), 2U);
  EXPECT_EQ(files.bytes(), r.bytes_out);
  for (const io::SafetensorsReader& shard : files.shards()) {
    EXPECT_EQ(shard.metadata().at("format"), "pt");
    EXPECT_EQ(shard.metadata().at(kPolicyKey), "params=f32");
  }
  // Without a format everything stays unchanged.
  run(model(), folder / "same", {});
  EXPECT_EQ(contents_of(folder / "same/config.json"), contents_of(model() / "config.json"));
}

TEST_F(ConvertModel, ReplacesOnlyModels) {
  write_model();
  EXPECT_THROW(run(model(), model(), {}, true), FileError);
  EXPECT_NE(message_of<FileError>([&] { run(model(), folder, {}, true); }).find("contains the input"),
            std::string::npos);
  fs::create_directories(folder / "home");
  put(folder / "home/letter", "dear");
  EXPECT_NE(message_of<FileError>([&] { run(model(), folder / "home", {}, true); }).find("is not a model"),
            std::string::npos);
  EXPECT_EQ(contents_of(folder / "home/letter"), "dear");
  fs::create_directories(folder / "empty");
  run(model(), folder / "empty", {Scalar::bf16});
  EXPECT_NE(message_of<FileError>([&] { run(model(), folder / "empty", {}); }).find("exists already"),
            std::string::npos);
  run(model(), folder / "empty", {Scalar::f16}, true);
  EXPECT_EQ(json::parse(contents_of(folder / "empty/config.json"))["torch_dtype"], "float16");
  EXPECT_FALSE(fs::exists(folder / "empty.partial"));
}

TEST_F(ConvertModel, LeavesNothingWhenStopped) {
  write_model();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(convert({find_source(model()), folder / "out", {Scalar::bf16}, false}, {}, stop.get_token()));
  EXPECT_FALSE(fs::exists(folder / "out"));
  EXPECT_FALSE(fs::exists(folder / "out.partial"));
}

TEST_F(ConvertModel, ConvertsTheMastersOfAState) {
  io::StateHeader header;
  header.step = 12;
  header.config_toml = "[run]\n";
  header.model_config = R"({"model_type": "llama", "torch_dtype": "float32"})";
  header.policy = "params=f32 compute=bf16";
  const std::vector<io::TensorToWrite> parts = {
      of("master.up_proj.weight", io::Dtype::f32, {kRows, kColumns}, std::as_bytes(std::span(values))),
      of("first_moment.up_proj.weight", io::Dtype::f32, {kRows, kColumns}, std::as_bytes(std::span(values)))};
  io::write_state(folder / "run", header, parts, 1);
  for (const fs::path& in : {folder / "run", folder / "run/state/step-00000012"}) {
    run(in, folder / "out", {Scalar::bf16}, fs::exists(folder / "out"));
    const io::WeightFiles files(folder / "out");
    ASSERT_EQ(files.tensors().size(), 1U);
    EXPECT_EQ(files.tensors()[0].name, "up_proj.weight");
    EXPECT_EQ(files.tensors()[0].dtype, io::Dtype::bf16);
    EXPECT_EQ(files.metadata().at(kPolicyKey), header.policy);
    EXPECT_EQ(files.metadata().at(kHistoryKey),
              "masters of the state of step 12; F32 to bf16, rounded to nearest");
    EXPECT_EQ(json::parse(contents_of(folder / "out/config.json"))["torch_dtype"], "bfloat16");
  }
}

TEST_F(ConvertModel, MultipliesEightBitWeightsByTheirScales) {
  // 3 × 5 codes of 1, 2, 3, …; a scale for the tensor, each row, or each block of 2 × 3.
  std::vector<std::uint8_t> codes;
  std::vector<double> numbers;
  for (int i = 0; i < 15; ++i) {
    codes.push_back(static_cast<std::uint8_t>(encode(i + 1, Scalar::e4m3)));
    numbers.push_back(round_to(i + 1, Scalar::e4m3));
  }
  const std::vector<float> scales = {0.5F, 3.0F, 0.1F, 7.0F};
  struct Case {
    std::vector<std::int64_t> shape;
    std::size_t (*of)(std::size_t row, std::size_t column);
  };
  const Case cases[] = {{{1}, [](std::size_t, std::size_t) { return std::size_t{0}; }},
                        {{}, [](std::size_t, std::size_t) { return std::size_t{0}; }},
                        {{3, 1}, [](std::size_t r, std::size_t) { return r; }},
                        {{3}, [](std::size_t r, std::size_t) { return r; }},
                        {{2, 2}, [](std::size_t r, std::size_t c) { return r / 2 * 2 + c / 3; }}};
  for (const Case& c : cases) {
    std::size_t count = 1;
    for (const std::int64_t n : c.shape) count *= static_cast<std::size_t>(n);
    const std::vector<io::TensorToWrite> all = {
        of("q_proj.weight", io::Dtype::e4m3, {3, 5}, std::as_bytes(std::span(codes))),
        of("q_proj.weight_scale_inv", io::Dtype::f32, c.shape, std::as_bytes(std::span(scales).first(count))),
        of("q_proj.input_scale", io::Dtype::f32, {1}, std::as_bytes(std::span(scales).first(1)))};
    io::ModelToWrite m;
    m.config_json =
        R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 3]}, "dtype": "bfloat16"})";
    m.tensors = all;
    fs::remove_all(model());
    io::write_model(model(), m);
    const Result r = run(model(), folder / "out", {Scalar::f32}, fs::exists(folder / "out"));
    const io::WeightFiles files(folder / "out");
    ASSERT_EQ(files.tensors().size(), 1U);
    std::vector<float> got(15);
    files.read_f32("q_proj.weight", got);
    for (std::size_t i = 0; i < 15; ++i)
      EXPECT_EQ(got[i], static_cast<float>(numbers[i]) * scales[c.of(i / 5, i % 5)]) << i;
    const json config = json::parse(contents_of(folder / "out/config.json"));
    EXPECT_FALSE(config.contains("quantization_config"));
    EXPECT_EQ(config["dtype"], "float32");
  }
}

TEST_F(ConvertModel, ReadsScalesThatArePowersOfTwo) {
  const std::vector<std::uint8_t> codes(3, static_cast<std::uint8_t>(encode(3, Scalar::e4m3)));
  const std::vector<std::uint8_t> scales = {127, 120, 0};
  const std::vector<io::TensorToWrite> all = {
      of("q_proj.weight", io::Dtype::e4m3, {3, 1}, std::as_bytes(std::span(codes))),
      of("q_proj.weight_scale", io::Dtype::e8m0, {3, 1}, std::as_bytes(std::span(scales)))};
  io::write_safetensors(folder / "in.safetensors", all);
  run(folder / "in.safetensors", folder / "out", {Scalar::f32});
  std::vector<float> got(3);
  io::WeightFiles(folder / "out").read_f32("q_proj.weight", got);
  EXPECT_EQ(got, (std::vector<float>{3.0F, 3 * 0x1p-7F, 3 * 0x1p-127F}));
}

TEST_F(ConvertModel, RejectsScalesThatDoNotFit) {
  const std::vector<std::uint8_t> codes(15);
  const std::vector<float> scales(4);
  const std::vector<io::TensorToWrite> all = {
      of("q_proj.weight", io::Dtype::e4m3, {3, 5}, std::as_bytes(std::span(codes))),
      of("q_proj.weight_scale", io::Dtype::f32, {2, 2}, std::as_bytes(std::span(scales)))};
  io::write_safetensors(folder / "in.safetensors", all);
  const std::string said =
      message_of<ShapeError>([&] { run(folder / "in.safetensors", folder / "out", {Scalar::bf16}); });
  EXPECT_EQ(said.find("q_proj.weight: is [3, 5], and its scale \"q_proj.weight_scale\" [2, 2] fits"), 0U)
      << said;
}

}  // namespace
}  // namespace mantissa::convert
