#include "mantissa/files/io/pth/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/files/io/pth/bytes.h"
#include "mantissa/files/io/pth/zip_format.h"

namespace mantissa::io::pth {
namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                        kLocator64 = 0x07064b50;
constexpr std::size_t kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr std::uint64_t kLargestDirectory = std::uint64_t{128} << 20, kMostEntries = 1 << 20;
constexpr std::uint16_t kEncrypted = 1;

struct Directory {
  std::uint64_t begin = 0, size = 0, entries = 0;
};

class Parser {
 public:
  Parser(std::span<const std::byte> file, const std::string& where) : file_(file), where_(where) {}

  std::vector<ZipEntry> run() {
    directory_ = find_directory();
    if (directory_.entries > kMostEntries || directory_.size > kLargestDirectory ||
        directory_.entries > directory_.size / kCentralBytes) {
      fail(fmt::format("its zip directory of {} bytes declares {} entries", directory_.size,
                       directory_.entries));
    }
    std::uint64_t at = directory_.begin;
    std::vector<ZipEntry> entries;
    for (std::uint64_t i = 0; i < directory_.entries; ++i) entries.push_back(entry(at));
    check_names(entries);
    check_overlaps();
    return entries;
  }

 private:
  struct Range {
    std::uint64_t begin = 0, end = 0;  // from the local header to the end of the contents
    std::string_view name;
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw FileError("{}: {}. Fix: download or write it again", where_, what);
  }

  /// Returns true if the file has `size` bytes from `begin` on.
  bool within(std::uint64_t begin, std::uint64_t size) const {
    return begin <= file_.size() && size <= file_.size() - begin;
  }

  Directory find_directory() const {
    constexpr std::size_t kLongestComment = 0xffff;
    if (file_.size() < kEndBytes) fail(fmt::format("has {} bytes, too few for a zip archive", file_.size()));
    const std::size_t last = file_.size() - kEndBytes;
    const std::size_t first = last > kLongestComment ? last - kLongestComment : 0;
    for (std::size_t at = last + 1; at-- > first;) {
      if (load<std::uint32_t>(file_, at) != kEnd) continue;
      if (load<std::uint16_t>(file_, at + 20) != last - at) continue;  // the comment ends with the file
      return directory_at(at);
    }
    fail("is truncated, or not a zip archive: the end of its directory is missing");
  }

  Directory directory_at(std::size_t end) const {
    const auto disk = load<std::uint16_t>(file_, end + 4), first_disk = load<std::uint16_t>(file_, end + 6);
    Directory found{load<std::uint32_t>(file_, end + 16), load<std::uint32_t>(file_, end + 12),
                    load<std::uint16_t>(file_, end + 10)};
    const bool in_64 = found.begin == kIn64 || found.size == kIn64 || found.entries == 0xffff;
    std::uint64_t limit = end;
    if (in_64) {
      found = directory_64(end, limit);
    } else if (disk != 0 || first_disk != 0) {
      fail("is one part of a zip archive in several files");
    }
    if (found.begin > limit || found.size > limit - found.begin) {
      fail(fmt::format("is truncated: its zip directory would be the {} bytes from {} on, of {}", found.size,
                       found.begin, file_.size()));
    }
    return found;
  }

  Directory directory_64(std::size_t end, std::uint64_t& limit) const {
    if (end < kLocator64Bytes || load<std::uint32_t>(file_, end - kLocator64Bytes) != kLocator64)
      fail("its zip directory has no zip64 locator");
    const auto at = load<std::uint64_t>(file_, end - kLocator64Bytes + 8);
    limit = at;
    if (!within(at, kEnd64Bytes) || load<std::uint32_t>(file_, at) != kEnd64)
      fail("its zip64 locator does not point to a zip64 directory");
    return {load<std::uint64_t>(file_, at + 48), load<std::uint64_t>(file_, at + 40),
            load<std::uint64_t>(file_, at + 32)};
  }

