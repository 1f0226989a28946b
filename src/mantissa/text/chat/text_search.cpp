#include "mantissa/text/chat/text_search.h"

#include <algorithm>
#include <cstring>

#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {

std::size_t find_text(std::string_view text, std::string_view pattern, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (pattern.empty()) return from;
  if (pattern.size() == 1) return text.find(pattern.front(), from);  // reads only as far as it must
  const void* found =
      memmem(text.data() + from, text.size() - from, pattern.data(), pattern.size());  // takes linear time
  return found ? static_cast<std::size_t>(static_cast<const char*>(found) - text.data())
               : std::string_view::npos;
}

std::size_t find_last(std::string_view text, std::string_view pattern) {
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_pattern(pattern.rbegin(), pattern.rend());
  const std::size_t found = find_text(reversed_text, reversed_pattern);
  return found == std::string_view::npos ? found : text.size() - found - pattern.size();
}

std::size_t count_text(std::string_view text, std::string_view pattern) {
  std::size_t n = 0;
  for (std::size_t at = find_text(text, pattern); at != std::string_view::npos;
       at = find_text(text, pattern, at + pattern.size()))
    ++n;
  return n;
}

std::size_t replaced_size(std::string_view text, std::string_view pattern, std::string_view by,
                          std::int64_t most) {
  const std::size_t all = pattern.empty() ? unicode::length(text) + 1 : count_text(text, pattern);
  const std::size_t n = most < 0 ? all : std::min(all, static_cast<std::size_t>(most));
  return text.size() + n * by.size();
}

std::string replace_text(std::string_view text, std::string_view pattern, std::string_view by,
                         std::int64_t most) {
  std::string out;
  std::size_t at = 0;
  if (pattern.empty()) {
    for (; most != 0; --most) {
      out += by;
      if (at >= text.size()) return out;
      const std::size_t n = unicode::size_at(text, at);
      out += text.substr(at, n);
      at += n;
    }
    return out += text.substr(at);
  }
  for (; most != 0; --most) {
    const std::size_t found = find_text(text, pattern, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += by;
    at = found + pattern.size();
  }
  return out += text.substr(at);
}

std::vector<std::string> split_text(std::string_view text, std::string_view separator, std::int64_t most,
                                    bool from_right) {
  std::vector<std::string> parts;
  if (!from_right) {
    std::size_t at = 0;
    for (; most != 0; --most) {
      const std::size_t found = find_text(text, separator, at);
      if (found == std::string_view::npos) break;
      parts.emplace_back(text.substr(at, found - at));
      at = found + separator.size();
    }
    parts.emplace_back(text.substr(at));
    return parts;
  }
  // The mirror image is split from the left.
  const std::string mirrored(text.rbegin(), text.rend());
  parts = split_text(mirrored, std::string(separator.rbegin(), separator.rend()), most, false);
  for (std::string& part : parts) std::reverse(part.begin(), part.end());
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_words(std::string_view text, std::int64_t most, bool from_right) {
  std::vector<std::pair<std::size_t, std::size_t>> words;  // begin and end
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = unicode::size_at(text, at);
    if (unicode::is_space(unicode::code_point_at(text, at))) {
      inside = false;
    } else if (inside) {
      words.back().second = at + n;
    } else {
      words.emplace_back(at, at + n);
      inside = true;
    }
    at += n;
  }
  std::vector<std::string> parts;
  const std::size_t limit = most < 0 ? words.size() : static_cast<std::size_t>(most);
  if (words.size() <= limit || words.empty()) {
    for (const auto& [begin, end] : words) parts.emplace_back(text.substr(begin, end - begin));
  } else if (!from_right) {
    for (std::size_t i = 0; i < limit; ++i)
      parts.emplace_back(text.substr(words[i].first, words[i].second - words[i].first));
    parts.emplace_back(text.substr(words[limit].first));
  } else {
    const std::size_t rest = words.size() - limit;
    parts.emplace_back(text.substr(0, words[rest - 1].second));
    for (std::size_t i = rest; i < words.size(); ++i)
      parts.emplace_back(text.substr(words[i].first, words[i].second - words[i].first));
  }
  return parts;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = unicode::size_at(text, at);
    if (!unicode::is_line_end(unicode::code_point_at(text, at))) {
      at += n;
      continue;
    }
    const std::size_t end = at + (text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n' ? 2 : n);
    lines.emplace_back(text.substr(start, (keep_ends ? end : at) - start));
    start = at = end;
  }
  if (start < text.size()) lines.emplace_back(text.substr(start));
  return lines;
}

std::string_view strip_text(std::string_view text, const std::string* characters, bool left, bool right) {
  const std::vector<char32_t> set = characters ? unicode::code_points(*characters) : std::vector<char32_t>();
  const auto stripped = [&](std::size_t at) {
    const char32_t c = unicode::code_point_at(text, at);
    return characters ? std::find(set.begin(), set.end(), c) != set.end() : unicode::is_space(c);
  };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end && stripped(begin)) begin += unicode::size_at(text, begin);
  while (right && end > begin) {
    std::size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!stripped(last)) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

}  // namespace mantissa::chat
