#include "mantissa/files/io/pth/torch_layout.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <concepts>
#include <nlohmann/json.hpp>

#include "mantissa/files/io/pth/pickle_writer.h"
#include "mantissa/files/io/pth/torch_file.h"
#include "mantissa/files/io/pth/zip_format.h"
#include "mantissa/files/io/safetensors_header.h"

namespace mantissa::io::pth {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint16_t kPadding = 0x4246, kVersion64 = 45, kFirstDay = 0x21;  // 1980-01-01

template <std::integral T>
void put(std::string& out, T x) {
  out.append(reinterpret_cast<const char*>(&x), sizeof(x));
}
std::uint32_t in_32(std::uint64_t x) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(x, kIn64));
}
std::uint16_t in_16(std::uint64_t x) {
  return static_cast<std::uint16_t>(std::min<std::uint64_t>(x, 0xffff));
}

/// Returns a field of an entry with the values that need 64 bits, or "".
std::string zip64_field(std::span<const std::uint64_t> values) {
  std::string field;
  if (values.empty()) return field;
  put(field, kZip64Field);
  put(field, static_cast<std::uint16_t>(values.size() * sizeof(std::uint64_t)));
  for (const std::uint64_t x : values) put(field, x);
  return field;
}

/// Returns the extra field of a local header at `local`, which ends at a multiple of kAlignment.
std::string local_extra(std::uint64_t local, std::uint64_t name_size, std::uint64_t size) {
  constexpr std::uint64_t kFieldHeader = 4;
  std::string extra;
  if (size >= kIn64) extra = zip64_field(std::array{size, size});
  const std::uint64_t end = local + kLocalBytes + name_size + extra.size();
  std::uint64_t padding = (kAlignment - end % kAlignment) % kAlignment;
  if (padding == 0) return extra;
  if (padding < kFieldHeader) padding += kAlignment;
  put(extra, kPadding);
  put(extra, static_cast<std::uint16_t>(padding - kFieldHeader));
  extra.append(padding - kFieldHeader, 'Z');
  return extra;
}

/// Appends what a local header and an entry of the directory have in common, from the version to the size.
void put_description(std::string& out, std::uint32_t crc, std::uint64_t size) {
  put(out, kVersion64);
  for (const std::uint16_t x : {std::uint16_t{0}, std::uint16_t{0}, std::uint16_t{0}, kFirstDay}) put(out, x);
  put(out, crc);
  put(out, in_32(size));
  put(out, in_32(size));
}

std::string local_header(const std::string& name, std::uint64_t local, std::uint64_t size,
                         std::uint32_t crc) {
  const std::string extra = local_extra(local, name.size(), size);
  std::string out = "PK\x03\x04";
  put_description(out, crc, size);
  put(out, static_cast<std::uint16_t>(name.size()));
  put(out, static_cast<std::uint16_t>(extra.size()));
  return out + name + extra;
}

std::string directory_entry(const std::string& name, std::uint64_t local, std::uint64_t size,
                            std::uint32_t crc) {
  std::vector<std::uint64_t> wide;
  if (size >= kIn64) wide.assign({size, size});
  if (local >= kIn64) wide.push_back(local);
  const std::string extra = zip64_field(wide);
  std::string out = "PK\x01\x02";
  put(out, kVersion64);
  put_description(out, crc, size);
  put(out, static_cast<std::uint16_t>(name.size()));
  put(out, static_cast<std::uint16_t>(extra.size()));
  out.append(10, '\0');  // no comment, the first disk, no attributes
  put(out, in_32(local));
  return out + name + extra;
}

std::string end_of_directory(std::uint64_t entries, std::uint64_t begin, std::uint64_t size) {
  std::string out;
  if (entries >= 0xffff || begin >= kIn64 || size >= kIn64) {
    const std::uint64_t at = begin + size;
    out = "PK\x06\x06";
    put(out, std::uint64_t{44});  // bytes that follow
    put(out, kVersion64);
    put(out, kVersion64);
    put(out, std::uint64_t{0});  // disks
    for (const std::uint64_t x : {entries, entries, size, begin}) put(out, x);
    out += "PK\x06\x07";
    put(out, std::uint32_t{0});
    put(out, at);
    put(out, std::uint32_t{1});
  }
  out += "PK\x05\x06";
  put(out, std::uint32_t{0});  // disks
  put(out, in_16(entries));
  put(out, in_16(entries));
  put(out, in_32(size));
  put(out, in_32(begin));
  put(out, std::uint16_t{0});  // no comment
  return out;
}

}  // namespace

Crc Crc::of(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
  return {static_cast<std::uint32_t>(crc32_z(0, data, bytes.size())), bytes.size()};
}

void Crc::append(const Crc& next) {
  value = static_cast<std::uint32_t>(crc32_combine(value, next.value, static_cast<z_off_t>(next.bytes)));
  bytes += next.bytes;
}

TorchLayout::TorchLayout(std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata) {
  build_header(tensors, metadata);  // checks names and shapes
  const auto add_text = [&](const char* name, std::string text) {
    const std::uint64_t size = text.size();
    add(name, std::move(text), size);
  };
  add_text("data.pkl", pickle_of(tensors));
  add_text("byteorder", "little");
  add_text(kMetadataEntry, nlohmann::json(metadata).dump());
  first_tensor_ = entries_.size();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    add(fmt::format("data/{}", i), "", byte_size(tensors[i].shape, tensors[i].dtype).value_or(0));
  add_text("version", "3\n");
  directory_ = entries_.back().begin + entries_.back().size;
  bytes_ = directory_;
  for (const Entry& e : entries_) bytes_ += directory_entry(e.name, e.local, e.size, 0).size();
  bytes_ += end_of_directory(entries_.size(), directory_, bytes_ - directory_).size();
}

void TorchLayout::add(const std::string& name, std::string contents, std::uint64_t size) {
  const std::uint64_t local = entries_.empty() ? 0 : entries_.back().begin + entries_.back().size;
  Entry entry{"archive/" + name, std::move(contents), local, 0, size};
  entry.begin = local + local_header(entry.name, local, size, 0).size();
  entry.crc = Crc::of(std::as_bytes(std::span(entry.contents))).value;
  entries_.push_back(std::move(entry));
}

void TorchLayout::write_around(
    std::span<const Crc> crcs,
    const std::function<void(std::uint64_t, std::span<const std::byte>)>& write) const {
  std::string directory;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    const bool is_tensor = i >= first_tensor_ && i < first_tensor_ + crcs.size();
    const std::uint32_t crc = is_tensor ? crcs[i - first_tensor_].value : e.crc;
    const std::string header = local_header(e.name, e.local, e.size, crc) + e.contents;
    write(e.local, std::as_bytes(std::span(header)));
    directory += directory_entry(e.name, e.local, e.size, crc);
  }
  directory += end_of_directory(entries_.size(), directory_, directory.size());
  write(directory_, std::as_bytes(std::span(directory)));
}

}  // namespace mantissa::io::pth
