#include "mantissa/setup/weights/weights_hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/hash.h"
#include "mantissa/setup/weights/stored_names.h"

namespace mantissa::weights {
namespace {

constexpr std::uint64_t kHashedPart = std::uint64_t{1} << 16;  // elements: in f32 they fit a core's cache

/// A part of a weight that one thread hashes.
struct HashedPart {
  const io::TensorInfo* tensor;
  Scalar type;
  std::uint64_t first, count;  // elements
};

std::uint64_t hash_of_part(const io::WeightFiles& files, const HashedPart& piece) {
  const std::size_t width = bytes_of(piece.type);
  std::vector<std::byte> stored(piece.count * width);
  files.read(piece.tensor->name, stored, piece.first * width);
  io::Hash64 hash;
  if (piece.type == Scalar::f32) {
    hash.update(stored);
    return hash.digest();
  }
  std::vector<float> values(piece.count);
  load_row(stored.data(), piece.type, 0, piece.count, values.data());
  hash.update(std::as_bytes(std::span(values)));
  if (piece.type == Scalar::f64) {  // what f32 does not hold
    std::vector<double> exact(piece.count);
    load_row(stored.data(), piece.type, 0, piece.count, exact.data());
    const bool differs = !std::ranges::equal(
        exact, values, [](double e, float v) { return e == static_cast<double>(v) || e != e; });
    if (differs) hash.update(stored);
  }
  return hash.digest();
}

}  // namespace

std::string hash_of_weights(const ModelSource& source, const runtime::Device& device) {
  if (source.weights.empty() && source.memory == nullptr) return {};
  const io::WeightFiles files = files_of(source);
  std::vector<HashedPart> pieces;
  io::Hash64 all;
  const graph::Graph graph = model::build_forward(source.config);
  for (const graph::ValueId id : graph.parameters()) {
    const std::string& name = graph.value(id).name;
    if (source.config.adapter != nullptr && source.config.adapter->owns(name)) continue;
    const io::TensorInfo* tensor = stored_tensor(name, files, *source.config.family);
    if (tensor == nullptr) continue;  // loading the weights reports what is missing
    const std::optional<Scalar> type = io::scalar_of(tensor->dtype);
    if (!type) continue;
    const std::string head = fmt::format("{} {}\n", name, fmt::join(tensor->shape, "×"));
    all.update(std::as_bytes(std::span(head)));
    const auto count = static_cast<std::uint64_t>(tensor->count());
    for (std::uint64_t first = 0; first < count; first += kHashedPart)
      pieces.push_back({tensor, *type, first, std::min(kHashedPart, count - first)});
  }
  std::vector<std::uint64_t> hashes(pieces.size());
  std::vector<std::exception_ptr> faults(static_cast<std::size_t>(device.host().threads));
  device.parallel_for(std::ssize(pieces), [&](std::int64_t i, int thread) {
    std::exception_ptr& fault = faults[static_cast<std::size_t>(thread)];
    if (fault != nullptr) return;
    try {
      hashes[static_cast<std::size_t>(i)] = hash_of_part(files, pieces[static_cast<std::size_t>(i)]);
    } catch (...) {
      fault = std::current_exception();
    }
  });
  for (const std::exception_ptr& fault : faults) {
    if (fault != nullptr) std::rethrow_exception(fault);
  }
  all.update(std::as_bytes(std::span(hashes)));
  return io::hex(all.digest());
}

}  // namespace mantissa::weights
