#include "mantissa/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace mantissa::report {
namespace {

/// Returns the bytes of the UTF-8 character at `at`, or 0 if there is none that HTML allows.
std::size_t character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  const std::size_t length = first >= 0xF0 && first < 0xF5 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  if (length == 0 || (first >= 0xF5)) return 0;
  std::uint32_t code = first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
    code = code << 6U | (byte(i) & 0x3FU);
  }
  const bool shortest = length == 2 || code >= (length == 3 ? 0x800U : 0x10000U);
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  const bool control = code < 0xA0 || (code & 0xFFFEU) == 0xFFFE;
  // Marks of direction in a name would turn the text around it.
  const bool direction = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return shortest && !surrogate && !control && !direction && code <= 0x10FFFF ? length : 0;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\n' || c == '\t') {
      out += c;
      ++at;
      continue;
    }
    const std::size_t length = character_at(text, at);
    if (length == 0) {
      out += "\uFFFD";
      ++at;
      continue;
    }
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += text.substr(at, length);
    }
    at += length;
  }
  return out;
}

std::string module_html(std::string_view name) {
  std::string out;
  std::size_t from = 0;
  for (std::size_t i = 0; i < name.size(); ++i)
    if (name[i] == '.' || name[i] == '_') {
      out += escaped(name.substr(from, i + 1 - from)) + "<wbr/>";
      from = i + 1;
    }
  return fmt::format("<span class=\"mod\">{}{}</span>", out, escaped(name.substr(from)));
}

std::string disclosure(std::string_view summary, std::string_view body, bool open) {
  return fmt::format("<details{}><summary>{}</summary>\n<div class=\"inside\">{}</div></details>\n",
                     open ? " open=\"open\"" : "", summary, body);
}

std::string command_box(std::string_view command) {
  return fmt::format(
      "<div class=\"cmd\"><pre tabindex=\"0\"><code>{}</code></pre>"
      "<button type=\"button\" hidden=\"hidden\">Copy</button></div>\n",
      escaped(command));
}

std::string to_html(const Figure& figure) {
  return fmt::format("<figure><figcaption><h3>{}</h3><p>{}</p></figcaption>\n{}{}</figure>\n",
                     escaped(figure.title), escaped(figure.reading), figure.body, figure.legend);
}

std::string legend_html(const std::vector<LegendEntry>& entries) {
  std::string out = "<ul class=\"legend\">";
  for (const LegendEntry& e : entries)
    out += fmt::format("<li><i class=\"{}\"></i>{}</li>", escaped(e.css_class), escaped(e.text));
  return out + "</ul>\n";
}

std::string facts_html(const std::vector<Fact>& facts) {
  std::string out = "<dl class=\"facts\">";
  for (const Fact& f : facts)
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escaped(f.name), f.html);
  return out + "</dl>\n";
}

std::string to_html(const Table& table) {
  std::string out =
      fmt::format("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table><thead><tr>",
                  escaped(table.label));
  for (const Column& c : table.columns)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", c.number ? " class=\"n\"" : "", escaped(c.name));
  out += "</tr></thead><tbody>\n";
  for (const std::vector<Cell>& row : table.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const char* number = i < table.columns.size() && table.columns[i].number ? " class=\"n\"" : "";
      const std::string bar = row[i].bar >= 0 ? fmt::format("<i class=\"bar\" style=\"width:{:.3g}%\"></i>",
                                                            100 * std::min(row[i].bar, 1.0))
                                              : "";
      out += fmt::format("<td{}>{}{}</td>", number, row[i].html, bar);
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace mantissa::report
