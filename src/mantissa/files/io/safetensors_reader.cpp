#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/mapping.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/files/io/safetensors_header.h"

namespace mantissa::io {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian and read as they are");

namespace {

// True if the file starts like a safetensors file: a plausible header length, then '{'.
bool begins_with_header(std::string_view begin) {
  std::uint64_t length = 0;
  if (begin.size() <= sizeof(length) || begin[sizeof(length)] != '{') return false;
  std::memcpy(&length, begin.data(), sizeof(length));
  return length <= kLargestHeader;
}

// Identifies common other files with this name. A header length may coincide with another file's first bytes:
// that of 640 is 80 02, like a pickle.
void refuse_known_strangers(const disk::File& file) {
  constexpr std::string_view kLfs = "version https://git-lfs";
  std::array<char, kLfs.size()> begin{};
  const std::size_t length = std::min<std::uint64_t>(file.size(), begin.size());
  file.read_at(0, std::as_writable_bytes(std::span(begin.data(), length)));
  const std::string_view text(begin.data(), length);
  if (text == kLfs) {
    throw FileError("{}: is a git lfs placeholder, not the file itself; run git lfs pull",
                    file.path().string());
  }
  if (begins_with_header(text)) return;
  if (text.starts_with("GGUF")) {
    throw FileError("{}: is a GGUF file, not a safetensors file. Fix: mantissa convert {} DIRECTORY",
                    file.path().string(), file.path().string());
  }
  if (text.starts_with("PK\x03\x04") || text.starts_with("\x80\x02")) {
    throw FileError("{}: is a checkpoint of PyTorch, not a safetensors file. Fix: mantissa convert {} OUT",
                    file.path().string(), file.path().string());
  }
}

[[noreturn]] void refuse_stranger(const std::filesystem::path& file, const std::string& why) {
  throw FileError(
      "{}: is not a checkpoint: {}; give a safetensors, PyTorch or GGUF file, or download it again",
      file.string(), why);
}

std::uint64_t read_header_length(const disk::File& file) {
  const std::uint64_t size = file.size();
  const std::string name = file.path().string();
  refuse_known_strangers(file);
  if (size < 8) refuse_stranger(file.path(), fmt::format("it has {} bytes, too few for a header", size));
  std::uint64_t length = 0;
  file.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kLargestHeader) {
    refuse_stranger(
        file.path(),
        fmt::format("as a safetensors file it declares a header of {} bytes, above the limit of {}", length,
                    kLargestHeader));
  }
  if (length > size - 8) {
    throw FileError(
        "{}: is truncated: the header has {} bytes, the whole file {}; download or write it again", name,
        length, size);
  }
  return length;
}

}  // namespace

std::int64_t TensorInfo::count() const {
  // Computed from the bytes, because the product of a shape with a zero may overflow on the way.
  return static_cast<std::int64_t>(byte_size(shape, dtype).value_or(0) / bytes_of(dtype));
}

struct SafetensorsReader::Impl {
  disk::File file;
  SafetensorsHeader header;
  std::uint64_t data_begin = 0;
  std::unordered_map<std::string_view, const TensorInfo*> by_name;
};

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : impl_(new Impl{disk::File::open_to_read(path), {}, 0, {}}) {
  const std::uint64_t length = read_header_length(impl_->file);
  impl_->data_begin = 8 + length;
  std::string json(length, '\0');
  impl_->file.read_at(8, std::as_writable_bytes(std::span(json)));
  impl_->header = parse_header(json, impl_->file.size() - impl_->data_begin, path);
  for (const TensorInfo& tensor : impl_->header.tensors) impl_->by_name.emplace(tensor.name, &tensor);
}

SafetensorsReader::~SafetensorsReader() = default;
SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;
SafetensorsReader& SafetensorsReader::operator=(SafetensorsReader&&) noexcept = default;

const std::vector<TensorInfo>& SafetensorsReader::tensors() const {
  return impl_->header.tensors;
}
const std::map<std::string, std::string>& SafetensorsReader::metadata() const {
  return impl_->header.metadata;
}
const std::filesystem::path& SafetensorsReader::path() const {
  return impl_->file.path();
}

const TensorInfo* SafetensorsReader::find(std::string_view name) const {
  const auto found = impl_->by_name.find(name);
  return found == impl_->by_name.end() ? nullptr : found->second;
}

void SafetensorsReader::read(const TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const {
  const std::uint64_t bytes = tensor.end - tensor.begin;
  if (offset > bytes || out.size() > bytes - offset) {
    throw ShapeError("{}: tensor {} has {} bytes, but {} from byte {} on were requested", path().string(),
                     name_in_quotes(tensor.name), bytes, out.size(), offset);
  }
  impl_->file.read_at(impl_->data_begin + tensor.begin + offset, out);
}

std::shared_ptr<const disk::Mapping> SafetensorsReader::map() const {
  return std::make_shared<const disk::Mapping>(impl_->file);
}

std::span<const std::byte> SafetensorsReader::view(const TensorInfo& tensor,
                                                   const disk::Mapping& mapping) const {
  const std::uint64_t end = impl_->data_begin + tensor.end;
  if (end > mapping.bytes().size()) {
    throw FileError("{}: was truncated to {} bytes while it was read; copy it again", path().string(),
                    mapping.bytes().size());
  }
  return mapping.bytes().subspan(impl_->data_begin + tensor.begin, tensor.end - tensor.begin);
}

}  // namespace mantissa::io
