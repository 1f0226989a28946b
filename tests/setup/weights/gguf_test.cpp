// GGUF files as models: their logits and answers have the bits of those of the converted directory, and their
// matrices stay in quantized blocks.
#include "mantissa/files/gguf/gguf_file.h"

#include <cstring>
#include <random>

#include "engine/runtime/device.h"
#include "files/convert/gguf_testing.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/plan/compile.h"
#include "mantissa/files/gguf/architecture.h"
#include "mantissa/files/io/hash.h"
#include "mantissa/generate/rollout/complete.h"
#include "mantissa/setup/programs/decoding.h"
#include "mantissa/setup/weights/frozen_hash.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/train/steps/trace.h"

namespace mantissa::weights {
namespace {

using convert::SmallModel;
using gguf::TensorType;
using test::message_of;

class GgufWeights : public convert::GgufModel {
 protected:
  /// Writes a model as a GGUF file whose Q8_0 matrices become random blocks of `type`, and as a directory.
  void write_both(const nlohmann::json& config, TensorType type) const {
    write(config);
    convert_to_gguf({}, TensorType::q8_0);
    requantize(type);
    convert_back();
  }

  void requantize(TensorType type) const {
    const gguf::GgufFile old(file());
    gguf::HeaderWriter header;
    for (const auto& [key, value] : old.header().metadata) {
      if (!key.starts_with("mantissa."))
        convert::add_value(header, key, value);  // the origin of the old values
    }
    std::vector<gguf::TensorToStore> tensors;
    for (const gguf::FileTensor& t : old.tensors()) {
      const auto stored = static_cast<TensorType>(t.type->number);
      tensors.push_back({t.name, stored == TensorType::q8_0 ? type : stored, t.shape});
    }
    std::string bytes = header.finish(tensors);
    std::mt19937 random(7);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      bytes.resize(tensors[i].begin, '\0');
      const auto kept = old.data(old.tensors()[i]);
      if (tensors[i].type == static_cast<TensorType>(old.tensors()[i].type->number)) {
        bytes.append(reinterpret_cast<const char*>(kept.data()), kept.size());
      } else {
        bytes += random_blocks(tensors[i], random);
      }
    }
    test::put(file(), bytes);
  }

  /// Scales and minima are below 2^-4, so that activations stay small.
  static std::string random_blocks(const gguf::TensorToStore& tensor, std::mt19937& random) {
    std::string bytes(tensor.bytes(), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const std::size_t block = gguf::traits(tensor.type).bytes;
    const bool minimum = tensor.type == TensorType::q4_1 || tensor.type == TensorType::q5_1;
    for (std::size_t at = 0; at < bytes.size(); at += block) {
      for (std::size_t half = 0; half < (minimum ? 2 : 1); ++half) {
        const auto bits = static_cast<std::uint16_t>((random() & 0x83ffU) | random() % 11 << 10U);
        std::memcpy(bytes.data() + at + 2 * half, &bits, sizeof bits);
      }
    }
    return bytes;
  }

  ModelSource source() const { return find_model(file()); }
  ModelSource converted() const { return find_model(back()); }

  static std::vector<std::int32_t> ids(std::size_t n) {
    std::vector<std::int32_t> all(n);
    for (std::size_t i = 0; i < n; ++i) all[i] = static_cast<std::int32_t>(i * 37 % 64);
    return all;
  }

  static std::vector<train::TracedTensor> trace_of(const ModelSource& model, const char* policy,
                                                   const runtime::Device& device, bool grads = false) {
    train::TraceOptions o;
    o.model = model;
    o.ids = {ids(21)};
    o.grads = grads;
    o.policy = precision::Policy::parse(policy);
    return train::write_trace(o, device).tensors;
  }

  static void expect_equal(const std::vector<train::TracedTensor>& got,
                           const std::vector<train::TracedTensor>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].name, want[i].name);
      EXPECT_TRUE(got[i].bytes == want[i].bytes) << got[i].name;
    }
  }

  static plan::Program program_of(const ModelSource& model, const char* policy) {
    plan::CompileOptions options;
    options.longest_row = options.longest_leaf = 4;
    return plan::compile(model::build_decode(model.config, 4, 1, 4), precision::Policy::parse(policy),
                         options, {});
  }
};

