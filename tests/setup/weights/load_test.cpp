// Mapped weights have the bits of copied ones.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "core/disk/temporary.h"
#include "engine/runtime/device.h"
#include "kernels/row_testing.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/plan/compile.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::weights {
namespace {

const char* const kPolicies[] = {"64-true",   "32-true", "bf16-mixed",  "16-mixed",
                                 "bf16-true", "16-true", "params=tf32", "bf16-mixed params=e4m3"};
constexpr std::pair<Scalar, io::Dtype> kStored[] = {
    {Scalar::f64, io::Dtype::f64}, {Scalar::f32, io::Dtype::f32},   {Scalar::bf16, io::Dtype::bf16},
    {Scalar::f16, io::Dtype::f16}, {Scalar::e5m2, io::Dtype::e5m2}, {Scalar::e4m3, io::Dtype::e4m3}};

/// Its embedding is larger than one piece of loading.
model::ModelConfig config(bool tied) {
  return model::parse_model_config({{"model_type", "llama"},
                                    {"vocab_size", 4100},
                                    {"hidden_size", 64},
                                    {"intermediate_size", 24},
                                    {"num_hidden_layers", 1},
                                    {"num_attention_heads", 4},
                                    {"tie_word_embeddings", tied}},
                                   "config.json");
}

class LoadWeights : public test::TemporaryFolder {
 protected:
  static plan::Program program_of(const model::ModelConfig& c, const char* policy) {
    plan::CompileOptions options;
    options.longest_row = options.longest_leaf = 4;
    return plan::compile(model::build_decode(c, 4, 1, 4), precision::Policy::parse(policy), options, {});
  }

  /// Writes random weights in one format; element `at` of the embedding is `odd`.
  ModelSource write(const model::ModelConfig& c, Scalar format, io::Dtype dtype, std::size_t at = 0,
                    double odd = 1) {
    const plan::Program program = program_of(c, "64-true");
    runtime::WeightSet weights(program, mantissa::testing::plain_device());
    weights.initialize(3);
    std::vector<std::vector<std::byte>> stored;
    std::vector<io::TensorToWrite> tensors;
    for (std::size_t i = 0; i < program.slots.size(); ++i) {
      const plan::Slot& slot = program.slots[i];
      const auto count = static_cast<std::size_t>(slot.shape.count());
      auto* values = static_cast<double*>(weights.master(i).data);
      if (slot.name == "model.embed_tokens.weight") values[at] = odd;
      stored.emplace_back(count * bytes_of(format));
      store_row(values, count, stored.back().data(), format, 0);
      std::vector<std::int64_t> shape;
      for (const Dim& d : slot.shape.dims()) shape.push_back(d.size);
      tensors.push_back({slot.name, dtype, shape, stored.back(), nullptr});
    }
    io::write_safetensors(folder / "model.safetensors", tensors);
    return {c, folder};
  }

