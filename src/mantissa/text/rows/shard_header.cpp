#include "mantissa/text/rows/shard_header.h"

#include <string_view>

#include "mantissa/core/disk/file.h"

namespace mantissa::text {
namespace {

constexpr std::size_t kMostName = ShardHeader::kBytes - 4 * ShardHeader::kName - 1;

}  // namespace

std::array<std::byte, ShardHeader::kBytes> shard_header(bool narrow, std::int64_t count,
                                                        const ShardOrigin& origin) {
  std::array<std::byte, ShardHeader::kBytes> header{};
  const auto set = [&](std::size_t word, std::uint64_t value) {
    for (std::size_t b = 0; b < 4; ++b) header[4 * word + b] = static_cast<std::byte>(value >> (8 * b));
  };
  set(0, static_cast<std::uint64_t>(narrow ? ShardHeader::kNarrowMagic : ShardHeader::kWideMagic));
  set(1, static_cast<std::uint64_t>(narrow ? ShardHeader::kNarrowVersion : ShardHeader::kWideVersion));
  set(ShardHeader::kCount, static_cast<std::uint64_t>(count));
  set(ShardHeader::kSeparator, static_cast<std::uint64_t>(origin.separator) + 1);
  set(ShardHeader::kVocabulary, static_cast<std::uint64_t>(origin.vocabulary));
  set(ShardHeader::kFingerprint, origin.fingerprint);
  set(ShardHeader::kFingerprint + 1, origin.fingerprint >> 32U);
  std::string_view name = origin.tokenizer;
  if (name.size() > kMostName) name.remove_prefix(name.size() - kMostName);
  for (std::size_t i = 0; i < name.size(); ++i)
    header[4 * ShardHeader::kName + i] = static_cast<std::byte>(name[i]);
  return header;
}

std::int32_t header_word(std::span<const std::byte> begin, std::size_t word) {
  std::uint32_t value = 0;
  for (std::size_t b = 0; b < 4; ++b) value |= std::to_integer<std::uint32_t>(begin[4 * word + b]) << (8 * b);
  return static_cast<std::int32_t>(value);
}

std::optional<ShardOrigin> shard_origin(const std::string& path) {
  std::array<std::byte, ShardHeader::kBytes> header{};
  const disk::File file = disk::File::open_to_read(path);
  if (file.size() < header.size()) return std::nullopt;
  file.read_at(0, header);
  const std::int32_t magic = header_word(header, 0), version = header_word(header, 1);
  const bool narrow = magic == ShardHeader::kNarrowMagic && version == ShardHeader::kNarrowVersion,
             wide = magic == ShardHeader::kWideMagic && version == ShardHeader::kWideVersion;
  const std::int32_t separator = header_word(header, ShardHeader::kSeparator),
                     vocabulary = header_word(header, ShardHeader::kVocabulary);
  if ((!narrow && !wide) || separator < 1 || vocabulary < 1) return std::nullopt;
  const auto half = [&](std::size_t word) {
    return std::uint64_t{static_cast<std::uint32_t>(header_word(header, word))};
  };
  ShardOrigin origin{{},
                     half(ShardHeader::kFingerprint) | half(ShardHeader::kFingerprint + 1) << 32U,
                     vocabulary,
                     separator - 1};
  if (origin.fingerprint == 0) return origin;
  for (std::size_t i = 4 * ShardHeader::kName; i < header.size() && header[i] != std::byte{0}; ++i)
    origin.tokenizer += static_cast<char>(header[i]);
  return origin;
}

}  // namespace mantissa::text