class GgufLogits : public GgufWeights, public ::testing::WithParamInterface<SmallModel> {};
INSTANTIATE_TEST_SUITE_P(Of, GgufLogits, ::testing::ValuesIn(convert::small_models()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(GgufLogits, HaveTheBitsOfTheConvertedDirectory) {
  for (const TensorType type :
       {TensorType::q8_0, TensorType::q4_0, TensorType::q4_1, TensorType::q5_0, TensorType::q5_1}) {
    write_both(GetParam().config, type);
    for (const char* policy :
         {"32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true", "params=tf32",
          "bf16-matmul-x3", "bf16-mixed compute=mxfp8", "bf16-mixed compute=e4m3"}) {
      // With weights as large as these, the states of a recurrence exceed f16.
      if (GetParam().config["model_type"] == "rwkv7" && std::string_view(policy).starts_with("16-")) continue;
      const bool has_experts = GetParam().config.contains("num_experts_per_tok");
      if (has_experts && std::string_view(policy).ends_with("mxfp8")) continue;  // experts are not in blocks
      SCOPED_TRACE(fmt::format("{} under {}", gguf::traits(type).name, policy));
      expect_equal(trace_of(source(), policy, mantissa::testing::best_device()),
                   trace_of(converted(), policy, mantissa::testing::best_device()));
    }
  }
}

TEST_P(GgufLogits, OfGenerationHaveTheBitsOfTheConvertedDirectory) {
  for (const TensorType type : {TensorType::q8_0, TensorType::q4_1}) {
    write_both(GetParam().config, type);
    for (const char* policy : {"32-true", "bf16-mixed"}) {
      for (const kernels::Simd simd : kernels::kSimds) {
        if (!kernels::is_supported(simd) || simd == kernels::Simd::amx_model) continue;
        const auto device = runtime::cpu({.simd = simd, .threads = 2});
        const auto made = [&](const ModelSource& model) {
          const rollout::Request request{ids(9), 0, 0};
          rollout::GenerateOptions options;
          options.max_new_tokens = 8;
          options.sampling.temperature = 0;
          return rollout::complete(model, precision::Policy::parse(policy), {&request, 1}, options, 1,
                                   *device)
              .front();
        };
        const rollout::Generation got = made(source()), want = made(converted());
        EXPECT_EQ(got.ids, want.ids) << policy << ", " << kernels::name(simd);
        EXPECT_EQ(got.log_probs, want.log_probs) << policy << ", " << kernels::name(simd);
      }
    }
  }
}

TEST_P(GgufLogits, OfATraceWithGradientsHaveTheBitsOfTheConvertedDirectory) {
  write_both(GetParam().config, TensorType::q4_1);
  expect_equal(trace_of(source(), "bf16-mixed", mantissa::testing::best_device(), true),
               trace_of(converted(), "bf16-mixed", mantissa::testing::best_device(), true));
}

TEST_P(GgufLogits, ReadMatricesInTheirBlocks) {
  write_both(GetParam().config, TensorType::q5_1);
  const gguf::GgufFile stored(file());
  const auto blocks = std::ranges::count_if(stored.tensors(), [](const gguf::FileTensor& t) {
    return std::string_view(t.type->name) == "Q5_1" && !gguf::is_of_experts(t.name);
  });
  ASSERT_GT(blocks, 5);
  for (const char* policy : {"32-true", "bf16-mixed", "16-mixed", "bf16-true"}) {
    const ModelSource model = source();
    const plan::Program program = program_of(model, policy);
    const runtime::WeightSet weights = open_weights(program, model, mantissa::testing::plain_device());
    std::int64_t kept = 0;
    std::size_t others = 0;  // bytes of weights that need memory
    for (const plan::Slot& slot : program.slots) {
      std::vector<plan::BufferId> all = slot.copies;
      all.push_back(slot.master_buffer);
      const bool quantized = std::ranges::any_of(
          all, [&](plan::BufferId id) { return weights.quants(program, id).has_value(); });
      kept += quantized ? 1 : 0;
      for (const plan::BufferId id : all) others += quantized ? 0 : aligned(program.buffer(id).bytes);
    }
    // Weights that GPT-2 reads as positions, or that have no whole blocks, are F32 in the file.
    EXPECT_EQ(kept, blocks) << policy;
    EXPECT_LE(weights.bytes(), others) << policy;
  }
}

TEST_F(GgufWeights, FixedOnesAreHashedAsTheBlocksThatAreRead) {
  const runtime::Device& device = mantissa::testing::plain_device();
  for (const TensorType type : {TensorType::q8_0, TensorType::q4_1}) {
    write_both(convert::small_models().front().config, type);
    const plan::Program program = program_of(source(), "32-true");
    const auto hash = [&] { return hash_of_fixed(open_weights(program, source(), device)); };
    const runtime::WeightSet weights = open_weights(program, source(), device);
    io::Hash64 want;
    std::size_t quantized = 0;
    for (const plan::Slot& slot : program.slots) {
      const std::byte* data = weights.find(program, slot.master_buffer);
      if (data == nullptr) continue;
      const auto blocks = weights.quants(program, slot.master_buffer);
      const std::string format(blocks ? traits(blocks->format).name : name(slot.master));
      const std::string title = slot.name + " " + format + "\n";
      want.update(std::as_bytes(std::span(title)));
      const auto elements = static_cast<std::size_t>(slot.shape.count());
      want.update({data, blocks ? elements / 32 * gguf::traits(type).bytes : elements * sizeof(float)});
      quantized += blocks ? 1 : 0;
    }
    ASSERT_GT(quantized, 5U);
    EXPECT_EQ(hash(), io::hex(want.digest()));
    // The last byte of a matrix counts.
    const std::string before = hash();
    const gguf::GgufFile stored(file());
    const gguf::FileTensor& tensor = *stored.find("blk.1.ffn_up.weight");
    std::string bytes = test::contents_of(file());
    bytes[stored.header().data_begin + tensor.begin + tensor.bytes - 1] ^= 1;
    test::put(file(), bytes);
    EXPECT_NE(hash(), before);
  }
}

TEST_F(GgufWeights, StreamsAreChosenByTheMemoryOfTheBlocks) {
  write_both(convert::small_models().front().config, TensorType::q4_0);
  const precision::Policy policy = precision::Policy::parse("32-true");
  const runtime::Device& device = mantissa::testing::plain_device();
  const auto four = programs::compile_decode(source().config, policy, 64, device, 4);
  const std::size_t needed = read_bytes(*four, source()).all + four->memory.arena();
  ASSERT_LT(needed, read_bytes(*four, converted()).all + four->memory.arena());
  const auto streams = [&](std::size_t bytes, const ModelSource& model) {
    const auto program = rollout::compile_decode_within(bytes, model, policy, 64, 4, device);
    return program->buffer(program->required("rows")).shape.count();
  };
  EXPECT_EQ(streams(needed, source()), 4);
  EXPECT_EQ(streams(needed - 1, source()), 2);
  EXPECT_LT(streams(needed, converted()), 4) << "its weights are dense";
  EXPECT_EQ(streams(1, source()), 1) << "at least one";
}

TEST_F(GgufWeights, ThatTrainStartFromDequantizedValuesWithANote) {
  write_both(convert::small_models().front().config, TensorType::q4_1);
  const ModelSource model = source();
  const plan::Program program = program_of(model, "32-true");
  runtime::WeightSet got(program, mantissa::testing::plain_device());
  runtime::WeightSet want(program, mantissa::testing::plain_device());
  const std::vector<std::string> notes = load_weights(got, model);
  load_weights(want, converted());
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes.front().find("quantized to q4_1"), std::string::npos) << notes.front();
  for (std::size_t i = 0; i < program.slots.size(); ++i) {
    const auto bytes = static_cast<std::size_t>(program.slots[i].shape.count()) * sizeof(float);
    EXPECT_EQ(std::memcmp(got.master(i).data, want.master(i).data, bytes), 0) << program.slots[i].name;
  }
}

TEST_F(GgufWeights, AScaleThatIsNotFiniteIsReportedWithItsElement) {
  write_both(convert::small_models().front().config, TensorType::q4_1);
  const gguf::GgufFile stored(file());
  const gguf::FileTensor& tensor = *stored.find("blk.1.ffn_up.weight");
  std::string bytes = test::contents_of(file());
  bytes[stored.header().data_begin + tensor.begin + std::size_t{20} * 3 + 1] = '\x7c';
  test::put(file(), bytes);
  const ModelSource model = source();
  const plan::Program program = program_of(model, "bf16-mixed");
  const std::string message =
      message_of<FileError>([&] { open_weights(program, model, mantissa::testing::plain_device()); });
  EXPECT_NE(message.find("model.gguf: tensor \"model.layers.1.mlp.up_proj.weight\" is "), std::string::npos)
      << message;
  EXPECT_NE(message.find("at element 96;"), std::string::npos) << message;
}

TEST_F(GgufWeights, DamagedFilesAreOneErrorThatNamesTheFile) {
  write_both(convert::small_models().front().config, TensorType::q4_0);
  const std::string whole = test::contents_of(file());
  // Cuts inside the magic, the metadata, the list of tensors and the data.
  for (const std::size_t length :
       {std::size_t{3}, std::size_t{20}, std::size_t{700}, whole.size() / 2, whole.size() - 1}) {
    test::put(file(), whole.substr(0, length));
    const std::string message = message_of<FileError>([&] { source(); });
    EXPECT_NE(message.find("model.gguf: "), std::string::npos) << length << ": " << message;
  }
  // An offset beyond the file: the eight bytes before the next tensor's name.
  const std::size_t name = whole.find("blk.0.attn_k.weight"), offset = whole.find("blk.0.", name + 1) - 16;
  ASSERT_NE(name, std::string::npos);
  std::string wrong = whole;
  wrong[offset + 6] = '\x7f';
  test::put(file(), wrong);
  const std::string message = message_of<FileError>([&] { source(); });
  EXPECT_NE(message.find("model.gguf: "), std::string::npos) << message;
}

TEST_F(GgufWeights, APathThatIsNotAModelIsAnError) {
  test::put(folder / "notes.txt", "no model");
  const auto message = [&](const char* name) {
    return message_of<FileError>([&] { find_model(folder / name); });
  };
  EXPECT_EQ(message("notes.txt"),
            (folder / "notes.txt").string() +
                ": is neither a model directory, which needs config.json, nor a GGUF file");
  for (const char* name : {"absent", "absent.gguf", "absent.pth"})
    EXPECT_TRUE(message(name).starts_with((folder / name).string() + ": not found; expected "))
        << message(name);
}

}  // namespace
}  // namespace mantissa::weights
