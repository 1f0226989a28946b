// One page without references to other files: it needs no network, and shows everything without scripts.
#pragma once

#include <string>
#include <vector>

#include "mantissa/report/html.h"

namespace mantissa::report {

struct Section {
  std::string id;         // of the link
  std::string link;       // its short text
  std::string heading;    // text
  std::string intro;      // text of one or two sentences, or ""
  std::string body = {};  // HTML
};

struct Page {
  std::string kind;      // text: "audit"
  std::string title;     // text
  std::string subtitle;  // text
  std::string summary;   // HTML above the links to the sections
  std::vector<Section> sections;
};

/// Returns the whole page.
std::string to_html(const Page& page);

/// Returns true if the file is empty, or a page of this program, which a new one may replace.
bool is_page(const std::filesystem::path& path);

enum class Status { good, warning, bad, unknown };

/// Returns the class of a status in the style sheet: "good", "warn", "bad", "unknown".
const char* class_of(Status status);

/// Returns the verdict: a mark, its meaning in words, and a paragraph. Both texts are text. `aside` is HTML
/// beside them, below them on a narrow screen.
std::string verdict_html(Status status, const std::string& words, const std::string& paragraph,
                         const std::string& aside = "");

/// Returns the mark alone, whose shape differs for each status.
std::string status_mark(Status status);

}  // namespace mantissa::report
