#include "mantissa/files/gguf/gguf_file.h"

#include <fmt/format.h>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/file.h"

namespace mantissa::gguf {

GgufFile::GgufFile(const std::filesystem::path& path)
    : path_(path), mapping_(std::make_shared<const disk::Mapping>(disk::File::open_to_read(path))) {
  header_ = parse_header(mapping_->bytes(), path.string());
  for (const FileTensor& tensor : header_.tensors) by_name_.emplace(tensor.name, &tensor);
}

const FileTensor* GgufFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

std::span<const std::byte> GgufFile::data(const FileTensor& tensor) const {
  return mapping_->bytes().subspan(header_.data_begin + tensor.begin, tensor.bytes);
}

const Value* GgufFile::value(std::string_view key) const {
  const auto found = header_.metadata.find(key);
  return found == header_.metadata.end() ? nullptr : &found->second;
}

void GgufFile::fail(const std::string& what) const {
  throw FileError("{}: {}", path_.string(), what);
}

void GgufFile::wrong_type(std::string_view key, const char* expected) const {
  fail(fmt::format("the metadata value of {} must be {}", name_in_quotes(key), expected));
}

std::optional<std::string> GgufFile::text(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (const auto* text = std::get_if<std::string>(v)) return *text;
  wrong_type(key, "a text");
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (const auto* integer = std::get_if<std::int64_t>(v)) return *integer;
  wrong_type(key, "an integer");
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (const auto* narrow = std::get_if<float>(v)) return shortest(*narrow);
  if (const auto* wide = std::get_if<double>(v)) return *wide;
  if (const auto* integer = std::get_if<std::int64_t>(v)) return static_cast<double>(*integer);
  wrong_type(key, "a number");
}

std::optional<bool> GgufFile::flag(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (const auto* flag = std::get_if<bool>(v)) return *flag;
  wrong_type(key, "a boolean");
}

const Texts* GgufFile::texts(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return nullptr;
  if (const auto* texts = std::get_if<Texts>(v)) return texts;
  wrong_type(key, "a list of texts");
}

const Integers* GgufFile::integers(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return nullptr;
  if (const auto* integers = std::get_if<Integers>(v)) return integers;
  wrong_type(key, "a list of integers");
}

std::optional<Numbers> GgufFile::numbers(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (const auto* numbers = std::get_if<Numbers>(v)) return *numbers;
  if (const auto* integers = std::get_if<Integers>(v)) return Numbers(integers->begin(), integers->end());
  wrong_type(key, "a list of numbers");
}

}  // namespace mantissa::gguf