  /// Counts all weights that the program's steps read.
  static std::vector<std::byte> read_bytes(const plan::Program& program, const runtime::WeightSet& weights) {
    std::vector<std::byte> all;
    for (const plan::Step& s : program.steps) {
      for (const plan::Operand& o : s.inputs) {
        const plan::Buffer& b = program.buffer(o.buffer);
        if (b.home != plan::Home::master && b.home != plan::Home::copy) continue;
        const std::byte* from = weights.find(program, o.buffer);
        all.insert(all.end(), from, from + b.bytes);
      }
    }
    return all;
  }
};

TEST_F(LoadWeights, MappedHaveTheBitsOfCopiedUnderEveryPresetAndDtype) {
  for (const bool tied : {false, true}) {
    for (const auto& [format, dtype] : kStored) {
      const ModelSource source = write(config(tied), format, dtype);
      for (const char* policy : kPolicies) {
        SCOPED_TRACE(::testing::Message() << policy << " from " << name(format) << (tied ? ", tied" : ""));
        const plan::Program program = program_of(config(tied), policy);
        runtime::WeightSet copied(program, mantissa::testing::plain_device());
        load_weights(copied, source);
        for (const kernels::Context& ctx : kernels::testing::contexts()) {
          const auto device = runtime::cpu(ctx);
          const runtime::WeightSet mapped = open_weights(program, source, *device);
          EXPECT_TRUE(read_bytes(program, mapped) == read_bytes(program, copied));
        }
      }
    }
  }
}

TEST_F(LoadWeights, UsesNoMemoryForMappedOrUnreadWeights) {
  constexpr std::size_t kGains = 3 * 64 * 4;  // below a page, so they are copied
  const ModelSource f32 = write(config(false), Scalar::f32, io::Dtype::f32);
  EXPECT_EQ(
      open_weights(program_of(config(false), "32-true"), f32, mantissa::testing::plain_device()).bytes(),
      kGains);
  const plan::Program mixed = program_of(config(false), "bf16-mixed");
  // The matrices as bf16; the embedding is read from the file.
  EXPECT_EQ(open_weights(mixed, f32, mantissa::testing::plain_device()).bytes(),
            mixed.memory.copies + kGains);
  const ModelSource bf16 = write(config(false), Scalar::bf16, io::Dtype::bf16);
  EXPECT_EQ(
      open_weights(program_of(config(false), "bf16-true"), bf16, mantissa::testing::plain_device()).bytes(),
      kGains / 2);
  // Only the embedding and the three gains, widened.
  EXPECT_EQ(open_weights(mixed, bf16, mantissa::testing::plain_device()).bytes(), (4100U + 3U) * 64U * 4U);
}

TEST_F(LoadWeights, AReplacedFileStaysMapped) {
  const plan::Program program = program_of(config(false), "32-true");
  const runtime::WeightSet weights = open_weights(program, write(config(false), Scalar::f32, io::Dtype::f32),
                                                  mantissa::testing::plain_device());
  const std::vector<std::byte> before = read_bytes(program, weights);
  write(config(false), Scalar::f32, io::Dtype::f32, 7, 100);
  EXPECT_TRUE(read_bytes(program, weights) == before);
  EXPECT_FALSE(read_bytes(program, open_weights(program, {config(false), folder},
                                                mantissa::testing::plain_device())) == before);
}

TEST_F(LoadWeights, MayLieAtAnyByte) {
  const ModelSource source = write(config(false), Scalar::f32, io::Dtype::f32);
  const plan::Program program = program_of(config(false), "32-true");
  const std::vector<std::byte> want =
      read_bytes(program, open_weights(program, source, mantissa::testing::plain_device()));
  // The format allows any number of spaces at the end of a header.
  const std::string file = test::contents_of(folder / "model.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const std::string header = file.substr(8, length) + " ", data = file.substr(8 + length);
  ++length;
  std::string begin(8, '\0');
  std::memcpy(begin.data(), &length, 8);
  test::put(folder / "model.safetensors", begin + header + data);
  const runtime::WeightSet weights = open_weights(program, source, mantissa::testing::plain_device());
  EXPECT_TRUE(read_bytes(program, weights) == want);
  EXPECT_GT(weights.bytes(), 0U);
}

TEST_F(LoadWeights, NameTheFirstValueThatIsNotFinite) {
  constexpr std::size_t kAt = 262150;  // of the second piece
  for (const auto& [format, dtype] : kStored) {
    const ModelSource source =
        write(config(false), format, dtype, kAt, -std::numeric_limits<double>::infinity());
    for (const char* policy :
         {"64-true", "32-true", "bf16-mixed", "bf16-true", "params=tf32", "params=e5m2"}) {
      SCOPED_TRACE(::testing::Message() << policy << " from " << name(format));
      const plan::Program program = program_of(config(false), policy);
      const auto two = runtime::cpu({.threads = 2});
      runtime::WeightSet copied(program, *two);
      const auto message = [&](auto load) { return test::message_of<FileError>(load); };
      const std::string said = message([&] { load_weights(copied, source); });
      const char* what = traits(format).has_infinity ? "-inf" : "nan";  // with or without a sign
      EXPECT_NE(said.find("tensor \"model.embed_tokens.weight\" is "), std::string::npos) << said;
      EXPECT_NE(said.find(std::string(what) + " at element 262150;"), std::string::npos) << said;
      EXPECT_EQ(message([&] { open_weights(program, source, *two); }), said);
    }
  }
}

TEST_F(LoadWeights, NameTheFirstValueBeyondTheMastersRange) {
  const ModelSource source = write(config(false), Scalar::f32, io::Dtype::f32, 262150, 1e5);
  for (const auto& [policy, what] : {std::pair{"16-true", "f16 (65504)"},
                                     {"params=e5m2", "e5m2 (57344)"},
                                     {"params=e4m3", "e4m3 (448)"}}) {
    const plan::Program program = program_of(config(false), policy);
    const std::string said = test::message_of<FileError>(
        [&] { open_weights(program, source, mantissa::testing::plain_device()); });
    EXPECT_NE(said.find(std::string("is 100000 at element 262150, beyond the largest ") + what),
              std::string::npos)
        << said;
  }
}

/// Returns the message of loading `tensor` as a weight of this dtype, with further tensors next to it.
std::string refused(const std::filesystem::path& folder, const plan::Program& program, io::Dtype dtype,
                    std::vector<io::TensorToWrite> beside = {}) {
  const std::vector<std::byte> bytes(std::size_t{4100} * 64 * io::bytes_of(dtype));
  std::vector<io::TensorToWrite> tensors = std::move(beside);
  tensors.push_back({"model.embed_tokens.weight", dtype, {4100, 64}, bytes, nullptr});
  io::write_safetensors(folder / "model.safetensors", tensors);
  return test::message_of<DtypeError>([&] {
    open_weights(program, {config(false), folder}, mantissa::testing::plain_device());
  });
}

TEST_F(LoadWeights, RejectsIntegersAndBooleans) {
  const plan::Program program = program_of(config(false), "bf16-mixed");
  for (const io::Dtype dtype :
       {io::Dtype::i64, io::Dtype::i32, io::Dtype::i16, io::Dtype::i8, io::Dtype::u8, io::Dtype::boolean}) {
    EXPECT_EQ(refused(folder, program, dtype),
              "model.embed_tokens.weight: is " + std::string(io::safetensors_name(dtype)) + " in " +
                  (folder / "model.safetensors").string() +
                  ", but policy \"bf16-mixed\" keeps f32 here; save it as a floating-point tensor (in "
                  "PyTorch weight.to(torch.float32)), or load the weights before quantization");
  }
}

TEST_F(LoadWeights, RejectsCodesWithoutTheirScales) {
  const plan::Program program = program_of(config(false), "bf16-true");
  const float scale = 2;
  for (const char* name : {"model.embed_tokens.weight_scale_inv", "model.embed_tokens.weight_scale"}) {
    EXPECT_EQ(refused(folder, program, io::Dtype::e4m3,
                      {{name, io::Dtype::f32, {1}, std::as_bytes(std::span(&scale, 1)), nullptr}}),
              "model.embed_tokens.weight: is F8_E4M3 in " + (folder / "model.safetensors").string() +
                  " with its scale in \"" + name +
                  "\", but policy \"bf16-true\" keeps bf16 here; dequantize them with mantissa convert IN "
                  "OUT --dtype bf16, or load the weights before quantization");
  }
}

}  // namespace
}  // namespace mantissa::weights
