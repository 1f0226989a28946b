// A folder with a file of tensors to convert.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/disk/temporary.h"
#include "mantissa/files/convert/convert.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/model_path.h"

namespace mantissa::convert {

namespace fs = std::filesystem;
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
    return *convert({io::open_model(in), out, change, overwrite}, ctx);
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

}  // namespace mantissa::convert
