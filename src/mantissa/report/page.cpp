#include "mantissa/report/page.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>

#include "assets/report.h"
#include "mantissa/core/disk/file.h"

namespace mantissa::report {
namespace {

// How every page of this program begins, and no other.
constexpr std::string_view kBeginning =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
    "<meta name=\"generator\" content=\"Mantissa\"/>\n";

}  // namespace

const char* class_of(Status status) {
  switch (status) {
    case Status::good:
      return "good";
    case Status::warning:
      return "warn";
    case Status::bad:
      return "bad";
    case Status::unknown:
      break;
  }
  return "unknown";
}

std::string status_mark(Status status) {
  // A circle with a tick, a triangle, an octagon with a cross, a circle with a dash.
  const char* shape = "";
  switch (status) {
    case Status::good:
      shape = "<circle cx=\"12\" cy=\"12\" r=\"10.5\"/><path class=\"ink\" d=\"M7 12.5l3.5 3.5L17 8.5\"/>";
      break;
    case Status::warning:
      shape = "<path d=\"M12 2.2L23 21.5H1Z\"/><path class=\"ink\" d=\"M12 9v6M12 18.2v.1\"/>";
      break;
    case Status::bad:
      shape =
          "<path d=\"M7.6 1.5h8.8l6.1 6.1v8.8l-6.1 6.1H7.6l-6.1-6.1V7.6Z\"/>"
          "<path class=\"ink\" d=\"M8 8l8 8M16 8l-8 8\"/>";
      break;
    case Status::unknown:
      shape = "<circle cx=\"12\" cy=\"12\" r=\"10.5\"/><path class=\"ink\" d=\"M7.5 12h9\"/>";
      break;
  }
  return fmt::format("<svg class=\"mark {}\" viewBox=\"0 0 24 24\" aria-hidden=\"true\">{}</svg>",
                     class_of(status), shape);
}

std::string verdict_html(Status status, const std::string& words, const std::string& paragraph,
                         const std::string& aside) {
  return fmt::format(
      "<div class=\"verdict {}\">{}<div class=\"told\"><p class=\"words\">{}</p><p>{}</p></div>{}</div>\n",
      class_of(status), status_mark(status), escaped(words), escaped(paragraph),
      aside.empty() ? "" : "<div class=\"aside\">" + aside + "</div>");
}

bool is_page(const std::filesystem::path& path) {
  const disk::File file = disk::File::open_to_read(path);
  std::string beginning(kBeginning.size(), '\0');
  if (file.size() < beginning.size()) return file.size() == 0;
  file.read_at(0, std::as_writable_bytes(std::span(beginning)));
  return beginning == kBeginning;
}

std::string to_html(const Page& page) {
  std::string nav, body;
  for (const Section& s : page.sections) {
    nav += fmt::format("<a href=\"#{0}\">{1}</a>", escaped(s.id), escaped(s.link));
    body += fmt::format("<section id=\"{}\"><h2>{}</h2>\n{}{}</section>\n", escaped(s.id), escaped(s.heading),
                        s.intro.empty() ? "" : "<p class=\"intro\">" + escaped(s.intro) + "</p>\n", s.body);
  }
  return fmt::format(
      "{beginning}"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
      "<title>{title} · {kind}</title>\n<style>{style}</style>\n</head>\n<body>\n"
      "<header><p class=\"kicker\">Mantissa <b>{kind}</b></p>\n<h1>{title}</h1>\n<p "
      "class=\"sub\">{subtitle}</p>"
      "\n{summary}</header>\n<nav aria-label=\"Sections\">{nav}</nav>\n<main>\n{body}</main>\n"
      "<div id=\"tip\" hidden=\"hidden\"></div>\n<script>{script}</script>\n</body>\n</html>\n",
      fmt::arg("beginning", kBeginning), fmt::arg("title", escaped(page.title)),
      fmt::arg("kind", escaped(page.kind)), fmt::arg("style", assets::kPageCss),
      fmt::arg("subtitle", escaped(page.subtitle)), fmt::arg("summary", page.summary), fmt::arg("nav", nav),
      fmt::arg("body", body), fmt::arg("script", assets::kPageJs));
}

}  // namespace mantissa::report
