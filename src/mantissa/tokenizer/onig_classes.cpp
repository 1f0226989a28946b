#include "mantissa/tokenizer/onig_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <stdexcept>

#include "mantissa/tokenizer/onig_syntax.h"
#include "mantissa/tokenizer/unicode.h"

namespace mantissa::tokenizer {
namespace {

constexpr std::string_view kSpaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{"
    "3000}";
constexpr std::string_view kHex = "0-9a-fA-F";

// A general category, with the code points that are newer than the tables of PCRE2.
std::string of_category(std::string_view name) {
  std::string items = fmt::format("\\p{{{}}}", name);
  for (const NewerCategory& newer : newer_categories()) {
    if (std::string_view(newer.category).starts_with(name))
      items += newer.first == newer.last
                   ? class_item(newer.first)
                   : fmt::format("{}-{}", class_item(newer.first), class_item(newer.last));
  }
  return items;
}

std::string words() {
  // Oniguruma counts the numbers of Latin-1 as parts of words.
  std::string items = "\\p{Alphabetic}\\xb2\\xb3\\xb9\\xbc-\\xbe";
  for (const char* name : {"L", "M", "Nd", "Nl", "Pc"}) items += of_category(name);
  return items;
}

const std::map<std::string, std::string, std::less<>>& long_names() {
  static const std::map<std::string, std::string, std::less<>> names = {
      {"letter", "L"},
      {"uppercaseletter", "Lu"},
      {"lowercaseletter", "Ll"},
      {"titlecaseletter", "Lt"},
      {"modifierletter", "Lm"},
      {"otherletter", "Lo"},
      {"mark", "M"},
      {"nonspacingmark", "Mn"},
      {"spacingmark", "Mc"},
      {"enclosingmark", "Me"},
      {"number", "N"},
      {"decimalnumber", "Nd"},
      {"letternumber", "Nl"},
      {"othernumber", "No"},
      {"punctuation", "P"},
      {"symbol", "S"},
      {"separator", "Z"},
      {"spaceseparator", "Zs"},
      {"other", "C"},
      {"control", "Cc"},
  };
  return names;
}

std::string plain(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c != ' ' && c != '_' && c != '-')
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

}  // namespace

std::string class_item(char32_t point) {
  return fmt::format("\\x{{{:x}}}", static_cast<unsigned>(point));
}

ClassItems posix_class(std::string_view name) {
  if (name == "space") return {std::string(kSpaces)};
  if (name == "digit") return {of_category("Nd")};
  if (name == "alpha") return {"\\p{Alphabetic}" + of_category("L")};
  if (name == "alnum") return {"\\p{Alphabetic}" + of_category("L") + of_category("Nd")};
  if (name == "upper") return {"\\p{Uppercase}" + of_category("Lu")};
  if (name == "lower") return {"\\p{Lowercase}" + of_category("Ll")};
  if (name == "punct") return {of_category("P") + "$+<=>^`|~"};
  if (name == "word") return {words()};
  if (name == "cntrl") return {"\\p{Cc}"};
  if (name == "blank") return {"\\x{9}" + of_category("Zs")};
  if (name == "xdigit") return {std::string(kHex)};
  if (name == "ascii") return {"\\x{0}-\\x{7f}"};
  if (name == "any") return {"\\x{0}-\\x{10ffff}"};
  throw std::invalid_argument(fmt::format("the class \"{}\" is not supported", name));
}

ClassItems shorthand(char letter) {
  ClassItems items;
  switch (letter | 0x20) {
    case 's':
      items = posix_class("space");
      break;
    case 'd':
      items = posix_class("digit");
      break;
    case 'h':
      items = posix_class("xdigit");
      break;
    default:
      items = posix_class("word");
  }
  items.negated = (letter & 0x20) == 0;
  return items;
}

ClassItems property(std::string_view name) {
  const bool negated = name.starts_with('^');
  const std::string wanted = plain(negated ? name.substr(1) : name);
  ClassItems items;
  const auto named = long_names().find(wanted);
  if (named != long_names().end()) {
    items = {of_category(named->second)};
  } else if (wanted.size() <= 2 && !wanted.empty()) {
    std::string category = wanted;
    category[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(category[0])));
    if (category == "Lc") category = "L&";
    items = {of_category(category)};
  } else {
    try {
      items = posix_class(wanted);
    } catch (const std::invalid_argument&) {
      if (!std::all_of(wanted.begin(), wanted.end(), [](unsigned char c) { return std::isalnum(c); })) throw;
      items = {fmt::format("\\p{{sc:{}}}", wanted)};
    }
  }
  items.negated = negated;
  return items;
}

std::string word_class(bool rust) {
  if (!rust) return fmt::format("[{}]", words());
  std::string items = "\\p{Alphabetic}\\x{200c}\\x{200d}";
  for (const char* name : {"L", "M", "Nd", "Nl", "Pc"}) items += of_category(name);
  return fmt::format("[{}]", items);
}

}  // namespace mantissa::tokenizer
