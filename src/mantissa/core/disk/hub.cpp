#include "mantissa/core/disk/hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/look.h"

namespace mantissa::disk {

bool is_hub_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !text.empty() && !text.starts_with('.') && std::ranges::all_of(text, fits);
}

std::string hub_cure(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path current = std::filesystem::current_path(ignored);
  const std::filesystem::path near = path.is_absolute() ? path.lexically_proximate(current) : path;
  const std::string name = path.filename().string(), owner = path.parent_path().filename().string();
  if (!is_hub_name(name) || !is_hub_name(owner)) return {};
  const std::filesystem::path folder = path.parent_path().parent_path();
  if (!near.parent_path().parent_path().empty()) {  // not OWNER/NAME here
    const bool in_folder =
        path.is_absolute() && folder.has_relative_path() && guess_kind(folder) == Kind::directory;
    if (!in_folder || guess_kind(path.parent_path()) != Kind::absent) return {};
  }
  return fmt::format(
      ". Fix: if {0}/{1} is a model of the Hugging Face Hub, download it with `hf download {0}/{1} --local-dir {2}`",
      owner, name, shell_words(std::vector{near.string().starts_with("..") ? path.string() : near.string()}));
}

}  // namespace mantissa::disk
