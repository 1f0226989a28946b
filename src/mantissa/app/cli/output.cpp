#include "mantissa/app/cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

constexpr std::string_view kBold = "\x1b[1m", kRed = "\x1b[1;31m", kYellow = "\x1b[1;33m", kPlain = "\x1b[0m";

Color chosen = Color::automatic;  // by --color

bool has_color(int stream) {
  if (chosen != Color::automatic) return chosen == Color::always;
  const char *none = std::getenv("NO_COLOR"), *terminal = std::getenv("TERM");
  const bool wanted = none == nullptr || *none == '\0';
  return wanted && isatty(stream) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace

std::string output_error(int error) {
  return fmt::format(
      "standard output: cannot be written: {}. Fix: send it elsewhere, such as to a file (> FILE)",
      std::generic_category().message(error));
}

void throw_output_error(int error) {
  throw ResourceError(output_error(error));
}

void flush_output() {
  if (std::fflush(stdout) != 0) throw_output_error(errno);
}

void use_color(Color color) {
  chosen = color;
}

bool has_color() {
  return has_color(STDOUT_FILENO);
}

void print_error(std::string_view text) {
  [[maybe_unused]] const std::size_t written = std::fwrite(text.data(), 1, text.size(), stderr);
}

void print_message(Message kind, std::string_view text) {
  constexpr std::string_view kProgram = "mantissa:", kWarning = "mantissa: warning:";
  const std::string_view prefix = kind == Message::warning ? kWarning : kProgram;
  if (kind == Message::note || !text.starts_with(prefix) || !has_color(STDERR_FILENO))
    return print_error(text);
  const std::string_view color = kind == Message::error ? kRed : kYellow;
  print_error(fmt::format("{}{}{}{}", color, prefix, kPlain, text.substr(prefix.size())));
}

std::string bold(std::string_view text) {
  return has_color() ? fmt::format("{}{}{}", kBold, text, kPlain) : std::string(text);
}

std::string as_warning(std::string_view text) {
  return has_color() ? fmt::format("{}{}{}", kYellow, text, kPlain) : std::string(text);
}

void print_with_headings(std::string_view text) {
  if (!has_color()) {
    fmt::print("{}", text);
    return;
  }
  std::string out;
  constexpr std::string_view kUsage = "usage:";
  bool begins = false;  // after an empty line
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.starts_with(kUsage)) {
      out += bold(kUsage) + std::string(line.substr(kUsage.size()));
    } else if (!line.starts_with(' ') &&
               (line.ends_with(':') || (begins && !line.empty() && line.find(' ') == line.npos))) {
      out += bold(line);
    } else {
      out += line;
    }
    begins = line.empty();
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  fmt::print("{}", out);
}

}  // namespace mantissa::cli
