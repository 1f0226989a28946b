// RWKV-7 between checkpoints of RWKV-LM, Hugging Face directories and GGUF files.
#include <algorithm>

#include "files/convert/gguf_testing.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/files/convert/rewrite.h"
#include "mantissa/files/gguf/gguf_file.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/state.h"
#include "mantissa/files/rwkv/checkpoint.h"

namespace mantissa::convert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Shape = std::vector<std::int64_t>;

class Rwkv7 : public GgufModel {
 protected:
  static json config() {
    for (SmallModel& model : small_models()) {
      if (std::string(model.name) == "Rwkv7") return model.config;
    }
    return {};
  }

  fs::path pth() const { return folder / "model.pth"; }

  Result to(const fs::path& from, const fs::path& out, Layout layout, Change change = {}) const {
    return *convert({io::open_model(from), out, change, true, layout}, {});
  }

  /// Expects the weights of the directory `other` to be those of in().
  void expect_same(const fs::path& other, bool dtypes) const {
    const io::WeightFiles before(in()), after(other);
    ASSERT_EQ(before.tensors().size(), after.tensors().size());
    for (const io::TensorInfo& t : before.tensors()) {
      ASSERT_NE(after.find(t.name), nullptr) << t.name;
      EXPECT_EQ(after.find(t.name)->shape, t.shape) << t.name;
      EXPECT_TRUE(!dtypes || after.find(t.name)->dtype == t.dtype) << t.name;
      EXPECT_EQ(values_of(after, t.name), values_of(before, t.name)) << t.name;
    }
  }
};

TEST_F(Rwkv7, EveryWayBetweenTheThreeLayoutsKeepsEveryBit) {
  for (const Scalar format : {Scalar::f32, Scalar::bf16, Scalar::f16}) {
    write(config(), format);
    to(in(), pth(), Layout::pth);
    to(pth(), folder / "a", Layout::hugging_face);
    expect_same(folder / "a", true);
    to(pth(), file(), Layout::gguf);
    to(file(), folder / "b", Layout::hugging_face);
    expect_same(folder / "b", format == Scalar::f32);
    to(file(), folder / "again.pth", Layout::pth);
    to(folder / "again.pth", folder / "c", Layout::hugging_face);
    expect_same(folder / "c", format == Scalar::f32);
    to(pth(), folder / "d", Layout::pth);  // pytorch_model.bin under Hugging Face names
    expect_same(folder / "d", true);
    for (const char* name : {"a", "b", "c", "d"}) {
      EXPECT_EQ(json_of(folder / name / "config.json")["torch_dtype"], io::torch_name(io::dtype_of(format)));
      EXPECT_EQ(json_of(folder / name / "config.json")["v_low_rank_dim"], 24);
    }
  }
}

TEST_F(Rwkv7, TheDirectAndTheIndirectWayGiveTheSameGgufFile) {
  json with_ends = config();
  with_ends["bos_token_id"] = with_ends["eos_token_id"] = 0;  // those of every checkpoint
  write(with_ends);
  to(in(), file(), Layout::gguf);
  fs::create_directory(folder / "model");
  to(in(), folder / "model" / "in.pth", Layout::pth);
  to(folder / "model" / "in.pth", folder / "other.gguf", Layout::gguf);
  EXPECT_TRUE(test::contents_of(file()) == test::contents_of(folder / "other.gguf"));
}

TEST_F(Rwkv7, ACheckpointHasTheNamesAndShapesOfRwkvLm) {
  write(config());
  const Result result = to(in(), pth(), Layout::pth);
  const io::WeightFiles files(pth());
  EXPECT_EQ(files.find("emb.weight")->shape, (Shape{64, 64}));
  EXPECT_EQ(files.find("blocks.0.ln0.bias")->shape, (Shape{64}));
  EXPECT_EQ(files.find("blocks.1.att.x_g")->shape, (Shape{1, 1, 64}));
  EXPECT_EQ(files.find("blocks.1.att.w0")->shape, (Shape{1, 1, 64}));
  EXPECT_EQ(files.find("blocks.1.att.w1")->shape, (Shape{64, 8}));
  EXPECT_EQ(files.find("blocks.1.att.g2")->shape, (Shape{32, 64}));
  EXPECT_EQ(files.find("blocks.1.att.r_k")->shape, (Shape{1, 64}));
  EXPECT_EQ(files.find("blocks.1.ffn.key.weight")->shape, (Shape{96, 64}));
  EXPECT_EQ(values_of(files, "blocks.0.att.v1"), std::vector<float>(std::size_t{64} * 24, 0.0F));
  EXPECT_TRUE(std::ranges::any_of(result.notes, [](const std::string& note) {
    return note.find("blocks.0.att.v0, v1 and v2") != std::string::npos;
  }));
}

