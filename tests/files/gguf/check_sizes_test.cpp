// Sizes in the metadata of a GGUF file that contradict its tensors are blamed on their key.
#include "mantissa/files/gguf/check_sizes.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"
#include "mantissa/files/gguf/header_writer.h"

namespace mantissa::gguf {
namespace {

using Keys = std::map<std::string, std::uint32_t>;

/// A llama of one layer with 6 heads of 8 on 48 features, 2 of keys, and a feed-forward of 96.
class GgufSizes : public test::TemporaryFolder {
 public:
  /// Returns the error for the file whose metadata has `changed` in place of the right sizes; 0 removes a
  /// key.
  std::string error(const Keys& changed, const std::string& architecture = "llama") const {
    Keys keys = {{"block_count", 1},          {"embedding_length", 48},       {"feed_forward_length", 96},
                 {"attention.head_count", 6}, {"attention.head_count_kv", 2}, {"rope.dimension_count", 8}};
    for (const auto& [key, value] : changed) keys[key] = value;
    HeaderWriter header;
    header.add("general.architecture", std::string_view(architecture));
    for (const auto& [key, value] : keys) {
      if (value != kMissing) header.add(architecture + "." + key, value);
    }
    std::vector<TensorToStore> tensors = {{"token_embd.weight", TensorType::f32, {16, 48}},
                                          {"blk.0.attn_norm.weight", TensorType::f32, {48}},
                                          {"blk.0.attn_q.weight", TensorType::f32, {48, 48}},
                                          {"blk.0.attn_k.weight", TensorType::f32, {16, 48}},
                                          {"blk.0.ffn_gate.weight", TensorType::f32, {96, 48}}};
    const std::string bytes = header.finish(tensors);
    const std::filesystem::path path = folder / "m.gguf";
    std::ofstream out(path, std::ios::binary);
    out << bytes << std::string(tensors.back().begin + tensors.back().bytes() - bytes.size(), '\0');
    out.close();
    try {
      check_sizes(GgufFile(path), *find_architecture(architecture));
    } catch (const FileError& e) {
      return e.what();
    }
    return "";
  }
  static constexpr std::uint32_t kMissing = 0xffffffff;
};

TEST_F(GgufSizes, ThatFitTheTensorsAreAccepted) {
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({{"rope.dimension_count", kMissing}}), "");
  EXPECT_EQ(error({{"attention.key_length", 8}}), "");
  // A part of each head is rotated.
  EXPECT_EQ(error({{"rope.dimension_count", 2}}, "stablelm"), "");
}

TEST_F(GgufSizes, AreBlamedOnTheirKey) {
  const auto blames = [&](const Keys& changed, const std::string& text) {
    const std::string found = error(changed);
    EXPECT_NE(found.find(text), std::string::npos) << text << "\n" << found;
    EXPECT_NE(found.find("m.gguf"), std::string::npos) << found;
  };
  for (const std::uint32_t rotated : {8U, kMissing}) {
    for (const std::uint32_t head : {8U, kMissing}) {
      const Keys other = {{"rope.dimension_count", rotated}, {"attention.key_length", head}};
      for (const std::uint32_t heads : {0U, 3U, 5U, 7U, 12U, 4000000000U}) {
        Keys changed = other;
        changed["attention.head_count"] = heads;
        blames(changed, "llama.attention.head_count is " + std::to_string(heads) + ", but ");
      }
      for (const std::uint32_t hidden : {0U, 47U, 64U, 96U}) {
        Keys changed = other;
        changed["embedding_length"] = hidden;
        blames(changed, "llama.embedding_length is " + std::to_string(hidden) + ", but ");
      }
    }
  }
  blames({{"embedding_length", 64}}, "the rows of tensor token_embd.weight have 48 elements");
  blames({{"attention.head_count", 3}},
         "tensor blk.0.attn_q.weight has 48 rows, and a head 8 by llama.rope.");
  blames({{"attention.head_count_kv", 3}}, "llama.attention.head_count_kv is 3, but ");
  blames({{"feed_forward_length", 95}}, "llama.feed_forward_length is 95, but ");
  blames({{"block_count", 2}}, "llama.block_count is 2, but there is no tensor blk.1.attn_norm.weight");
}

}  // namespace
}  // namespace mantissa::gguf
