// Mutants of token shards: the header's number of ids follows the ids.
#include "mantissa/text/rows/shard_header.h"
#include "mutate.h"

namespace mantissa::fuzz {

std::optional<std::string> mutate_tokens(std::string_view input, Random& random) {
  using text::ShardHeader;
  auto header = take_bytes(input, ShardHeader::kBytes);
  if (!header) return std::nullopt;
  const std::int32_t magic = text::header_word(std::as_bytes(std::span(*header)), 0);
  if (magic != ShardHeader::kNarrowMagic && magic != ShardHeader::kWideMagic) return std::nullopt;
  const std::size_t width = magic == ShardHeader::kNarrowMagic ? 2 : 4;
  std::string ids(input);
  const auto set = [&](std::size_t word, std::uint64_t value) {
    std::string bytes;
    put(bytes, static_cast<std::uint32_t>(value));
    header->replace(4 * word, 4, bytes);
  };
  static constexpr std::size_t kWords[] = {0, 1, 2, 3, 4, 5, 6, 7};
  static constexpr std::uint64_t kValues[] = {0,     1,     2,      256,        257,
                                              65535, 65536, 128256, 0x7fffffff, 0xffffffff};
  switch (random.below(4)) {
    case 0:
      set(kWords[random.below(std::size(kWords))], kValues[random.below(std::size(kValues))]);
      break;
    case 1: {
      std::string name = header->substr(4 * ShardHeader::kName);
      mutate_in_place(name);
      header->replace(4 * ShardHeader::kName, name.size(), name);
      break;
    }
    default:
      ids = mutate_bytes(std::move(ids), ids.size() + 64);
      ids.resize(ids.size() / width * width);
  }
  if (!random.one_in(8)) set(ShardHeader::kCount, ids.size() / width);
  return *header + ids;
}

}  // namespace mantissa::fuzz
