// The header of shards of token ids, in the layout of llm.c.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace mantissa::text {

/// The header's 256 little-endian int32. Words that llm.c ignores hold what `data shard` knows of the ids.
struct ShardHeader {
  static constexpr std::size_t kWords = 256, kBytes = 4 * kWords;
  static constexpr std::int32_t kNarrowMagic = 20240520, kNarrowVersion = 1;  // uint16
  static constexpr std::int32_t kWideMagic = 20240801, kWideVersion = 7;      // uint32
  // Words: the number of ids, the separator plus 1, the entries of the vocabulary, the tokenizer's
  // fingerprint (low and high half), and from kName on the tokenizer's name with a zero byte at its end.
  static constexpr std::size_t kCount = 2, kSeparator = 3, kVocabulary = 4, kFingerprint = 5, kName = 8;
};

/// The tokenizer that made the ids of a shard.
struct ShardOrigin {
  std::string tokenizer;          // its name for `data shard`; empty in shards of earlier versions
  std::uint64_t fingerprint = 0;  // text/tokenizer/fingerprint.h; 0 in shards of earlier versions
  std::int64_t vocabulary = 0;    // entries
  std::int32_t separator = 0;
  friend bool operator==(const ShardOrigin&, const ShardOrigin&) = default;
};

/// Returns the header of a shard of `count` ids. A name that is too long loses its beginning.
std::array<std::byte, ShardHeader::kBytes> shard_header(bool narrow, std::int64_t count,
                                                        const ShardOrigin& origin);

/// Returns word `word` of the first bytes of a file.
std::int32_t header_word(std::span<const std::byte> begin, std::size_t word);

/// Returns the tokenizer of the file's ids, or null if it is not a shard, or one that does not state its
/// vocabulary. Throws FileError if the file cannot be read.
std::optional<ShardOrigin> shard_origin(const std::string& path);

}  // namespace mantissa::text