  /// Reads the directory's entry at `at`, and advances it.
  ZipEntry entry(std::uint64_t& at) {
    const std::uint64_t end = directory_.begin + directory_.size;
    if (end - at < kCentralBytes || load<std::uint32_t>(file_, at) != kCentral)
      fail("its zip directory is damaged");
    const auto flags = load<std::uint16_t>(file_, at + 8), method = load<std::uint16_t>(file_, at + 10);
    const auto name_size = load<std::uint16_t>(file_, at + 28),
               extra_size = load<std::uint16_t>(file_, at + 30),
               comment_size = load<std::uint16_t>(file_, at + 32);
    std::uint64_t packed = load<std::uint32_t>(file_, at + 20), size = load<std::uint32_t>(file_, at + 24),
                  local = load<std::uint32_t>(file_, at + 42);
    const std::uint64_t whole = kCentralBytes + std::uint64_t{name_size} + extra_size + comment_size;
    if (end - at < whole) fail("its zip directory is damaged");
    const std::string_view name = text(at + kCentralBytes, name_size);
    zip64_fields(name, file_.subspan(at + kCentralBytes + name_size, extra_size), {&size, &packed, &local});
    if ((flags & kEncrypted) != 0) fail(fmt::format("its entry {} is encrypted", name_in_quotes(name)));
    if (method != 0) {
      throw FileError(
          "{}: its entry {} is compressed, which PyTorch never does. Fix: load and save it again with torch",
          where_, name_in_quotes(name));
    }
    if (packed != size)
      fail(fmt::format("its entry {} has {} bytes, but {} are stored", name_in_quotes(name), size, packed));
    at += whole;
    return {std::string(name), contents(name, local, size), size};
  }

  /// Replaces values that are in the zip64 field of `extra`, which has only those, in this order.
  void zip64_fields(std::string_view name, std::span<const std::byte> extra,
                    std::initializer_list<std::uint64_t*> values) const {
    std::span<const std::byte> field;
    while (extra.size() >= 4) {
      const auto id = load<std::uint16_t>(extra, 0), size = load<std::uint16_t>(extra, 2);
      if (size > extra.size() - 4) break;
      if (id == kZip64Field) field = extra.subspan(4, size);
      extra = extra.subspan(4 + std::size_t{size});
    }
    for (std::uint64_t* value : values) {
      if (*value != kIn64) continue;
      if (field.size() < sizeof(*value))
        fail(fmt::format("its entry {} has no zip64 sizes", name_in_quotes(name)));
      *value = load<std::uint64_t>(field, 0);
      field = field.subspan(sizeof(*value));
    }
  }

  /// Returns where the contents of an entry begin, after its local header.
  std::uint64_t contents(std::string_view name, std::uint64_t local, std::uint64_t size) {
    const auto outside = [&] {
      fail(fmt::format(
          "is truncated: its entry {} of {} bytes, from {} on, does not lie before the zip directory",
          name_in_quotes(name), size, local));
    };
    if (local > directory_.begin || directory_.begin - local < kLocalBytes) outside();
    if (load<std::uint32_t>(file_, local) != kLocal)
      fail(fmt::format("its entry {} has no local header", name_in_quotes(name)));
    const auto name_size = load<std::uint16_t>(file_, local + 26),
               extra_size = load<std::uint16_t>(file_, local + 28);
    const std::uint64_t begin = local + kLocalBytes + name_size + extra_size;
    if (begin > directory_.begin || size > directory_.begin - begin) outside();
    if (text(local + kLocalBytes, name_size) != name)
      fail(fmt::format("its entry {} has another name in its local header", name_in_quotes(name)));
    ranges_.push_back({local, begin + size, name});
    return begin;
  }

  void check_names(const std::vector<ZipEntry>& entries) const {
    std::unordered_set<std::string_view> names;
    for (const ZipEntry& e : entries) {
      if (!names.insert(e.name).second) fail(fmt::format("has two entries named {}", name_in_quotes(e.name)));
    }
  }

  void check_overlaps() {
    std::ranges::sort(ranges_, {}, &Range::begin);
    for (std::size_t i = 1; i < ranges_.size(); ++i) {
      if (ranges_[i].begin < ranges_[i - 1].end)
        fail(fmt::format("its entries {} and {} overlap", name_in_quotes(ranges_[i - 1].name),
                         name_in_quotes(ranges_[i].name)));
    }
  }

  std::string_view text(std::uint64_t begin, std::size_t size) const {
    return {reinterpret_cast<const char*>(file_.data()) + begin, size};
  }

  std::span<const std::byte> file_;
  const std::string& where_;
  Directory directory_;
  std::vector<Range> ranges_;
};

}  // namespace

std::vector<ZipEntry> parse_zip(std::span<const std::byte> file, const std::string& where) {
  return Parser(file, where).run();
}

}  // namespace mantissa::io::pth
