#include "mantissa/text/tokenizer/sentencepiece_model.h"

#include <cstdint>
#include <optional>

#include "mantissa/text/tokenizer/charsmap.h"

namespace mantissa::tokenizer {
namespace {

// Fields of sentencepiece_model.proto.
constexpr std::uint64_t kNormalizerSpec = 3, kDenormalizerSpec = 5;  // of ModelProto
constexpr std::uint64_t kPrecompiledCharsmap = 2;                    // of NormalizerSpec

std::optional<std::uint64_t> take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

/// Calls call(number, content) for each length-delimited field of a message. Returns false if a call does, or
/// if the message is truncated, has groups, which no model has, or has tags of more than 32 bits, of which
/// protobuf ignores the upper ones.
template <class Call>
bool each_field(std::string_view message, const Call& call) {
  while (!message.empty()) {
    const std::optional<std::uint64_t> tag = take_varint(message);
    if (!tag || *tag > 0xFFFFFFFFU) return false;
    std::uint64_t size = 0;
    switch (*tag & 7U) {
      case 0:
        if (!take_varint(message)) return false;
        continue;
      case 1:
        size = 8;
        break;
      case 2: {
        const std::optional<std::uint64_t> length = take_varint(message);
        if (!length) return false;
        size = *length;
        break;
      }
      case 5:
        size = 4;
        break;
      default:
        return false;
    }
    if (size > message.size()) return false;
    if ((*tag & 7U) == 2 && !call(*tag >> 3, message.substr(0, size))) return false;
    message.remove_prefix(size);
  }
  return true;
}

}  // namespace

bool has_whole_charsmaps(std::string_view model) {
  return each_field(model, [](std::uint64_t part, std::string_view spec) {
    if (part != kNormalizerSpec && part != kDenormalizerSpec) return true;
    return each_field(spec, [](std::uint64_t field, std::string_view map) {
      return field != kPrecompiledCharsmap || map.empty() || is_whole_charsmap(map);
    });
  });
}

}  // namespace mantissa::tokenizer
