#include "mantissa/files/io/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"

namespace mantissa::io {
namespace {

constexpr std::size_t kLargestRank = 64;
constexpr std::size_t kMostMetadata = 100'000;
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kCure = "download or write the file again";

// Receives the header's parts during parsing (nlohmann's SAX interface), so no JSON tree is held in memory.
// The parser itself keeps one bit per level of nesting.
class HeaderHandler {
 public:
  explicit HeaderHandler(const std::filesystem::path& file) : file_(file) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool null() {
    if (depth_ == 1 && in_metadata_) return leave_metadata();
    return scalar();
  }
  bool boolean(bool) { return scalar(); }
  bool number_integer(std::int64_t value) {
    if (depth_ == 3) fault(fmt::format("has {} in its {}", value, field_));
    return scalar();
  }
  bool number_float(double, const std::string& text) {
    if (depth_ == 3)
      fault(fmt::format("has {} in its {}, which must hold whole numbers", name_in_quotes(text), field_));
    return scalar();
  }
  bool number_unsigned(std::uint64_t value) {
    if (depth_ != 3) return scalar();
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fault(fmt::format("has {} in its {}", value, field_));
    }
    std::vector<std::uint64_t>& list = field_ == "shape" ? shape_ : offsets_;
    if (list.size() == kLargestRank)
      fault(fmt::format("has more than {} numbers in its {}", kLargestRank, field_));
    list.push_back(value);
    return true;
  }
  bool string(std::string& value) {
    if (depth_ == 2 && in_metadata_) {
      if (header_.metadata.size() == kMostMetadata)
        fault(fmt::format("has more than {} entries", kMostMetadata));
      if (!header_.metadata.emplace(field_, value).second)
        fault(fmt::format("has {} twice", name_in_quotes(field_)));
      return true;
    }
    if (depth_ == 2 && field_ == "dtype") {
      const std::optional<Dtype> dtype = parse_dtype(value);
      if (!dtype) {
        fault(fmt::format("has the unknown dtype {}", name_in_quotes(value)),
              "convert it with the library that wrote it to one of F64 F32 BF16 F16 F8_E4M3 F8_E5M2 F8_E8M0 "
              "F8_E4M3FNUZ F8_E5M2FNUZ C64 I64 I32 I16 I8 U64 U32 U16 U8 BOOL");
      }
      tensor_.dtype = *dtype;
      return true;
    }
    return scalar();
  }
  bool binary(std::vector<std::uint8_t>&) { return false; }  // JSON has no binary values
  bool start_object(std::size_t) {
    ++depth_;
    if (depth_ == 1) return true;
    if (depth_ > 2) fault("is nested too deep");
    tensor_ = TensorInfo{};
    tensor_.name = name_;
    fields_.clear();
    shape_.clear();
    offsets_.clear();
    return true;
  }
  bool key(std::string& key) {
    if (depth_ == 1) {
      name_ = key;
      in_metadata_ = key == kMetadata;
      if (!names_.insert(key).second) fault("occurs twice");
    } else {
      field_ = key;
      const bool known = key == "dtype" || key == "shape" || key == "data_offsets";
      if (!in_metadata_ && known && !fields_.insert(key).second) fault(fmt::format("has {} twice", key));
    }
    return true;
  }
  bool end_object() {
    --depth_;
    if (depth_ == 0) return true;
    if (in_metadata_) return leave_metadata();
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) fault(fmt::format("has no {}", field));
    }
    if (offsets_.size() != 2) fault(fmt::format("has {} data_offsets instead of 2", offsets_.size()));
    tensor_.shape.assign(shape_.begin(), shape_.end());
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    header_.tensors.push_back(std::move(tensor_));
    return true;
  }
  bool start_array(std::size_t) {
    if (depth_ != 2 || in_metadata_ || (field_ != "shape" && field_ != "data_offsets")) {
      fault(depth_ == 3 ? "is nested too deep" : "has a list in the wrong place");
    }
    ++depth_;
    return true;
  }
  bool end_array() {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    throw FileError("{}: the header is not JSON from byte {} on; {}", file_.string(), position, kCure);
  }

 private:
  // A value of no known field. It is valid only under a tensor key that the format does not define.
  bool scalar() {
    if (depth_ == 1) fault("is not an object");
    if (depth_ == 3) fault(fmt::format("must have whole numbers in its {}", field_));
    if (in_metadata_) fault(fmt::format("has {}, which is not text", name_in_quotes(field_)));
    if (field_ == "dtype" || field_ == "shape" || field_ == "data_offsets") {
      fault(fmt::format("has a {} of the wrong type", field_));
    }
    return true;
  }
  bool leave_metadata() {
    in_metadata_ = false;
    return true;
  }
  [[noreturn]] void fault(const std::string& what, std::string_view cure = kCure) const {
    throw FileError("{}: {} {} {}; {}", file_.string(), in_metadata_ ? "entry" : "tensor",
                    name_in_quotes(name_), what, cure);
  }

  const std::filesystem::path& file_;
  SafetensorsHeader header_;
  std::unordered_set<std::string> names_, fields_;
  std::string name_, field_;
  TensorInfo tensor_;
  std::vector<std::uint64_t> shape_, offsets_;
  int depth_ = 0;
  bool in_metadata_ = false;
};

