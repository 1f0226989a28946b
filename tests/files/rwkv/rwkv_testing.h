// Small checkpoints with the names of RWKV-LM.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/disk/temporary.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/rwkv/checkpoint.h"

namespace mantissa::rwkv {

struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values = {};  // of an f32 tensor; empty: 0, 1, 2, … in 64ths, which every format holds
  io::Dtype dtype = io::Dtype::f32;
};
using Tensors = std::map<std::string, Tensor>;

/// Returns the tensors of RWKV-7 with 2 layers, 8 channels in heads of `head`, ranks 2, 3, 4 and 5 of w, a, v
/// and g, 12 inner channels and 16 tokens. Layer 0 has no mixtures with the first values.
inline Tensors seventh(std::int64_t head = 4) {
  constexpr std::int64_t kChannels = 8;
  Tensors all = {{"emb.weight", {{16, kChannels}}},
                 {"head.weight", {{16, kChannels}}},
                 {"ln_out.weight", {{kChannels}}},
                 {"ln_out.bias", {{kChannels}}}};
  for (const std::string block : {"blocks.0.", "blocks.1."}) {
    const auto norm = [&](const std::string& name) {
      all[block + name + ".weight"] = all[block + name + ".bias"] = {{kChannels}};
    };
    for (const char* name : {"ln1", "ln2", "att.ln_x"}) norm(name);
    if (block == "blocks.0.") norm("ln0");
    const std::string att = block + "att.";
    for (const char* name : {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g", "k_k", "k_a"})
      all[att + name] = {{1, 1, kChannels}};
    const std::pair<const char*, std::int64_t> ranks[] = {{"w", 2}, {"a", 3}, {"v", 4}, {"g", 5}};
    for (const auto& [name, rank] : ranks) {
      const std::string low = att + name;
      if (low == "blocks.0.att.v") continue;
      all[low + "1"] = {{kChannels, rank}};
      all[low + "2"] = {{rank, kChannels}};
      if (*name != 'g') all[low + "0"] = {{1, 1, kChannels}};
    }
    all[att + "r_k"] = {{kChannels / head, head}};
    for (const char* name : {"receptance", "key", "value", "output"})
      all[att + name + ".weight"] = {{kChannels, kChannels}};
    all[block + "ffn.x_k"] = {{1, 1, kChannels}};
    all[block + "ffn.key.weight"] = {{12, kChannels}};
    all[block + "ffn.value.weight"] = {{kChannels, 12}};
  }
  return all;
}

class RwkvCheckpoint : public test::TemporaryFolder {
 protected:
  /// The file has the container of safetensors, which is read like one of PyTorch.
  std::filesystem::path file() const { return folder / "model.safetensors"; }

  void write(const Tensors& tensors) const {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<io::TensorToWrite> all;
    for (const auto& [name, tensor] : tensors) {
      io::TensorInfo info{name, tensor.dtype, tensor.shape, 0, 0};
      const auto n = static_cast<std::size_t>(info.count());
      bytes.emplace_back(n * io::bytes_of(tensor.dtype));
      if (tensor.dtype == io::Dtype::f32) {
        std::vector<float> values = tensor.values;
        for (std::size_t i = values.size(); i < n; ++i) values.push_back(static_cast<float>(i) / 64);
        std::ranges::copy(std::as_bytes(std::span(values)), bytes.back().begin());
      }
      all.push_back({name, tensor.dtype, tensor.shape, {}, {}});
    }
    for (std::size_t i = 0; i < all.size(); ++i) all[i].bytes = bytes[i];
    io::write_safetensors(file(), all);
  }

  Checkpoint open() const { return open_checkpoint(io::WeightFiles(file()), file()); }

  template <class E>
  std::string message() const {
    return test::message_of<E>([&] { open(); });
  }
};

inline std::vector<float> values_of(const io::WeightFiles& files, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(files.find(name)->count()));
  files.read_f32(name, values);
  return values;
}

}  // namespace mantissa::rwkv
