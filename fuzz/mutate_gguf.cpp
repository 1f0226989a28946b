// Mutants of GGUF files: counts, lengths, and the offsets and sizes of tensors follow what changes.
#include <algorithm>

#include "mantissa/files/gguf/tensor_type.h"
#include "mutate.h"

namespace mantissa::fuzz {
namespace {

constexpr std::uint32_t kString = 8, kArray = 9;
constexpr std::uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // of values, by type
constexpr std::uint64_t kSmall = 8192, kAlignment = 32;

struct Value {
  std::uint32_t type = 0;  // of the value, or of an array's elements
  bool array = false;
  std::vector<std::string> items;  // the bytes of numbers, or texts
};
struct Entry {
  std::string key;
  Value value;
};
struct Tensor {
  std::string name;
  std::vector<std::uint64_t> extents;
  std::uint32_t type = 0;
  std::uint64_t begin = 0;
  std::string values;
};
struct File {
  std::uint32_t version = 3;
  std::vector<Entry> entries;
  std::vector<Tensor> tensors;
};

std::optional<std::string> take_text(std::string_view& in) {
  const auto size = take<std::uint64_t>(in);
  return size ? take_bytes(in, *size) : std::nullopt;
}

bool take_item(std::string_view& in, Value& value) {
  auto item = value.type == kString            ? take_text(in)
              : value.type < std::size(kBytes) ? take_bytes(in, kBytes[value.type])
                                               : std::nullopt;
  if (item) value.items.push_back(std::move(*item));
  return item.has_value();
}

std::optional<Value> take_value(std::string_view& in) {
  Value value;
  const auto type = take<std::uint32_t>(in);
  if (!type) return std::nullopt;
  value.type = *type;
  std::uint64_t count = 1;
  if (*type == kArray) {
    const auto element = take<std::uint32_t>(in);
    const auto size = take<std::uint64_t>(in);
    if (!element || !size || *size > in.size()) return std::nullopt;
    value.array = true;
    value.type = *element;
    count = *size;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!take_item(in, value)) return std::nullopt;
  }
  return value;
}

std::optional<Tensor> take_tensor(std::string_view& in) {
  auto name = take_text(in);
  const auto rank = take<std::uint32_t>(in);
  if (!name || !rank || *rank > 8) return std::nullopt;
  Tensor tensor{std::move(*name), {}, 0, 0, {}};
  for (std::uint32_t i = 0; i < *rank; ++i) tensor.extents.push_back(take<std::uint64_t>(in).value_or(0));
  const auto type = take<std::uint32_t>(in);
  const auto begin = take<std::uint64_t>(in);
  if (!type || !begin) return std::nullopt;
  tensor.type = *type;
  tensor.begin = *begin;
  return tensor;
}

std::uint64_t aligned(std::uint64_t offset) {
  return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

std::optional<std::uint64_t> needed(const Tensor& tensor) {
  const gguf::TypeTraits* type = gguf::find_type(tensor.type);
  if (type == nullptr) return std::nullopt;
  std::uint64_t count = 1;
  for (const std::uint64_t extent : tensor.extents) {
    if (__builtin_mul_overflow(count, extent, &count) || count > kSmall) return std::nullopt;
  }
  return count / type->block * type->bytes;
}

std::optional<File> parse(std::string_view input) {
  std::string_view in = input;
  const auto magic = take_bytes(in, 4);
  const auto version = take<std::uint32_t>(in);
  const auto tensors = take<std::uint64_t>(in), entries = take<std::uint64_t>(in);
  if (magic != "GGUF" || !entries || *entries > in.size() || *tensors > in.size()) return std::nullopt;
  File file{*version, {}, {}};
  for (std::uint64_t i = 0; i < *entries; ++i) {
    auto key = take_text(in);
    auto value = key ? take_value(in) : std::nullopt;
    if (!value) return std::nullopt;
    file.entries.push_back({std::move(*key), std::move(*value)});
  }
  for (std::uint64_t i = 0; i < *tensors; ++i) {
    auto tensor = take_tensor(in);
    if (!tensor) return std::nullopt;
    file.tensors.push_back(std::move(*tensor));
  }
  const std::uint64_t begin = aligned(input.size() - in.size());
  const std::string_view data = begin <= input.size() ? input.substr(begin) : std::string_view();
  for (Tensor& tensor : file.tensors) {
    if (tensor.begin <= data.size()) tensor.values = data.substr(tensor.begin, needed(tensor).value_or(0));
  }
  return file;
}

void put_text(std::string& out, const std::string& text) {
  put<std::uint64_t>(out, text.size());
  out += text;
}

std::string write(File& file, Random& random) {
  std::string out = "GGUF";
  put(out, file.version);
  put<std::uint64_t>(out, file.tensors.size());
  put<std::uint64_t>(out, file.entries.size());
  for (const auto& [key, value] : file.entries) {
    put_text(out, key);
    if (value.array) put(out, kArray);
    put(out, value.type);
    if (value.array) put<std::uint64_t>(out, value.items.size());
    for (const std::string& item : value.items) {
      if (value.type == kString) {
        put_text(out, item);
      } else {
        out += item;
      }
    }
  }
  std::string data;
  for (Tensor& tensor : file.tensors) {
    if (!random.one_in(64)) tensor.begin = data.size();
    if (const auto bytes = needed(tensor); bytes && !random.one_in(64)) tensor.values.resize(*bytes);
    put_text(out, tensor.name);
    put(out, static_cast<std::uint32_t>(tensor.extents.size()));
    for (const std::uint64_t extent : tensor.extents) put(out, extent);
    put(out, tensor.type);
    put(out, tensor.begin);
    data += tensor.values;
    data.resize(aligned(data.size()));
  }
  out.resize(aligned(out.size()));
  return out + data;
}

/// Gives every item the bytes of another type.
void change_type(Value& value, Random& random) {
  value.type = static_cast<std::uint32_t>(random.below(std::size(kBytes)));
  if (value.type == kArray) value.type = kString;
  for (std::string& item : value.items) {
    if (value.type != kString) item.resize(kBytes[value.type]);
  }
}

void change(Value& value, Random& random) {
  const auto change_item = [&](std::string& item) {
    if (value.type == kString) {
      item = mutate_bytes(item);
    } else {
      mutate_in_place(item);
    }
  };
  const std::size_t what = random.below(8);
  if (what == 0) {
    change_type(value, random);
  } else if (what == 1) {
    value.array = !value.array;
    if (!value.array)
      value.items.resize(1, std::string(value.type < std::size(kBytes) ? kBytes[value.type] : 0, '\0'));
  } else if (value.array) {
    mutate_list(value.items, random, change_item);
  } else {
    change_item(value.items.front());
  }
}

void change(Tensor& tensor, Random& random) {
  switch (random.below(4)) {
    case 0:
      tensor.name = mutate_bytes(tensor.name);
      return;
    case 1:
      tensor.type = static_cast<std::uint32_t>(random.below(42));
      return;
    case 2:
      mutate_list(tensor.extents, random, [&](std::uint64_t& extent) {
        extent = random.one_in(2) ? 32 * random.below(9) : random.below(9);
      });
      return;
    default:
      mutate_in_place(tensor.values);
  }
}

}  // namespace

std::optional<std::string> mutate_gguf(std::string_view input, Random& random) {
  std::optional<File> file = parse(input);
  if (!file) return std::nullopt;
  if (random.one_in(3)) {
    mutate_list(file->tensors, random, [&](Tensor& tensor) { change(tensor, random); });
  } else {
    mutate_list(file->entries, random, [&](Entry& entry) {
      if (random.one_in(8)) {
        entry.key = mutate_bytes(entry.key);
      } else {
        change(entry.value, random);
      }
    });
  }
  return write(*file, random);
}

}  // namespace mantissa::fuzz
