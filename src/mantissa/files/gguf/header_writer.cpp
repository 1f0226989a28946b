#include "mantissa/files/gguf/header_writer.h"

#include <algorithm>

namespace mantissa::gguf {
namespace {

constexpr std::uint64_t kAlignment = 32;  // the format's default
constexpr std::uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBoolean = 7, kText = 8, kList = 9;

template <class T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_text(std::string& to, std::string_view text) {
  put(to, static_cast<std::uint64_t>(text.size()));
  to += text;
}

void begin_list(std::string& to, std::uint32_t type, std::size_t size) {
  put(to, type);
  put(to, static_cast<std::uint64_t>(size));
}

std::uint64_t aligned(std::uint64_t offset) {
  return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::uint64_t TensorToStore::count() const {
  std::uint64_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::uint64_t>(size);
  return count;
}

void HeaderWriter::begin(std::string_view key, std::uint32_t type) {
  put_text(entries_, key);
  put(entries_, type);
  ++count_;
}

void HeaderWriter::add(std::string_view key, std::uint32_t value) {
  begin(key, kU32);
  put(entries_, value);
}

void HeaderWriter::add(std::string_view key, float value) {
  begin(key, kF32);
  put(entries_, value);
}

void HeaderWriter::add(std::string_view key, std::string_view value) {
  begin(key, kText);
  put_text(entries_, value);
}

void HeaderWriter::add(std::string_view key, const std::vector<std::string>& values) {
  begin(key, kList);
  begin_list(entries_, kText, values.size());
  for (const std::string& value : values) put_text(entries_, value);
}

void HeaderWriter::add(std::string_view key, const std::vector<std::int32_t>& values) {
  begin(key, kList);
  begin_list(entries_, kI32, values.size());
  for (const std::int32_t value : values) put(entries_, value);
}

void HeaderWriter::add(std::string_view key, const std::vector<float>& values) {
  begin(key, kList);
  begin_list(entries_, kF32, values.size());
  for (const float value : values) put(entries_, value);
}

void HeaderWriter::add_flag(std::string_view key, bool value) {
  begin(key, kBoolean);
  put(entries_, static_cast<std::uint8_t>(value ? 1 : 0));
}

std::string HeaderWriter::finish(std::span<TensorToStore> tensors) const {
  std::string header = "GGUF";
  put(header, std::uint32_t{3});
  put(header, static_cast<std::uint64_t>(tensors.size()));
  put(header, count_);
  header += entries_;
  std::uint64_t offset = 0;
  for (TensorToStore& tensor : tensors) {
    put_text(header, tensor.name);
    put(header, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      put(header, static_cast<std::uint64_t>(*size));
    put(header, static_cast<std::uint32_t>(tensor.type));
    put(header, offset);
    tensor.begin = offset;
    offset = aligned(offset + tensor.bytes());
  }
  header.resize(aligned(header.size()), '\0');
  for (TensorToStore& tensor : tensors) tensor.begin += header.size();
  return header;
}

}  // namespace mantissa::gguf
