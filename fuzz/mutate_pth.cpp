// Mutants of checkpoints of PyTorch: a zip archive is written around the changed entries, with their sizes
// and sums.
#include <span>

#include "mantissa/core/base/error.h"
#include "mantissa/files/io/pth/torch_layout.h"
#include "mantissa/files/io/pth/zip.h"
#include "mutate.h"

namespace mantissa::fuzz {
namespace {

struct Entry {
  std::string name, contents;
};

std::optional<std::vector<Entry>> parse(std::string_view input) {
  std::vector<Entry> entries;
  try {
    for (const io::pth::ZipEntry& entry : io::pth::parse_zip(std::as_bytes(std::span(input)), "input"))
      entries.push_back({entry.name, std::string(input.substr(entry.begin, entry.size))});
  } catch (const Error&) {
    return std::nullopt;
  }
  return entries;
}

/// The part that the local header and the directory have in common.
void put_entry(std::string& out, const Entry& entry) {
  put<std::uint16_t>(out, 0);  // version, flags, method, time, date
  put<std::uint16_t>(out, 0);
  put<std::uint16_t>(out, 0);
  put<std::uint32_t>(out, 0);
  put(out, io::pth::Crc::of(std::as_bytes(std::span(entry.contents))).value);
  put(out, static_cast<std::uint32_t>(entry.contents.size()));
  put(out, static_cast<std::uint32_t>(entry.contents.size()));
  put(out, static_cast<std::uint16_t>(entry.name.size()));
  put<std::uint16_t>(out, 0);  // no other fields
}

std::string write(const std::vector<Entry>& entries) {
  std::string out, directory;
  for (const Entry& entry : entries) {
    put(directory, std::uint32_t{0x02014b50});
    put<std::uint16_t>(directory, 0);
    put_entry(directory, entry);
    put<std::uint16_t>(directory, 0);  // comment, disk, attributes
    put<std::uint16_t>(directory, 0);
    put<std::uint16_t>(directory, 0);
    put<std::uint32_t>(directory, 0);
    put(directory, static_cast<std::uint32_t>(out.size()));
    directory += entry.name;
    put(out, std::uint32_t{0x04034b50});
    put_entry(out, entry);
    out += entry.name + entry.contents;
  }
  const std::size_t begin = out.size();
  out += directory;
  put(out, std::uint32_t{0x06054b50});
  put<std::uint32_t>(out, 0);  // numbers of disks
  put(out, static_cast<std::uint16_t>(entries.size()));
  put(out, static_cast<std::uint16_t>(entries.size()));
  put(out, static_cast<std::uint32_t>(directory.size()));
  put(out, static_cast<std::uint32_t>(begin));
  put<std::uint16_t>(out, 0);
  return out;
}

void change(Entry& entry, Random& random) {
  if (random.one_in(12)) {
    entry.name = mutate_bytes(entry.name, 64);
  } else if (entry.name.ends_with(".json")) {
    entry.contents = mutate_json(entry.contents, random).value_or(entry.contents);
  } else {
    entry.contents = mutate_bytes(entry.contents);
  }
}

}  // namespace

std::optional<std::string> mutate_pth(std::string_view input, Random& random) {
  auto entries = parse(input);
  if (!entries) return mutate_pickle(input, random);
  for (Entry& entry : *entries) {
    if (!entry.name.ends_with("data.pkl") || random.one_in(3)) continue;
    if (auto mutant = mutate_pickle(entry.contents, random)) {
      entry.contents = std::move(*mutant);
      return write(*entries);
    }
  }
  mutate_list(*entries, random, [&](Entry& entry) { change(entry, random); });
  return write(*entries);
}

}  // namespace mantissa::fuzz
