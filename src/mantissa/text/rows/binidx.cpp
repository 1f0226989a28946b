#include "mantissa/text/rows/binidx.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>

#include "mantissa/core/base/error_text.h"

namespace mantissa::text {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

constexpr std::string_view kMagic = "MMIDIDX\0\0"sv;
constexpr std::uint64_t kVersion = 1, kHeader = 34;

/// Returns `width` little-endian bytes as a number.
std::uint64_t number_at(const unsigned char* bytes, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i) value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

struct IdKind {
  std::size_t width;
  bool has_sign;
};

/// Returns the type that a code of Megatron names.
IdKind kind_of_code(const std::string& path, unsigned code) {
  switch (code) {
    case 1:
      return {1, false};
    case 2:
      return {1, true};
    case 3:
      return {2, true};
    case 4:
      return {4, true};
    case 5:
      return {8, true};
    case 8:
      return {2, false};
    case 6:
    case 7:
      throw DtypeError(
          "\"{}\": expected ids that are whole numbers, got floating-point numbers (dtype code {}). Fix: "
          "write the data again as uint16 (code 8) or int32 (code 4)",
          path, code);
    default:
      throw FileError(
          "\"{}\": expected a dtype code of 1 to 5 or 8 (uint8, int8, int16, int32, int64, uint16), got {}. "
          "Fix: copy or write the index again",
          path, code);
  }
}

/// Numbers of an array in a file, read in order or with steps forward.
class FileNumbers {
 public:
  FileNumbers(const disk::File& file, std::uint64_t begin, std::int64_t count, std::size_t width)
      : file_(file), begin_(begin), count_(count), width_(width) {}

  std::uint64_t at(std::int64_t i) {
    if (i < first_ || i >= end_) load(i);
    return number_at(&bytes_[static_cast<std::size_t>(i - first_) * width_], width_);
  }

 private:
  void load(std::int64_t i) {
    constexpr std::int64_t kBatch = 8192;
    first_ = i;
    end_ = std::min(count_, i + kBatch);
    bytes_.resize(static_cast<std::size_t>(end_ - first_) * width_);
    file_.read_at(begin_ + static_cast<std::uint64_t>(first_) * width_,
                  std::as_writable_bytes(std::span(bytes_)));
  }

  const disk::File& file_;
  std::uint64_t begin_;
  std::int64_t count_, first_ = 0, end_ = 0;
  std::size_t width_;
  std::vector<unsigned char> bytes_;
};

FileNumbers sizes(const disk::File& file, std::int64_t items) {
  return {file, kHeader, items, 4};
}
FileNumbers places(const disk::File& file, std::int64_t items) {
  return {file, kHeader + 4 * static_cast<std::uint64_t>(items), items, 8};
}
FileNumbers bounds(const disk::File& file, std::int64_t items, std::int64_t count) {
  return {file, kHeader + 12 * static_cast<std::uint64_t>(items), count, 8};
}

bool begins_like_index(const disk::File& file) {
  std::array<char, kMagic.size()> begin{};
  if (file.size() < begin.size()) return false;
  file.read_at(0, std::as_writable_bytes(std::span(begin)));
  return std::string_view(begin.data(), begin.size()) == kMagic;
}

}  // namespace

BinidxPair binidx_pair(const std::string& path) {
  return {fs::path(path).replace_extension(".idx").string(),
          fs::path(path).replace_extension(".bin").string()};
}

bool is_binidx_index(const std::string& path) {
  return begins_like_index(disk::File::open_to_read(path));
}

