#include "mantissa/app/cli/safe_terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/file.h"

namespace mantissa::cli {
namespace {

constexpr std::string_view kErase = "\r\x1b[K";

/// Returns the length of the colour sequence at the beginning of `text`, or 0.
std::size_t color_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const std::size_t end = text.find_first_not_of("0123456789;", 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

bool is_beginning(std::string_view text, std::string_view whole) {
  return text.size() < whole.size() && whole.starts_with(text);
}

/// Returns the bytes at the end of `text` that may be the beginning of a character or of a sequence.
std::size_t incomplete_at_end(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(text.size(), 3); ++n) {
    const auto byte = static_cast<unsigned char>(text[text.size() - n]);
    if ((byte & 0xc0U) == 0x80U) continue;
    const std::size_t length = byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    if (length > n) return n;
    break;
  }
  std::size_t begin = text.find_last_of("\r\x1b");
  if (begin == std::string_view::npos) return 0;
  if (begin > 0 && text[begin - 1] == '\r') --begin;  // "\r\x1b[K"
  const std::string_view end = text.substr(begin);
  const bool color = end == "\x1b" || (end.starts_with("\x1b[") && end.size() < 12 &&
                                       end.find_first_not_of("0123456789;", 2) == std::string_view::npos);
  return color || is_beginning(end, kErase) ? end.size() : 0;
}

struct Guard {
  std::string pending;  // not complete yet
  bool erases = false;
};

Guard& guard() {
  static Guard only;
  return only;
}

bool write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = disk::uninterrupted([&] { return ::write(STDOUT_FILENO, text.data(), text.size()); });
    if (put < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

ssize_t write_safely(void* /*cookie*/, const char* bytes, std::size_t count) {
  Guard& g = guard();
  g.pending.append(bytes, count);
  std::string_view rest = g.pending;
  const std::string safe = safe_for_terminal(rest, false, g.erases);
  g.pending = std::string(rest);
  return write_all(safe) ? static_cast<ssize_t>(count) : 0;
}

}  // namespace

std::string safe_for_terminal(std::string_view& text, bool at_end, bool erases) {
  const std::size_t left = at_end ? 0 : incomplete_at_end(text);
  std::string_view whole = text.substr(0, text.size() - left);
  text.remove_prefix(whole.size());
  std::string out;
  while (!whole.empty()) {
    std::size_t kept = whole.front() == '\n' || whole.front() == '\t' ? 1 : color_length(whole);
    if (erases && whole.starts_with(kErase)) kept = kErase.size();
    if (kept > 0) {
      out += whole.substr(0, kept);
      whole.remove_prefix(kept);
      continue;
    }
    const std::size_t end = std::min(whole.find_first_of("\n\t\r\x1b", 1), whole.size());
    out += printable(whole.substr(0, end));
    whole.remove_prefix(end);
  }
  return out;
}

void guard_terminal() {
  if (isatty(STDOUT_FILENO) == 0) return;
  std::FILE* safe = ::fopencookie(nullptr, "w", {nullptr, write_safely, nullptr, nullptr});
  if (safe == nullptr) return;
  std::setvbuf(safe, nullptr, _IOLBF, BUFSIZ);
  stdout = safe;
}

void let_lines_be_erased() {
  guard().erases = true;
}

}  // namespace mantissa::cli
