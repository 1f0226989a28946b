#include "mantissa/files/rwkv/renamed_source.h"

#include <algorithm>
#include <cstring>

#include "mantissa/files/io/transpose.h"

namespace mantissa::rwkv {

RenamedSource::RenamedSource(io::WeightFiles files, std::filesystem::path path, std::vector<Entry> entries,
                             std::map<std::string, std::string> metadata)
    : files_(std::move(files)),
      path_(std::move(path)),
      entries_(std::move(entries)),
      metadata_(std::move(metadata)) {
  for (const Entry& e : entries_) {
    tensors_.push_back(e.tensor);
    by_name_.emplace(e.tensor.name, &e);
  }
}

const std::filesystem::path& RenamedSource::path_of(const io::TensorInfo& tensor) const {
  const Entry& e = entry(tensor);
  return e.from.empty() ? path_ : files_.path_of(e.from);
}

void RenamedSource::read(const io::TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const {
  const Entry& e = entry(tensor);
  if (e.from.empty()) {
    std::ranges::fill(out, std::byte{0});
  } else if (e.transposed) {
    const std::shared_ptr<const std::vector<std::byte>> values = transposed(e);
    std::memcpy(out.data(), values->data() + offset, out.size());
  } else {
    files_.read(e.from, out, offset);
  }
}

std::span<const std::byte> RenamedSource::in_memory(const io::TensorInfo& tensor) const {
  const Entry& e = entry(tensor);
  if (e.from.empty() || e.transposed || files_.source() == nullptr) return {};
  return files_.source()->in_memory(*files_.find(e.from));
}

void RenamedSource::release(std::span<const std::byte> part) const {
  if (files_.source() != nullptr) files_.source()->release(part);
}

std::shared_ptr<const std::vector<std::byte>> RenamedSource::transposed(const Entry& e) const {
  const std::lock_guard lock(mutex_);
  if (last_ == &e) return last_values_;
  std::vector<std::byte> stored(e.tensor.end - e.tensor.begin);
  files_.read(e.from, stored);
  const auto rows = static_cast<std::size_t>(e.tensor.shape[1]),
             columns = static_cast<std::size_t>(e.tensor.shape[0]);
  last_values_ = std::make_shared<const std::vector<std::byte>>(
      io::transpose(stored, rows, columns, io::bytes_of(e.tensor.dtype)));
  last_ = &e;
  return last_values_;
}

}  // namespace mantissa::rwkv
