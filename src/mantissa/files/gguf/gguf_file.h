// GGUF files: metadata and tensors, versions 2 and 3, little-endian.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mantissa/core/disk/mapping.h"
#include "mantissa/files/gguf/tensor_type.h"
#include "mantissa/files/gguf/value.h"

namespace mantissa::gguf {

struct FileTensor {
  std::string name;
  const TypeTraits* type = nullptr;
  std::vector<std::int64_t> shape;     // rows first, as in PyTorch: the reverse of the file's order
  std::uint64_t begin = 0, bytes = 0;  // in the data section

  /// Returns the number of elements.
  std::uint64_t count() const { return bytes / type->bytes * type->block; }
};

/// The contents of a header.
struct Header {
  std::uint32_t version = 0;
  std::uint64_t alignment = 32;
  Metadata metadata;
  std::vector<FileTensor> tensors;  // in the order of the file
  std::uint64_t data_begin = 0;     // offset of the data section in the file
};

/// Parses `file`, the bytes of the whole file. Trusts none of them: counts, lengths, types, dimensions,
/// alignment and offsets are checked against the file's size, names against each other, and tensors must not
/// overlap. Memory use is proportional to the header. Throws FileError with `where` as the file's name.
Header parse_header(std::span<const std::byte> file, const std::string& where);

/// A GGUF file that is mapped into memory.
class GgufFile {
 public:
  /// Throws FileError if the file is not a valid GGUF file.
  explicit GgufFile(const std::filesystem::path& path);
  GgufFile(GgufFile&&) = default;
  GgufFile& operator=(GgufFile&&) = default;
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const Header& header() const { return header_; }
  const std::vector<FileTensor>& tensors() const { return header_.tensors; }
  /// Returns the tensor `name`, or nullptr.
  const FileTensor* find(std::string_view name) const;
  std::span<const std::byte> data(const FileTensor& tensor) const;
  /// Takes the pages of a part of data() out of memory until the next access.
  void release(std::span<const std::byte> part) const { mapping_->release(part); }

  /// Returns the metadata value `key`, or nullptr.
  const Value* value(std::string_view key) const;
  /// Return the value, or null without the key. Throw FileError if the value has another type.
  std::optional<std::string> text(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  const Texts* texts(std::string_view key) const;
  const Integers* integers(std::string_view key) const;
  /// Returns a list of integers or floating-point numbers as doubles.
  std::optional<Numbers> numbers(std::string_view key) const;

  /// Throws FileError: the file, `what`.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  [[noreturn]] void wrong_type(std::string_view key, const char* expected) const;

  std::filesystem::path path_;
  std::shared_ptr<const disk::Mapping> mapping_;
  Header header_;
  std::unordered_map<std::string_view, const FileTensor*> by_name_;
};

}  // namespace mantissa::gguf