void check_ranges(SafetensorsHeader& header, std::uint64_t data_bytes, const std::filesystem::path& file) {
  const auto fault = [&](const TensorInfo& tensor, const std::string& what) {
    throw FileError("{}: tensor {} {}; {}", file.string(), name_in_quotes(tensor.name), what, kCure);
  };
  for (const TensorInfo& tensor : header.tensors) {
    const std::optional<std::uint64_t> bytes = byte_size(tensor.shape, tensor.dtype);
    const std::string_view dtype = safetensors_name(tensor.dtype);
    if (!bytes)
      fault(tensor,
            fmt::format("has the shape {} of {}, which exceeds any file", shape_text(tensor.shape), dtype));
    if (tensor.end < tensor.begin)
      fault(tensor, fmt::format("ends at byte {} before it begins at {}", tensor.end, tensor.begin));
    if (tensor.end > data_bytes) {
      fault(tensor, fmt::format("ends at byte {} of the data, but the file has {} bytes of data", tensor.end,
                                data_bytes));
    }
    if (tensor.end - tensor.begin != *bytes) {
      fault(tensor, fmt::format("has {} bytes, but {} {} needs {}", tensor.end - tensor.begin, dtype,
                                shape_text(tensor.shape), *bytes));
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
                   });
  std::uint64_t covered = 0;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.begin < covered) fault(tensor, "overlaps the tensor before it");
    if (tensor.begin > covered)
      fault(tensor, fmt::format("leaves a gap of {} bytes before it", tensor.begin - covered));
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    throw FileError("{}: has {} bytes after its last tensor; {}", file.string(), data_bytes - covered, kCure);
  }
}

std::string json_text(const std::string& text, const char* what) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw ConfigError("the {} {} is not UTF-8 and cannot be written; rename it", what, name_in_quotes(text));
  }
}

}  // namespace

SafetensorsHeader parse_header(std::string_view json, std::uint64_t data_bytes,
                               const std::filesystem::path& file) {
  if (json.empty() || json.front() != '{') {
    throw FileError(
        "{}: is not a checkpoint: the header of a safetensors file begins with '{{'; give a "
        "safetensors, PyTorch or GGUF file, or download it again",
        file.string());
  }
  // nlohmann's parser stops at a zero byte.
  if (const std::size_t zero = json.find('\0'); zero != std::string_view::npos) {
    throw FileError("{}: the header is not JSON from byte {} on; {}", file.string(), zero, kCure);
  }
  HeaderHandler handler(file);
  nlohmann::json::sax_parse(json.begin(), json.end(), &handler);
  SafetensorsHeader header = handler.take();
  check_ranges(header, data_bytes, file);
  return header;
}

std::string build_header(std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += fmt::format("\"{}\":{{", kMetadata);
    for (const auto& [key, value] : metadata) {
      text += fmt::format("{}{}:{}", text.back() == '{' ? "" : ",", json_text(key, "metadata key"),
                          json_text(value, "metadata value"));
    }
    text += '}';
  }
  std::unordered_set<std::string_view> names = {kMetadata};
  std::uint64_t at = 0;
  for (const TensorToWrite& tensor : tensors) {
    const std::optional<std::uint64_t> bytes = byte_size(tensor.shape, tensor.dtype);
    const bool filled = tensor.bytes.empty() && (tensor.fill || bytes == 0U);
    if (!bytes || (!filled && tensor.bytes.size() != *bytes) || at + *bytes < at) {
      throw ShapeError("tensor {} of {} bytes cannot be written as {} {}", name_in_quotes(tensor.name),
                       tensor.bytes.size(), safetensors_name(tensor.dtype), shape_text(tensor.shape));
    }
    if (!names.insert(tensor.name).second) {
      throw ConfigError("two tensors have the name {}; rename one", name_in_quotes(tensor.name));
    }
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        text.size() == 1 ? "" : ",", json_text(tensor.name, "tensor name"),
                        safetensors_name(tensor.dtype), fmt::join(tensor.shape, ","), at, at + *bytes);
    at += *bytes;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kLargestHeader) {
    throw ConfigError(
        "the header of {} tensors would have {} bytes; at most {} are allowed; write several files",
        tensors.size(), text.size(), kLargestHeader);
  }
  return text;
}

std::optional<std::uint64_t> byte_size(std::span<const std::int64_t> shape, Dtype dtype) {
  std::int64_t bytes = static_cast<std::int64_t>(bytes_of(dtype));
  bool overflow = false;
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    overflow = overflow || __builtin_mul_overflow(bytes, size, &bytes);
  }
  if (empty) return std::uint64_t{0};
  if (overflow) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace mantissa::io
