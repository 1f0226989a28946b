#include "mantissa/setup/weights/base_hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/hash.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/setup/weights/start.h"

namespace mantissa::weights {

namespace fs = std::filesystem;

namespace {

std::string hash_of_tensors(const io::WeightFiles& files) {
  constexpr std::uint64_t kPiece = 1 << 16;
  std::vector<const io::TensorInfo*> tensors;
  for (const io::TensorInfo& tensor : files.tensors()) tensors.push_back(&tensor);
  // The division into shards changes no weight.
  std::ranges::sort(tensors, {}, [](const io::TensorInfo* t) { return t->name; });
  io::Hash64 hash;
  std::vector<std::byte> piece;
  for (const io::TensorInfo* t : tensors) {
    const std::string head =
        fmt::format("{} {} {}\n", t->name, io::safetensors_name(t->dtype), fmt::join(t->shape, "×"));
    hash.update(std::as_bytes(std::span(head)));
    const auto size = static_cast<std::uint64_t>(t->count()) * io::bytes_of(t->dtype);
    for (std::uint64_t at = 0; at < size; at += kPiece) {
      piece.resize(std::min(kPiece, size - at));
      files.read(t->name, piece, at);
      hash.update(piece);
    }
  }
  return io::hex(hash.digest());
}

/// Returns start.safetensors of the run of an adapter; it may not exist.
fs::path start_of(const fs::path& path) {
  const fs::path clean = (path / "").lexically_normal().parent_path();
  const fs::path above = clean.parent_path();
  if (clean.filename() == io::kAdapterFolder) return above / "start.safetensors";
  if (above.filename() == "state") return above.parent_path() / "start.safetensors";
  return clean / "start.safetensors";
}

}  // namespace

std::string hash_of_files(const ModelSource& source) {
  if (source.weights.empty() || source.memory != nullptr || source.state) return {};
  if (source.tensors != nullptr) return io::hex(io::hash_of(disk::File::open_to_read(source.weights)));
  const io::WeightFiles files(source.weights);
  if (files.source() != nullptr)
    return io::hex(io::hash_of(disk::File::open_to_read(files.source()->path())));
  return hash_of_tensors(files);
}

std::optional<std::string> changed_base(const ModelSource& source, const fs::path& path) {
  const fs::path start = start_of(path);
  if (!disk::exists(start)) return std::nullopt;
  const StartBase before = StartWeights(start).base();
  if (before.files.empty()) return std::nullopt;
  const std::string now = hash_of_files(source);
  if (now.empty() || now == before.files) return std::nullopt;
  return fmt::format(
      "{}: expected the base with which the run began, {} with the hash {}, got {} with the hash {}; the "
      "adapter was not trained on these weights, and its results are those of another model. Fix: restore "
      "the base, or train the adapter on this one",
      path.string(), before.path, before.files, source.weights.string(), now);
}

}  // namespace mantissa::weights
