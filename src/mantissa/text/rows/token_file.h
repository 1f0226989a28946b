// Files of token ids, which are read by position and never as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/text/rows/binidx.h"

namespace mantissa::text {

/// The type of ids without a header. automatic: uint16 if the vocabulary is below 65,536, else uint32.
enum class IdType { automatic, uint16, uint32 };

/// An open file of little-endian ids. It may be
///   raw: ids without a header, of the IdType (nanoGPT's .bin is such a file for its vocabularies), or
///   a shard of llm.c: a header of 256 int32, with the magic number 20240520 and version 1 (uint16) or
///     20240801 and version 7 (uint32), and the number of ids third, or
///   the .bin of a pair of Megatron (binidx.h).
/// The file must not change while it is open. Errors are FileError with the file and the position.
class TokenFile {
 public:
  /// Throws if the file cannot be read, has another size than its header states or no whole number of ids, or
  /// seems to hold something else.
  TokenFile(const std::string& path, std::int64_t vocabulary, IdType type = IdType::automatic);

  /// The ids of a pair, whose index states their type. Throws as above, and for an index that is damaged or
  /// of another .bin.
  TokenFile(const BinidxPair& pair, std::int64_t vocabulary);

  std::int64_t size() const { return count_; }
  const std::string& path() const;
  /// Reads ids [first, first + out.size()). Throws if one is not below the vocabulary, or if the file has
  /// become shorter.
  void read(std::int64_t first, std::span<std::int32_t> out) const;
  /// Returns the id that separates the documents, if the header states it (as those of `data shard` do).
  std::optional<std::int32_t> separator() const { return separator_; }
  /// Returns the places where documents begin, if an index states them; else none. Reads the index.
  std::vector<std::int64_t> document_begins() const;

 private:
  struct Open;
  void read_header(std::span<const std::byte> begin);
  [[noreturn]] void refuse_id(std::uint64_t id, std::uint64_t at) const;
  void read_bytes(std::uint64_t offset, std::span<unsigned char> out) const;

  std::shared_ptr<const Open> file_;
  std::int64_t vocabulary_ = 0, count_ = 0;
  std::uint64_t offset_ = 0;  // of the first id
  std::size_t width_ = 2;     // bytes of an id
  std::optional<BinidxIndex> index_;
  std::optional<std::int32_t> separator_;
};

}  // namespace mantissa::text
