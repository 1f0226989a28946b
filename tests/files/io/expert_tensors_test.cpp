// The weights of experts: joined as files are read, and split as they are written.
#include "mantissa/files/io/expert_tensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::io {
namespace {

constexpr std::int64_t kExperts = 3, kRows = 2, kColumns = 5;

class ExpertTensors : public test::TemporaryFolder {
 protected:
  /// Tensors of 0, 1, 2, … for each expert, in another order than by number, and one that is no expert's.
  std::vector<TensorToWrite> tensors(std::int64_t experts = kExperts) {
    values.resize(static_cast<std::size_t>(experts * kRows * kColumns));
    std::iota(values.begin(), values.end(), 0.0F);
    std::vector<TensorToWrite> all = {
        {"norm.weight", Dtype::f32, {kColumns}, bytes_of_values(0, kColumns), nullptr}};
    for (std::int64_t e = experts; e-- > 0;) {
      all.push_back({expert_tensor("l.0.mlp.experts.up_proj.weight", e),
                     Dtype::f32,
                     {kRows, kColumns},
                     bytes_of_values(e * kRows * kColumns, kRows * kColumns),
                     nullptr});
    }
    return all;
  }
  std::span<const std::byte> bytes_of_values(std::int64_t first, std::int64_t count) const {
    return std::as_bytes(
        std::span(values).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
  }
  WeightFiles written(const std::vector<TensorToWrite>& all) {
    write_safetensors(folder / "model.safetensors", all);
    return WeightFiles(folder / "model.safetensors");
  }

  std::vector<float> values;
};

TEST_F(ExpertTensors, AreOneTensorInTheOrderOfExperts) {
  const WeightFiles files = with_joined_experts(written(tensors(12)));  // 10 and 11 come after 9, not after 1
  const TensorInfo* joined = files.find("l.0.mlp.experts.up_proj.weight");
  ASSERT_NE(joined, nullptr);
  EXPECT_EQ(joined->shape, (std::vector<std::int64_t>{12, kRows, kColumns}));
  EXPECT_EQ(files.tensors().size(), 2U);
  std::vector<float> read(values.size());
  files.read_f32(joined->name, read);
  EXPECT_EQ(read, values);
  for (const std::uint64_t begin : {0, 3, 39, 40, 41, 100}) {
    std::vector<std::byte> part(95);  // of up to four experts
    files.read(joined->name, part, begin);
    EXPECT_EQ(
        std::memcmp(part.data(), reinterpret_cast<const std::byte*>(values.data()) + begin, part.size()), 0)
        << begin;
  }
}

TEST_F(ExpertTensors, AreWrittenForEachExpert) {
  const std::vector<TensorToWrite> apart = tensors();
  TensorToWrite whole{"l.0.mlp.experts.up_proj.weight", Dtype::f32, {kExperts, kRows, kColumns}};
  for (const bool filled : {false, true}) {
    if (filled) {
      whole.bytes = {};
      whole.fill = [&](std::uint64_t offset, std::span<std::byte> out) {
        std::ranges::copy(std::as_bytes(std::span(values)).subspan(offset, out.size()), out.begin());
      };
    } else {
      whole.bytes = std::as_bytes(std::span(values));
    }
    const std::vector<TensorToWrite> split = with_split_experts({apart.front(), whole});
    ASSERT_EQ(split.size(), apart.size());
    EXPECT_EQ(split[0].name, "norm.weight");
    const WeightFiles files = written(split);
    for (std::size_t i = 1; i < apart.size(); ++i) {
      const TensorInfo* tensor = files.find(apart[i].name);
      ASSERT_NE(tensor, nullptr) << apart[i].name;
      EXPECT_EQ(tensor->shape, apart[i].shape);
      std::vector<std::byte> read(apart[i].bytes.size());
      files.read(tensor->name, read);
      EXPECT_TRUE(std::ranges::equal(read, apart[i].bytes)) << apart[i].name;
    }
  }
}

TEST_F(ExpertTensors, OfWhichOneIsMissingOrDiffersAreErrors) {
  std::vector<TensorToWrite> all = tensors();
  std::erase_if(all, [](const TensorToWrite& t) { return t.name.find(".1.up") != std::string::npos; });
  const std::string missing = test::message_of<FileError>([&] { with_joined_experts(written(all)); });
  EXPECT_NE(missing.find("\"l.0.mlp.experts.1.up_proj.weight\" is missing, but that of expert 2 is there"),
            std::string::npos)
      << missing;
  all = tensors();
  all[2].shape = {kColumns, kRows};
  const std::string differs = test::message_of<ShapeError>([&] { with_joined_experts(written(all)); });
  EXPECT_NE(
      differs.find("\"l.0.mlp.experts.1.up_proj.weight\" is F32 [5, 2], but that of expert 0 is F32 [2, 5]"),
      std::string::npos)
      << differs;
}

TEST(ExpertNames, ArePartsOfAParameter) {
  const auto part = parse_expert_tensor("model.layers.3.block_sparse_moe.experts.17.w1.weight");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->parameter, "model.layers.3.block_sparse_moe.experts.w1.weight");
  EXPECT_EQ(part->expert, 17);
  EXPECT_EQ(expert_tensor(part->parameter, 17), "model.layers.3.block_sparse_moe.experts.17.w1.weight");
  EXPECT_TRUE(is_of_experts(part->parameter));
  for (const char* other :
       {"model.layers.3.mlp.up_proj.weight", "model.experts.weight", "a.experts.1x.w", "a.experts.-1.w",
        "a.experts.99999999999999999999.w", "a.experts.", "a.experts.5"})
    EXPECT_FALSE(parse_expert_tensor(other)) << other;
  EXPECT_FALSE(is_of_experts("model.layers.3.mlp.up_proj.weight"));
}

}  // namespace
}  // namespace mantissa::io
