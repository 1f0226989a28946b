#include "bundle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>

#include "mutate.h"

namespace mantissa::fuzz {
namespace {

constexpr std::size_t kMostFiles = 16, kLongestName = 64;

bool is_name(std::string_view name) {
  constexpr auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kLongestName && name.front() != '.' &&
         std::ranges::all_of(name, allowed);
}

std::optional<std::string_view> take_line(std::string_view& in) {
  const std::size_t end = in.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = in.substr(0, end);
  in.remove_prefix(end + 1);
  return line;
}

}  // namespace

std::optional<std::vector<BundledFile>> parse_bundle(std::string_view input) {
  std::vector<BundledFile> files;
  std::set<std::string_view> names;
  while (!input.empty()) {
    const auto name = take_line(input), size = name ? take_line(input) : std::nullopt;
    if (!size || !is_name(*name) || !names.insert(*name).second || files.size() == kMostFiles)
      return std::nullopt;
    std::uint64_t bytes = 0;
    const auto [end, error] = std::from_chars(size->data(), size->data() + size->size(), bytes);
    if (error != std::errc() || end != size->data() + size->size()) return std::nullopt;
    auto contents = take_bytes(input, bytes);
    if (!contents) return std::nullopt;
    files.push_back({std::string(*name), std::move(*contents)});
  }
  return files;
}

std::string write_bundle(const std::vector<BundledFile>& files) {
  std::string out;
  for (const BundledFile& file : files)
    out += fmt::format("{}\n{}\n{}", file.name, file.bytes.size(), file.bytes);
  return out;
}

Folder::Folder(const std::vector<BundledFile>& files) {
  std::error_code error;
  const char* base = std::filesystem::is_directory("/dev/shm", error) ? "/dev/shm" : "/tmp";
  std::string name = std::string(base) + "/mantissa-fuzz-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
  for (const BundledFile& file : files) write(file.name, file.bytes);
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void Folder::write(const std::string& name, std::string_view bytes) const {
  const int file = ::open((path_ / name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || ::write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  ::close(file);
}

}  // namespace mantissa::fuzz
