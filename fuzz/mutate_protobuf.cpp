// Mutants of protocol buffers, which SentencePiece models are: fields are removed, repeated, exchanged or
// changed, and lengths follow.
#include "mutate.h"

namespace mantissa::fuzz {
namespace {

struct Field {
  std::uint64_t tag = 0;  // the number, and in the low 3 bits the kind
  std::uint64_t number = 0;
  std::string bytes;
};
enum Kind : std::uint64_t { kVarint = 0, kEight = 1, kBytes = 2, kFour = 5 };

std::optional<std::uint64_t> take_varint(std::string_view& in) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<std::uint8_t>(in.front());
    in.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(static_cast<std::uint8_t>(value | 0x80));
  out += static_cast<char>(value);
}

std::optional<std::vector<Field>> parse(std::string_view in) {
  std::vector<Field> fields;
  while (!in.empty()) {
    const auto tag = take_varint(in);
    if (!tag || *tag < 8) return std::nullopt;
    Field field{*tag, 0, {}};
    const std::uint64_t kind = *tag & 7U;
    std::uint64_t size = kind == kEight ? 8 : kind == kFour ? 4 : 0;
    if (kind == kVarint || kind == kBytes) {
      const auto number = take_varint(in);
      if (!number) return std::nullopt;
      (kind == kVarint ? field.number : size) = *number;
    } else if (size == 0) {
      return std::nullopt;
    }
    auto bytes = take_bytes(in, size);
    if (!bytes) return std::nullopt;
    field.bytes = std::move(*bytes);
    fields.push_back(std::move(field));
  }
  return fields;
}

std::string write(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& field : fields) {
    put_varint(out, field.tag);
    const std::uint64_t kind = field.tag & 7U;
    if (kind == kVarint) put_varint(out, field.number);
    if (kind == kBytes) put_varint(out, field.bytes.size());
    out += field.bytes;
  }
  return out;
}

void change(Field& field, Random& random) {
  static constexpr std::uint64_t kNumbers[] = {0, 1,   2,   3,     4,         5,
                                               6, 127, 128, 65535, 1U << 31U, ~std::uint64_t{0}};
  const std::uint64_t kind = field.tag & 7U;
  if (random.one_in(16)) {
    field.tag = (1 + random.below(50)) * 8 + kind;
  } else if (kind == kVarint) {
    field.number = kNumbers[random.below(std::size(kNumbers))];
  } else if (kind != kBytes) {
    mutate_in_place(field.bytes);
  } else if (auto inner = random.one_in(4) ? std::nullopt : mutate_protobuf(field.bytes, random)) {
    field.bytes = std::move(*inner);
  } else {
    field.bytes = mutate_bytes(field.bytes);
  }
}

}  // namespace

std::optional<std::string> mutate_protobuf(std::string_view input, Random& random) {
  auto fields = parse(input);
  if (!fields || fields->empty()) return std::nullopt;
  mutate_list(*fields, random, [&](Field& field) { change(field, random); });
  return write(*fields);
}

}  // namespace mantissa::fuzz