TEST_F(Rwkv7, AStateBecomesACheckpointOfItsMasters) {
  write(config());
  const io::WeightFiles files(in());
  std::vector<std::vector<std::byte>> bytes;
  std::vector<io::TensorToWrite> masters;
  for (const io::TensorInfo& t : files.tensors()) {
    bytes.emplace_back(t.end - t.begin);
    files.read(t.name, bytes.back());
    masters.push_back({"master." + t.name, t.dtype, t.shape, {}, {}});
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) masters[i].bytes = bytes[i];
  io::StateHeader header;
  header.step = 3;
  header.config_toml = "[run]\n";
  header.model_config = config().dump();
  header.policy = "32-true";
  io::write_state(folder / "run", header, masters, 1);
  to(folder / "run", pth(), Layout::pth);
  EXPECT_EQ(io::WeightFiles(pth()).metadata().at("mantissa.history"), "masters of the state of step 3");
  to(pth(), folder / "a", Layout::hugging_face);
  expect_same(folder / "a", true);
}

TEST_F(Rwkv7, AnotherFileOfWeightsKeepsTheNamesOfRwkvLm) {
  write(config());
  to(in(), pth(), Layout::pth);
  to(pth(), folder / "x.safetensors", Layout::hugging_face);
  EXPECT_NE(io::WeightFiles(folder / "x.safetensors").find("blocks.0.att.r_k"), nullptr);
  to(pth(), folder / "y.pth", Layout::pth, {Scalar::bf16});
  EXPECT_EQ(io::WeightFiles(folder / "y.pth").find("blocks.0.att.r_k")->dtype, io::Dtype::bf16);
}

TEST_F(Rwkv7, F64IsRoundedOnlyOnRequest) {
  write(config(), Scalar::f64);
  EXPECT_NE(test::message_of<DtypeError>([&] {
              to(in(), pth(), Layout::pth);
            }).find("expected F32, BF16 or F16 for a checkpoint of RWKV-LM, got F64 for \"emb.weight\""),
            std::string::npos);
  EXPECT_FALSE(fs::exists(pth()));
  const auto source = rwkv::to_checkpoint(io::WeightFiles(in() / "model.safetensors"),
                                          model::parse_model_config(config(), "config.json"), in());
  std::vector<OutputTensor> all;  // of another program
  for (const io::TensorInfo& t : source->tensors()) all.push_back({&t, t.name});
  rewrite_file(*source, all, Container::torch, disk::given(pth(), false), {}, {}, {});
  const std::string message =
      test::message_of<DtypeError>([&] { to(pth(), folder / "a", Layout::hugging_face); });
  EXPECT_NE(message.find("expected F32, BF16 or F16 for tensor \"emb.weight\""), std::string::npos)
      << message;
  EXPECT_NE(message.find("got F64. Fix: mantissa convert " + pth().string() + " OUT.pth --dtype f32"),
            std::string::npos)
      << message;
  EXPECT_FALSE(fs::exists(folder / "a"));
  to(pth(), folder / "a", Layout::hugging_face, {Scalar::f32});
  expect_same(folder / "a", false);
}

TEST_F(Rwkv7, TheVocabularyBesideACheckpointGoesWithIt) {
  write(config());
  fs::create_directory(folder / "from");
  to(in(), folder / "from" / "model.pth", Layout::pth);
  test::put(folder / "from" / "rwkv_vocab_small.txt", "1 'a' 1\n");
  test::put(folder / "from" / "notes.txt", "not of the model");
  const Result result = to(folder / "from" / "model.pth", folder / "a", Layout::hugging_face);
  EXPECT_EQ(result.copied, (std::vector<std::string>{"rwkv_vocab_small.txt"}));
  EXPECT_EQ(test::contents_of(folder / "a" / "rwkv_vocab_small.txt"), "1 'a' 1\n");
  EXPECT_FALSE(fs::exists(folder / "a" / "notes.txt"));
}

