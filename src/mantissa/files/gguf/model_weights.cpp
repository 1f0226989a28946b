#include "mantissa/files/gguf/model_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "mantissa/core/base/printable.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/files/gguf/rows.h"
#include "mantissa/files/gguf/stored_values.h"
#include "mantissa/files/io/expert_tensors.h"
#include "mantissa/files/io/transpose.h"

namespace mantissa::gguf {
namespace {

/// Returns the sizes other than 1.
std::vector<std::int64_t> squeezed(std::vector<std::int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

}  // namespace

ModelWeights::ModelWeights(std::shared_ptr<const GgufFile> file, const Architecture& architecture,
                           const model::ModelConfig& config, const std::vector<std::string>& ignored,
                           std::map<std::string, std::string> metadata)
    : file_(std::move(file)), metadata_(std::move(metadata)) {
  std::set<std::string_view> known(ignored.begin(), ignored.end());
  const graph::Graph graph = model::build_log_prob(config, 1, 1, false);
  for (const graph::ValueId p : graph.parameters()) {
    const graph::Value& weight = graph.value(p);
    const std::optional<GgufName> in_file = gguf_name(architecture, weight.name);
    if (!in_file) {
      file_->fail(
          fmt::format("the architecture {} has no tensor for the weight {}", architecture.name, weight.name));
    }
    add(weight.name, weight.shape.sizes(), *in_file, config);
  }
  for (const auto& [name, place] : places_) known.insert(place.from->name);
  for (const FileTensor& tensor : file_->tensors()) {
    if (known.contains(tensor.name)) continue;
    file_->fail(
        fmt::format("tensor {} is not a weight of the architecture {}. Fix: convert it with the tools of "
                    "llama.cpp",
                    name_in_quotes(tensor.name), architecture.name));
  }
}

void ModelWeights::add(const std::string& name, const std::vector<std::int64_t>& shape,
                       const GgufName& in_file, const model::ModelConfig& config) {
  const FileTensor* from = file_->find(in_file.name);
  if (from == nullptr)
    file_->fail(
        fmt::format("tensor {} is missing. Fix: download the file again", name_in_quotes(in_file.name)));
  const std::vector<std::int64_t> expected = gguf_shape(shape, in_file.transform);
  // llama.cpp does not tell sizes of 1 from missing ones.
  if (squeezed(from->shape) != squeezed(expected)) {
    file_->fail(fmt::format("tensor {} has the shape [{}], but by the metadata it must be [{}]",
                            name_in_quotes(from->name), fmt::join(from->shape, ", "),
                            fmt::join(expected, ", ")));
  }
  std::uint64_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::uint64_t>(size);
  Place place{from, in_file.transform, heads_of(config, in_file.transform),
              static_cast<std::uint64_t>(in_file.part) * count};
  io::Dtype dtype = value_dtype(*file_, *from);
  if (place.transform == Transform::plus_one && dtype != io::Dtype::f64) dtype = io::Dtype::f32;
  for (const io::TensorInfo& tensor :
       io::split_experts({name, dtype, shape, 0, count * io::bytes_of(dtype)})) {
    place.first += tensor.begin / io::bytes_of(dtype);
    tensors_.push_back({tensor.name, dtype, tensor.shape, 0, tensor.end - tensor.begin});
    places_.emplace(tensor.name, place);
    place.first -= tensor.begin / io::bytes_of(dtype);
  }
}

void ModelWeights::read(const io::TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const {
  const Place& p = place(tensor);
  read_stored(p, tensor, out, offset);
  // All of the tensor, because threads that read pieces of it map pages of each other's.
  release(file_->data(*p.from));
}

void ModelWeights::read_stored(const Place& p, const io::TensorInfo& tensor, std::span<std::byte> out,
                               std::uint64_t offset) const {
  const std::uint64_t width = io::bytes_of(tensor.dtype), first = offset / width;
  switch (p.transform) {
    case Transform::none:
    case Transform::flattened:
    case Transform::part:
      return read_values(*file_, *p.from, p.first + first, out);
    case Transform::query_heads:
    case Transform::key_heads:
      return read_heads(p, tensor, out, first);
    case Transform::plus_one: {
      const io::Dtype stored = value_dtype(*file_, *p.from);
      std::vector<std::byte> values(out.size() / width * io::bytes_of(stored));
      read_values(*file_, *p.from, first, values);
      add_constant(values, stored, out, tensor.dtype, -1);
      return;
    }
    case Transform::transposed: {
      const std::shared_ptr<const std::vector<std::byte>> values = transposed(*p.from, tensor);
      std::memcpy(out.data(), values->data() + offset, out.size());
      return;
    }
  }
}

std::span<const std::byte> ModelWeights::in_memory(const io::TensorInfo& tensor) const {
  const Place& p = place(tensor);
  const bool in_order =
      p.transform == Transform::none || p.transform == Transform::flattened || p.transform == Transform::part;
  if (!p.from->type->plain || !in_order) return {};
  return file_->data(*p.from).subspan(p.first * io::bytes_of(tensor.dtype), tensor.end);
}

std::optional<io::QuantizedTensor> ModelWeights::quantized(const io::TensorInfo& tensor) const {
  const Place& p = place(tensor);
  const std::optional<QuantFormat> format = quant_format(static_cast<TensorType>(p.from->type->number));
  const bool vector = p.transform == Transform::plus_one || p.transform == Transform::part ||
                      p.transform == Transform::flattened;
  if (!format || p.from->shape.size() != 2 || vector) return std::nullopt;
  const std::span<const std::byte> stored = file_->data(*p.from);
  if (p.transform == Transform::none) return io::QuantizedTensor{{*format, false}, stored};
  if (p.transform == Transform::transposed) return io::QuantizedTensor{{*format, true}, stored};
  const auto rows = static_cast<std::uint64_t>(p.from->shape.front());
  const std::uint64_t row_bytes = stored.size() / rows;
  const HeadRows order(rows, static_cast<std::uint64_t>(p.heads));
  auto copy = std::make_shared<std::vector<std::byte>>(stored.size());
  for (std::uint64_t r = 0; r < rows; ++r)
    std::memcpy(copy->data() + r * row_bytes, stored.data() + order.interleaved(r) * row_bytes, row_bytes);
  release(stored);  // only the copy is read
  return io::QuantizedTensor{{*format, false}, *copy, copy};
}

void ModelWeights::read_heads(const Place& from, const io::TensorInfo& tensor, std::span<std::byte> out,
                              std::uint64_t first) const {
  const std::uint64_t width = io::bytes_of(tensor.dtype);
  const auto rows = static_cast<std::uint64_t>(tensor.shape.front());
  const std::uint64_t columns = from.from->count() / rows;
  const HeadRows order(rows, static_cast<std::uint64_t>(from.heads));
  std::uint64_t at = first;
  while (!out.empty()) {
    const std::uint64_t row = at / columns, column = at % columns;
    const std::uint64_t n = std::min(columns - column, out.size() / width);
    read_values(*file_, *from.from, order.interleaved(row) * columns + column, out.first(n * width));
    out = out.subspan(n * width);
    at += n;
  }
}

std::shared_ptr<const std::vector<std::byte>> ModelWeights::transposed(const FileTensor& from,
                                                                       const io::TensorInfo& tensor) const {
  const std::lock_guard lock(mutex_);
  if (last_ == &from) return last_values_;
  std::vector<std::byte> stored(tensor.end);
  read_values(*file_, from, 0, stored);
  auto values = std::make_shared<std::vector<std::byte>>(
      io::transpose(stored, static_cast<std::size_t>(from.shape[0]), static_cast<std::size_t>(from.shape[1]),
                    io::bytes_of(tensor.dtype)));
  last_ = &from;
  last_values_ = values;
  return values;
}

}  // namespace mantissa::gguf
