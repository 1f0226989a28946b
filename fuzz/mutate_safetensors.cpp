// Mutants of safetensors files: the header's length, offsets and the sizes of values follow what changes.
#include <nlohmann/json.hpp>

#include "mantissa/files/io/dtype.h"
#include "mutate.h"

namespace mantissa::fuzz {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kSmall = 4096;  // bytes that the values of a tensor may grow to

struct Tensor {
  std::string name;
  Json fields;
  std::string values;
};

struct File {
  Json metadata;
  std::vector<Tensor> tensors;
};

std::optional<File> parse(std::string_view input) {
  const auto size = take<std::uint64_t>(input);
  if (!size) return std::nullopt;
  const auto header = take_bytes(input, *size);
  if (!header) return std::nullopt;
  const Json json = Json::parse(*header, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  File file;
  for (const auto& [name, fields] : json.items()) {
    if (name == "__metadata__") {
      file.metadata = fields;
      continue;
    }
    Tensor tensor{name, fields, {}};
    if (fields.is_object() && fields.contains("data_offsets")) {
      const Json& offsets = fields["data_offsets"];
      if (offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() &&
          offsets[1].is_number_unsigned()) {
        const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
        if (begin <= end && end <= input.size()) tensor.values = input.substr(begin, end - begin);
      }
    }
    file.tensors.push_back(std::move(tensor));
  }
  return file;
}

/// Returns the number of bytes that a tensor's dtype and shape need, or null if they are damaged or large.
std::optional<std::uint64_t> needed(const Json& fields) {
  if (!fields.is_object() || !fields.contains("dtype") || !fields["dtype"].is_string() ||
      !fields.contains("shape") || !fields["shape"].is_array())
    return std::nullopt;
  const auto dtype = io::parse_dtype(fields["dtype"].get<std::string>());
  if (!dtype) return std::nullopt;
  std::uint64_t bytes = io::bytes_of(*dtype);
  for (const Json& extent : fields["shape"]) {
    if (!extent.is_number_unsigned() || __builtin_mul_overflow(bytes, extent.get<std::uint64_t>(), &bytes))
      return std::nullopt;
  }
  return bytes <= kSmall ? std::optional(bytes) : std::nullopt;
}

std::string write(File& file, Random& random) {
  Json json = Json::object();
  if (!file.metadata.is_null()) json["__metadata__"] = file.metadata;
  std::string values;
  for (Tensor& tensor : file.tensors) {
    if (const auto bytes = needed(tensor.fields); bytes && !random.one_in(64)) tensor.values.resize(*bytes);
    if (tensor.fields.is_object() && !random.one_in(64))
      tensor.fields["data_offsets"] = {values.size(), values.size() + tensor.values.size()};
    values += tensor.values;
    json[tensor.name] = tensor.fields;
  }
  std::string header = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string bytes;
  put<std::uint64_t>(bytes, header.size());
  return bytes + header + values;
}

void change(Tensor& tensor, Random& random) {
  static constexpr const char* kDtypes[] = {"F64",     "F32",     "BF16", "F16",  "F8_E4M3",
                                            "F8_E5M2", "F8_E8M0", "C64",  "I64",  "I32",
                                            "I16",     "I8",      "U8",   "BOOL", "F4"};
  switch (random.below(5)) {
    case 0:
      tensor.name = mutate_bytes(tensor.name);
      return;
    case 1:
      if (tensor.fields.is_object()) tensor.fields["dtype"] = kDtypes[random.below(std::size(kDtypes))];
      return;
    case 2:
      mutate_in_place(tensor.values);
      return;
    case 3:
      if (tensor.fields.is_object() && tensor.fields["shape"].is_array()) {
        std::vector<Json> shape = tensor.fields["shape"];
        if (shape.empty() || random.one_in(4)) shape.emplace_back(1 + random.below(4));
        mutate_list(shape, random, [&](Json& extent) { extent = random.below(9); });
        tensor.fields["shape"] = shape;
      }
      return;
    default:
      if (const auto fields =
              mutate_json(tensor.fields.dump(-1, ' ', false, Json::error_handler_t::replace), random))
        tensor.fields = Json::parse(*fields, nullptr, false);
  }
}

}  // namespace

std::optional<std::string> mutate_safetensors(std::string_view input, Random& random) {
  std::optional<File> file = parse(input);
  if (!file) return std::nullopt;
  if (!file->metadata.is_null() && random.one_in(4)) {
    const auto text =
        mutate_json(file->metadata.dump(-1, ' ', false, Json::error_handler_t::replace), random);
    if (text) file->metadata = Json::parse(*text, nullptr, false);
  } else {
    mutate_list(file->tensors, random, [&](Tensor& tensor) { change(tensor, random); });
  }
  return write(*file, random);
}

}  // namespace mantissa::fuzz
