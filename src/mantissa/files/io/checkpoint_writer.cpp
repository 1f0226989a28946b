#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/safetensors_header.h"
#include "mantissa/files/io/safetensors_stream.h"

namespace mantissa::io {
namespace {

namespace fs = std::filesystem;

struct Shard {
  std::size_t first = 0, count = 0;
};

struct Split {
  std::vector<Shard> shards;
  std::uint64_t bytes = 0;
};

// Splits the tensors in order, filling each shard.
Split split(std::span<const TensorToWrite> tensors, std::uint64_t shard_bytes) {
  Split result;
  std::uint64_t held = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = byte_size(tensors[i].shape, tensors[i].dtype).value_or(0);
    if (result.shards.empty() || held + bytes > shard_bytes) {
      result.shards.push_back({i, 0});
      held = 0;
    }
    ++result.shards.back().count;
    held += bytes;
    result.bytes += bytes;
  }
  if (result.shards.empty()) result.shards.push_back({});
  return result;
}

void write_shards(const fs::path& directory, const ModelToWrite& model,
                  const std::map<std::string, std::string>& metadata, const Split& split, Hash64& hash) {
  nlohmann::json index = {{"metadata", {{"total_size", split.bytes}}},
                          {"weight_map", nlohmann::json::object()}};
  for (std::size_t i = 0; i < split.shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, split.shards.size());
    const auto tensors = model.tensors.subspan(split.shards[i].first, split.shards[i].count);
    stream_safetensors(directory / name, tensors, metadata, hash);
    for (const TensorToWrite& tensor : tensors) {
      if (!index["weight_map"].emplace(tensor.name, name).second) {
        throw ConfigError(
            fmt::format("two weights have the name {}; rename one", name_in_quotes(tensor.name)));
      }
    }
  }
  disk::write_file_atomic(directory / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace

std::uint64_t write_model(const fs::path& directory, const ModelToWrite& model) {
  std::map<std::string, std::string> metadata = model.metadata;
  metadata.emplace("format", "pt");
  disk::AtomicDirectory target(directory, disk::kModel);
  disk::write_file_atomic(target.beside() / "config.json", model.config_json);
  if (!model.generation_config_json.empty()) {
    disk::write_file_atomic(target.beside() / "generation_config.json", model.generation_config_json);
  }
  for (const auto& [name, contents] : model.files) disk::write_file_atomic(target.beside() / name, contents);
  Hash64 hash;
  const Split shards = split(model.tensors, model.shard_bytes);
  if (shards.shards.size() == 1) {
    stream_safetensors(target.beside() / "model.safetensors", model.tensors, metadata, hash);
  } else {
    write_shards(target.beside(), model, metadata, shards, hash);
  }
  target.commit();
  return hash.digest();
}

}  // namespace mantissa::io
