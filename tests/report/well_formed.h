// A small checker of pages: every element that opens also closes, in order.
#pragma once

#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::test {

/// Returns the first fault of `html`, which must be well-formed XML after its first line, or "". Checks
/// elements, quotes of attributes, entities, and that an attribute and an id occur once.
inline std::string fault_of(std::string_view html) {
  std::vector<std::string> open;
  std::set<std::string> ids;
  const auto near = [&](const std::string& what, std::size_t at) {
    return what + " near: " + std::string(html.substr(at, 120));
  };
  for (std::size_t at = 0; at < html.size();) {
    if (html[at] == '&') {
      const std::size_t end = html.find(';', at);
      const std::string name(html.substr(at + 1, end == std::string_view::npos ? 0 : end - at - 1));
      if (name != "amp" && name != "lt" && name != "gt" && name != "quot" && name != "#39")
        return near("an unknown entity", at);
    }
    if (html[at] == '>') return near("a stray >", at);
    if (html[at] != '<') {
      ++at;
      continue;
    }
    if (html.substr(at).starts_with("<!DOCTYPE html>")) {
      at += 15;
      continue;
    }
    if (const bool style = html.substr(at).starts_with("<style>");
        style || html.substr(at).starts_with("<script>")) {  // their text is not marked up
      const std::size_t end = html.find(style ? "</style>" : "</script>", at);
      if (end == std::string_view::npos) return near("an open style or script", at);
      at = html.find('>', end) + 1;
      continue;
    }
    std::size_t i = at + 1;
    const bool closing = html[i] == '/';
    if (closing) ++i;
    std::string name;
    while (i < html.size() && std::isalnum(static_cast<unsigned char>(html[i])) != 0) name += html[i++];
    if (name.empty()) return near("a stray <", at);
    std::set<std::string> attributes;
    while (i < html.size() && html[i] == ' ') {
      std::string key;
      for (++i; i < html.size() && html[i] != '='; ++i) key += html[i];
      if (html.substr(i, 2) != "=\"" || !attributes.insert(key).second) return near("a bad attribute", at);
      const std::size_t end = html.find('"', i + 2);
      if (end == std::string_view::npos) return near("an open attribute", at);
      const std::string value(html.substr(i + 2, end - i - 2));
      if (value.find('<') != std::string::npos) return near("a tag in an attribute", at);
      if (key == "id" && !ids.insert(value).second) return near("a second id", at);
      i = end + 1;
    }
    const bool empty = html.substr(i, 2) == "/>";
    if (empty) ++i;
    if (i >= html.size() || html[i] != '>') return near("an open tag", at);
    if (closing) {
      if (open.empty() || open.back() != name) return near("a wrong end", at);
      open.pop_back();
    } else if (!empty) {
      open.push_back(name);
    }
    at = i + 1;
  }
  return open.empty() ? "" : "not closed: " + open.back();
}

/// Returns every value of an attribute: its own text, with entities.
inline std::vector<std::string> attributes_of(std::string_view html, const std::string& name) {
  std::vector<std::string> out;
  const std::string key = " " + name + "=\"";
  for (std::size_t at = html.find(key); at != std::string_view::npos; at = html.find(key, at + 1)) {
    const std::size_t from = at + key.size();
    out.emplace_back(html.substr(from, html.find('"', from) - from));
  }
  return out;
}

/// Returns the numbers of a path in their order.
inline std::vector<double> numbers_of(const std::string& path) {
  std::vector<double> out;
  for (std::size_t i = 0; i < path.size();) {
    if (std::isdigit(static_cast<unsigned char>(path[i])) == 0 && path[i] != '-' && path[i] != '.') {
      ++i;
      continue;
    }
    std::size_t used = 0;
    out.push_back(std::stod(path.substr(i), &used));
    i += used;
  }
  return out;
}

}  // namespace mantissa::test
