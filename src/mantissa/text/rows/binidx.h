// Megatron's indexed data sets ("binidx"): an index file (.idx) beside a file of ids (.bin), as Megatron-LM,
// GPT-NeoX and RWKV-LM write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/core/disk/file.h"

namespace mantissa::text {

/// The two files of a data set.
struct BinidxPair {
  std::string idx, bin;
};

/// Returns the pair that `path` belongs to, which is either of the files.
BinidxPair binidx_pair(const std::string& path);

/// Returns true if the file at `path` begins like an index. Throws FileError if it cannot be read.
bool is_binidx_index(const std::string& path);

/// An index, which stays in its file:
///   "MMIDIDX\0\0", u64 version 1, u8 code of the ids' type, u64 items, u64 bounds,
///   i32 size of each item in ids, i64 place of each item in .bin in bytes, i64 bounds of documents in items
/// All numbers are little-endian. Items must follow each other without gaps from byte 0 on, so the ids of
/// .bin are one stream.
class BinidxIndex {
 public:
  /// Reads the index and checks all of it. Throws FileError with the place if it is damaged, or does not fit
  /// the .bin of `bin_bytes` bytes, and DtypeError if the ids are not whole numbers.
  BinidxIndex(const std::string& path, std::uint64_t bin_bytes);

  std::size_t width() const { return width_; }   // bytes of an id
  bool has_sign() const { return has_sign_; }    // ids are signed numbers
  std::int64_t items() const { return items_; }  // Megatron's sequences
  std::int64_t tokens() const { return tokens_; }
  /// Returns the places, in ids, where documents begin, in ascending order: the bounds, or the items if there
  /// are no bounds.
  std::vector<std::int64_t> document_begins() const;

 private:
  void check_items(std::uint64_t bin_bytes);
  void check_bounds() const;

  std::string path_;
  std::shared_ptr<const disk::File> file_;
  std::size_t width_ = 2;
  bool has_sign_ = false;
  std::int64_t items_ = 0, bounds_ = 0, tokens_ = 0;
};

}  // namespace mantissa::text