BinidxIndex::BinidxIndex(const std::string& path, std::uint64_t bin_bytes)
    : path_(path), file_(std::make_shared<const disk::File>(disk::File::open_to_read(path))) {
  if (!begins_like_index(*file_)) {
    throw FileError(
        "\"{}\": expected Megatron's index, which begins with \"MMIDIDX\", got another file. Fix: give the "
        "index of the data, or set data.format = \"tokens\" to read the .bin beside it as plain ids",
        path);
  }
  const std::uint64_t bytes = file_->size();
  std::array<unsigned char, kHeader> header{};
  if (bytes >= kHeader) file_->read_at(0, std::as_writable_bytes(std::span(header)));
  const std::uint64_t version = number_at(&header[9], 8), items = number_at(&header[18], 8),
                      bounds = number_at(&header[26], 8);
  if (bytes >= kHeader && version != kVersion)
    throw FileError("\"{}\": expected an index of version 1, got version {}. Fix: write the data again", path,
                    version);
  // Before the products below, the counts must be numbers that a file of this size can hold.
  const bool fits = bytes >= kHeader && items <= bytes / 12 && bounds <= bytes / 8 &&
                    kHeader + 12 * items + 8 * bounds == bytes;
  if (!fits)
    throw FileError(
        "\"{}\": expected {}, got {} bytes. Fix: copy or write the index again", path,
        bytes < kHeader
            ? fmt::format("an index with a header of {} bytes", kHeader)
            : fmt::format("the size that its header states ({} items and {} document bounds)", items, bounds),
        bytes);
  const IdKind kind = kind_of_code(path, header[17]);
  width_ = kind.width;
  has_sign_ = kind.has_sign;
  items_ = static_cast<std::int64_t>(items);
  bounds_ = static_cast<std::int64_t>(bounds);
  check_items(bin_bytes);
  check_bounds();
}

void BinidxIndex::check_items(std::uint64_t bin_bytes) {
  FileNumbers size = sizes(*file_, items_), place = places(*file_, items_);
  std::uint64_t end = 0;
  for (std::int64_t i = 0; i < items_; ++i) {
    const auto ids = static_cast<std::int32_t>(static_cast<std::uint32_t>(size.at(i)));
    if (ids < 0)
      throw FileError("\"{}\": expected a size of at least 0 for item {}, got {}. Fix: write the index again",
                      path_, i, ids);
    if (place.at(i) != end)
      throw FileError(
          "\"{}\": expected item {} at byte {} of the .bin, after the item before it, got byte {}. Fix: "
          "write the data again, with its items one after the other",
          path_, i, end, static_cast<std::int64_t>(place.at(i)));
    end += static_cast<std::uint64_t>(ids) * width_;
  }
  if (end != bin_bytes)
    throw FileError(
        "\"{}\": expected a .bin of {} bytes ({} ids of {} bytes), got {} bytes. Fix: copy both files again",
        path_, end, end / width_, width_, bin_bytes);
  tokens_ = static_cast<std::int64_t>(end / width_);
}

void BinidxIndex::check_bounds() const {
  FileNumbers bound = bounds(*file_, items_, bounds_);
  std::int64_t before = 0;
  for (std::int64_t b = 0; b < bounds_; ++b) {
    const auto item = static_cast<std::int64_t>(bound.at(b));
    if (item < before || item > items_)
      throw FileError(
          "\"{}\": expected document bound {} from {} to {} (items), got {}. Fix: write the index again",
          path_, b, before, items_, item);
    before = item;
  }
}

std::vector<std::int64_t> BinidxIndex::document_begins() const {
  FileNumbers place = places(*file_, items_), bound = bounds(*file_, items_, bounds_);
  std::vector<std::int64_t> begins;
  const std::int64_t count = bounds_ > 0 ? bounds_ : items_;
  for (std::int64_t d = 0; d < count; ++d) {
    const std::int64_t item = bounds_ > 0 ? static_cast<std::int64_t>(bound.at(d)) : d;
    if (item >= items_) break;
    const auto at = static_cast<std::int64_t>(place.at(item) / width_);
    if (at < tokens_ && (begins.empty() || begins.back() != at)) begins.push_back(at);
  }
  return begins;
}

}  // namespace mantissa::text
