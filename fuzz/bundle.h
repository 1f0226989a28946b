// An input that stands for the files of a directory: for each its name, its size and its bytes, the first two
// on lines.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::fuzz {

struct BundledFile {
  std::string name;  // of letters, digits, "_", "-" and "."
  std::string bytes;
};

/// Returns the files, or null if the input is not a bundle or names a file twice.
std::optional<std::vector<BundledFile>> parse_bundle(std::string_view input);
std::string write_bundle(const std::vector<BundledFile>& files);

/// A new directory in memory, which is removed at the end.
class Folder {
 public:
  explicit Folder(const std::vector<BundledFile>& files = {});
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

}  // namespace mantissa::fuzz
