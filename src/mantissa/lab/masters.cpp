#include "mantissa/lab/masters.h"

#include <algorithm>
#include <cmath>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/engine/comm/bytes.h"
#include "mantissa/files/io/checkpoint.h"

namespace mantissa::lab {
namespace {

std::size_t elements_of(const MasterTensor& tensor) {
  return tensor.bytes.size() / bytes_of(tensor.type);
}

/// Returns the sum of the squared differences. Each part of 8192 elements has a sum of its own, so that
/// threads change no bit.
double squared_distance(const MasterTensor& a, const MasterTensor& b, const runtime::Device& device) {
  constexpr std::size_t kPart = 1 << 13;
  const std::size_t count = elements_of(a), parts = (count + kPart - 1) / kPart;
  std::vector<double> sums(parts);
  device.parallel_for(static_cast<std::int64_t>(parts), [&](std::int64_t part, int) {
    const std::size_t first = static_cast<std::size_t>(part) * kPart, n = std::min(kPart, count - first);
    std::vector<double> row_a(n), row_b(n);
    load_row(a.bytes.data(), a.type, first, n, row_a.data());
    load_row(b.bytes.data(), b.type, first, n, row_b.data());
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += (row_a[i] - row_b[i]) * (row_a[i] - row_b[i]);
    sums[static_cast<std::size_t>(part)] = sum;
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace

Masters copy_masters(train::Trainer& trainer) {
  Masters all;
  for (std::size_t i = 0; i < trainer.program().slots.size(); ++i) {
    const plan::Slot& slot = trainer.program().slots[i];
    if (slot.fixed || trainer.program().buffer(slot.master_buffer).quants) continue;
    const Matrix master = trainer.weights().master(i);
    const auto copy = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(slot.shape.count()) *
                                                               bytes_of(master.type));
    trainer.device().download(*copy, static_cast<const std::byte*>(master.data));
    all.push_back({slot.name, master.type, *copy, copy});
  }
  return all;
}

Masters masters_of_rank(comm::Communicator& ranks, Masters own, int root) {
  if (ranks.alone()) return own;
  comm::Bytes told;
  for (const MasterTensor& tensor : own) {
    comm::append(told, tensor.name);
    comm::append(told, tensor.type);
    comm::append(told, tensor.bytes.size());
  }
  told = ranks.broadcast(std::move(told), root);
  if (ranks.rank() == root) {
    for (const MasterTensor& tensor : own) {
      auto* first = const_cast<std::byte*>(tensor.bytes.data());  // NOLINT: the root only sends them
      ranks.broadcast(std::span(first, tensor.bytes.size()), root);
    }
    return own;
  }
  Masters all;
  for (std::span<const std::byte> left = told; !left.empty();) {
    MasterTensor& tensor = all.emplace_back();
    tensor.name = comm::take<std::string>(left);
    tensor.type = comm::take<Scalar>(left);
    const auto copy = std::make_shared<std::vector<std::byte>>(comm::take<std::size_t>(left));
    ranks.broadcast(std::span(*copy), root);
    tensor.bytes = *copy;
    tensor.keep = copy;
  }
  return all;
}

Masters map_masters(const std::filesystem::path& path, std::string_view prefix) {
  Masters all;
  io::WeightFiles files(path, std::string(prefix));
  for (const io::TensorInfo& tensor : files.tensors()) {
    const std::optional<Scalar> type = io::scalar_of(tensor.dtype);
    if (!type) continue;
    const io::WeightFiles::Mapped mapped = files.map(tensor.name);
    all.push_back({tensor.name, *type, mapped.bytes, mapped.keep});
  }
  return all;
}

std::optional<double> distance(const Masters& a, const Masters& b, const runtime::Device& device) {
  if (a.size() != b.size()) return std::nullopt;
  double sum = 0;
  for (const MasterTensor& tensor : a) {
    const auto other = std::ranges::find(b, tensor.name, &MasterTensor::name);
    if (other == b.end() || elements_of(*other) != elements_of(tensor)) return std::nullopt;
    sum += squared_distance(tensor, *other, device);
  }
  return std::sqrt(sum);
}

}  // namespace mantissa::lab
