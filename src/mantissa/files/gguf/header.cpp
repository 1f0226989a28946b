// The parser of a GGUF header.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/files/gguf/gguf_file.h"

namespace mantissa::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are read as they are");

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::size_t kMostDimensions = 4;
constexpr std::uint64_t kLongestName = 65'535;  // of keys, by the format; names of tensors are shorter
constexpr std::uint64_t kLargestAlignment = std::uint64_t{1} << 20;
constexpr const char* kAlignmentKey = "general.alignment";

/// The types of metadata values, as numbered in files.
enum class ValueType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};

/// Returns the least number of bytes that a value takes in a file, or 0 for an unknown type.
std::uint64_t least_bytes(std::uint32_t type) {
  constexpr std::uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

class Parser {
 public:
  Parser(std::span<const std::byte> file, const std::string& where) : file_(file), where_(where) {}

  Header parse() {
    const std::uint64_t tensors = read_begin();
    for (; metadata_count_ > 0; --metadata_count_) read_entry();
    read_alignment();
    // A tensor has a name of 8 bytes or more, a rank, a type and an offset.
    check_count(tensors, 8 + 4 + 4 + 8, "tensors");
    for (std::uint64_t i = 0; i < tensors; ++i) read_tensor();
    header_.data_begin = aligned(at_);
    check_ranges();
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw FileError("{}: {}. Fix: download or write the file again", where_, what);
  }

  template <class T>
  T read(std::string_view what) {
    if (file_.size() - at_ < sizeof(T)) fail(fmt::format("the file ends within {}", what));
    T value{};
    std::memcpy(&value, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  std::string read_text(std::string_view what, std::uint64_t longest) {
    const auto length = read<std::uint64_t>(what);
    if (length > longest)
      fail(fmt::format("{} has {} bytes, more than the limit of {}", what, length, longest));
    if (length > file_.size() - at_) fail(fmt::format("the file ends within {}", what));
    std::string text(reinterpret_cast<const char*>(file_.data() + at_), length);
    at_ += length;
    return text;
  }

  /// Checks a number of items that take at least `bytes` each against the rest of the file.
  void check_count(std::uint64_t count, std::uint64_t bytes, std::string_view what) const {
    if (count > (file_.size() - at_) / bytes)
      fail(fmt::format("the header declares {} {}, but only {} bytes follow", count, what,
                       file_.size() - at_));
  }

  /// Reads magic, version and counts. Returns the number of tensors.
  std::uint64_t read_begin() {
    if (file_.empty()) fail("is empty");
    if (file_.size() < 4 || read<std::uint32_t>("the header") != kMagic)
      fail("expected a GGUF file, which begins with GGUF");
    header_.version = read<std::uint32_t>("the header");
    if (header_.version == 0x02000000 || header_.version == 0x03000000) {
      throw FileError(
          "{}: is a big-endian GGUF file, which is not supported. Fix: convert it with "
          "gguf-py's gguf_convert_endian.py",
          where_);
    }
    if (header_.version != 2 && header_.version != 3) {
      throw FileError(
          "{}: has GGUF version {}; supported: 2 and 3. Fix: write it again with a current llama.cpp", where_,
          header_.version);
    }
    const auto tensors = read<std::uint64_t>("the header");
    metadata_count_ = read<std::uint64_t>("the header");
    check_count(metadata_count_, 8 + 4 + 1, "metadata entries");
    return tensors;
  }

  void read_entry() {
    std::string key = read_text("a metadata key", kLongestName);
    const auto type = read<std::uint32_t>(fmt::format("the type of {}", name_in_quotes(key)));
    const std::string what = fmt::format("the value of {}", name_in_quotes(key));
    Value value = read_value(type, what);
    if (!header_.metadata.emplace(key, std::move(value)).second)
      fail(fmt::format("the metadata key {} occurs twice", name_in_quotes(key)));
  }

  std::int64_t read_integer(std::uint32_t type, std::string_view what) {
    switch (static_cast<ValueType>(type)) {
      case ValueType::u8:
        return read<std::uint8_t>(what);
      case ValueType::i8:
        return read<std::int8_t>(what);
      case ValueType::u16:
        return read<std::uint16_t>(what);
      case ValueType::i16:
        return read<std::int16_t>(what);
      case ValueType::u32:
        return read<std::uint32_t>(what);
      case ValueType::i32:
        return read<std::int32_t>(what);
      case ValueType::i64:
        return read<std::int64_t>(what);
      case ValueType::boolean: {
        const auto flag = read<std::uint8_t>(what);
        if (flag > 1) fail(fmt::format("{} is the boolean {}, expected 0 or 1", what, flag));
        return flag;
      }
      default: {
        const auto value = read<std::uint64_t>(what);
        if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
          fail(fmt::format("{} is {}, which exceeds 63 bits", what, value));
        return static_cast<std::int64_t>(value);
      }
    }
  }

  Value read_value(std::uint32_t type, const std::string& what) {
    if (least_bytes(type) == 0) fail(fmt::format("{} has the unknown type {}", what, type));
    switch (static_cast<ValueType>(type)) {
      case ValueType::f32:
        return read<float>(what);
      case ValueType::f64:
        return read<double>(what);
      case ValueType::string:
        return read_text(what, std::numeric_limits<std::uint64_t>::max());
      case ValueType::boolean:
        return read_integer(type, what) != 0;
      case ValueType::array:
        return read_list(what);
      default:
        return read_integer(type, what);
    }
  }

  Value read_list(const std::string& what) {
    const auto type = read<std::uint32_t>(what);
    const auto count = read<std::uint64_t>(what);
    if (least_bytes(type) == 0) fail(fmt::format("{} is a list of the unknown type {}", what, type));
    if (static_cast<ValueType>(type) == ValueType::array)
      fail(fmt::format("{} is a list of lists, which is not supported", what));
    check_count(count, least_bytes(type), fmt::format("elements of {}", what));
    const auto size = static_cast<std::size_t>(count);
    const auto filled = [&]<class List>(List list, const auto& next) -> Value {
      list.reserve(size);
      for (std::size_t i = 0; i < size; ++i) list.push_back(next());
      return list;
    };
    switch (static_cast<ValueType>(type)) {
      case ValueType::f32:
        return filled(Numbers{}, [&] { return static_cast<double>(read<float>(what)); });
      case ValueType::f64:
        return filled(Numbers{}, [&] { return read<double>(what); });
      case ValueType::string:
        return filled(Texts{}, [&] { return read_text(what, std::numeric_limits<std::uint64_t>::max()); });
      default:
        return filled(Integers{}, [&] { return read_integer(type, what); });
    }
  }

  void read_alignment() {
    const auto found = header_.metadata.find(kAlignmentKey);
    if (found == header_.metadata.end()) return;
    const auto* value = std::get_if<std::int64_t>(&found->second);
    const bool valid = value != nullptr && *value > 0 &&
                       static_cast<std::uint64_t>(*value) <= kLargestAlignment && *value % 8 == 0;
    if (!valid) fail(fmt::format("{} must be a multiple of 8 up to {}", kAlignmentKey, kLargestAlignment));
    header_.alignment = static_cast<std::uint64_t>(*value);
  }

  std::uint64_t aligned(std::uint64_t offset) const {
    return (offset + header_.alignment - 1) / header_.alignment * header_.alignment;
  }

  void read_tensor() {
    FileTensor tensor;
    tensor.name = read_text("the name of a tensor", kLongestName);
    const std::string what = fmt::format("tensor {}", name_in_quotes(tensor.name));
    if (!names_.insert(tensor.name).second) fail(fmt::format("{} occurs twice", what));
    const auto rank = read<std::uint32_t>(what);
    if (rank > kMostDimensions)
      fail(fmt::format("{} has {} dimensions, more than {}", what, rank, kMostDimensions));
    for (std::uint32_t i = 0; i < rank; ++i) {
      const auto size = read<std::uint64_t>(what);
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        fail(fmt::format("{} has a dimension of {}", what, size));
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
    }
    const auto type = read<std::uint32_t>(what);
    tensor.type = find_type(type);
    if (tensor.type == nullptr) fail(fmt::format("{} has the unknown type {}", what, type));
    tensor.begin = read<std::uint64_t>(what);
    tensor.bytes = bytes_of(tensor, what);
    if (tensor.begin % header_.alignment != 0) {
      fail(fmt::format("{} begins at byte {} of the data, which is not a multiple of the alignment {}", what,
                       tensor.begin, header_.alignment));
    }
    header_.tensors.push_back(std::move(tensor));
  }

  std::uint64_t bytes_of(const FileTensor& tensor, const std::string& what) const {
    const auto row = static_cast<std::uint64_t>(tensor.shape.empty() ? 1 : tensor.shape.back());
    if (row % tensor.type->block != 0) {
      fail(fmt::format("{} has rows of {} values, but {} stores blocks of {}", what, row, tensor.type->name,
                       tensor.type->block));
    }
    if (std::ranges::find(tensor.shape, 0) != tensor.shape.end()) return 0;
    std::uint64_t bytes = tensor.type->bytes;
    bool overflow = __builtin_mul_overflow(bytes, row / tensor.type->block, &bytes);
    for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i)
      overflow =
          __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(tensor.shape[i]), &bytes) || overflow;
    if (overflow || bytes > file_.size()) fail(fmt::format("{} is larger than the file", what));
    return bytes;
  }

  void check_ranges() const {
    const std::uint64_t data = file_.size() > header_.data_begin ? file_.size() - header_.data_begin : 0;
    std::vector<const FileTensor*> order;
    for (const FileTensor& tensor : header_.tensors) {
      if (tensor.begin > data || tensor.bytes > data - tensor.begin) {
        fail(fmt::format("tensor {} has bytes [{}, {} + {}), but the file has {} bytes of data",
                         name_in_quotes(tensor.name), tensor.begin, tensor.begin, tensor.bytes, data));
      }
      if (tensor.bytes > 0) order.push_back(&tensor);
    }
    std::ranges::sort(order, {}, &FileTensor::begin);
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (order[i]->begin < order[i - 1]->begin + order[i - 1]->bytes) {
        fail(fmt::format("tensor {} overlaps tensor {}", name_in_quotes(order[i]->name),
                         name_in_quotes(order[i - 1]->name)));
      }
    }
  }

  std::span<const std::byte> file_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::uint64_t metadata_count_ = 0;
  Header header_;
  std::unordered_set<std::string> names_;
};

}  // namespace

Header parse_header(std::span<const std::byte> file, const std::string& where) {
  return Parser(file, where).parse();
}

}  // namespace mantissa::gguf