TEST_F(Rwkv7, AGgufFileHasTheNamesAndShapesOfLlamaCpp) {
  write(config());
  convert_to_gguf();
  const gguf::GgufFile foreign(file());
  const auto shape = [&](const char* name) {
    const gguf::FileTensor* found = foreign.find(name);
    return found == nullptr ? Shape() : found->shape;
  };
  EXPECT_EQ(shape("token_embd_norm.bias"), (Shape{64}));
  EXPECT_EQ(shape("blk.1.attn_norm_2.weight"), (Shape{64}));
  EXPECT_EQ(shape("blk.1.time_mix_lerp_fused.weight"), (Shape{6, 1, 1, 64}));
  EXPECT_EQ(shape("blk.1.time_mix_w1.weight"), (Shape{8, 64}));
  EXPECT_EQ(shape("blk.1.time_mix_w2.weight"), (Shape{64, 8}));
  EXPECT_EQ(shape("blk.1.time_mix_r_k.weight"), (Shape{64}));
  EXPECT_EQ(shape("blk.1.channel_mix_lerp_k.weight"), (Shape{64}));
  EXPECT_EQ(shape("blk.1.channel_mix_key.weight"), (Shape{96, 64}));
  // llama.cpp loads, and does not use, these of layer 0, with the rank of the learning rates.
  EXPECT_EQ(shape("blk.0.time_mix_v1.weight"), (Shape{16, 64}));
  EXPECT_EQ(shape("blk.1.time_mix_v1.weight"), (Shape{24, 64}));
  EXPECT_EQ(foreign.integer("rwkv7.wkv.head_size"), 64);
  EXPECT_EQ(foreign.integer("rwkv7.attention.head_count"), 0);
  EXPECT_EQ(foreign.integer("rwkv7.context_length"), 1 << 20);
  EXPECT_EQ(foreign.integer("rwkv7.attention.value_residual_mix_lora_rank"), 24);
  // r, w, k, v, a, g one after the other.
  const gguf::FileTensor& fused = *foreign.find("blk.1.time_mix_lerp_fused.weight");
  std::vector<float> all(fused.count());
  std::ranges::copy(foreign.data(fused), std::as_writable_bytes(std::span(all)).begin());
  const io::WeightFiles files(in());
  std::size_t at = 0;
  for (const char* name : {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g"}) {
    const std::vector<float> one = values_of(files, std::string("model.layers.1.attn.") + name);
    EXPECT_TRUE(std::ranges::equal(one, std::span(all).subspan(at, one.size()))) << name;
    at += one.size();
  }
}

TEST_F(Rwkv7, LowRankMatricesAreNotQuantized) {
  write(config());
  const Result result = convert_to_gguf({}, gguf::TensorType::q8_0);
  const gguf::GgufFile foreign(file());
  EXPECT_STREQ(foreign.find("blk.1.time_mix_key.weight")->type->name, "Q8_0");
  EXPECT_STREQ(foreign.find("blk.1.time_mix_g1.weight")->type->name, "F32");
  EXPECT_STREQ(foreign.find("blk.1.time_mix_lerp_fused.weight")->type->name, "F32");
  EXPECT_TRUE(std::ranges::any_of(result.notes, [](const std::string& note) {
    return note == "16 low-rank matrices were written as F32, which llama.cpp does not quantize";
  }));
}

TEST_F(Rwkv7, OtherConstantsThanLlamaCppsAreErrors) {
  json small = config();
  small["head_dim"] = 32;  // llama.cpp adds 64e-5 in its norm, and this family 32e-5
  write(small);
  EXPECT_NE(test::message_of<ConfigError>([&] { convert_to_gguf(); }).find("in the norm of each head"),
            std::string::npos);
  EXPECT_NE(
      test::message_of<ConfigError>([&] { to(in(), pth(), Layout::pth); }).find("in the norm of each head"),
      std::string::npos);
  small["group_norm_eps"] = 64e-5;
  write(small);
  to(in(), pth(), Layout::pth);
  const Result result = to(pth(), folder / "a", Layout::hugging_face);
  EXPECT_EQ(json_of(folder / "a" / "config.json")["group_norm_eps"], 64e-5);
  EXPECT_TRUE(std::ranges::any_of(result.notes, [](const std::string& note) {
    return note.starts_with("group_norm_eps in config.json");
  }));
  convert_to_gguf();
  convert_back();
  EXPECT_EQ(json_of(back() / "config.json")["group_norm_eps"], 64e-5);
  write(config());
  convert_to_gguf();
  convert_back();
  EXPECT_FALSE(json_of(back() / "config.json").contains("group_norm_eps"));
}

}  // namespace
}  // namespace mantissa::convert
