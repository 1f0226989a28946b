#include "mantissa/text/tokenizer/onig_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <stdexcept>

#include "mantissa/text/tokenizer/onig_syntax.h"
#include "mantissa/text/tokenizer/unicode.h"

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
  std::string items = "\\p{Alphabetic}";
  for (const char* name : {"L", "M", "Nd", "Nl", "Pc"}) items += of_category(name);
  return items;
}

// Code points with the property Alphabetic that are not letters or numbers and are newer than PCRE2's tables.
constexpr std::string_view kNewerAlphabetic =
    "\\x{363}-\\x{36f}\\x{897}\\x{c04}\\x{cf3}\\x{f82}\\x{f83}\\x{1dd3}-\\x{1de6}\\x{10d69}\\x{10efc}\\x{"
    "11080}\\x{11081}\\x{11241}"
    "\\x{113b8}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}\\x{113cd}\\x{11f00}\\x{11f01}"
    "\\x{11f03}"
    "\\x{11f34}-\\x{11f3a}\\x{11f3e}-\\x{11f40}\\x{1611e}-\\x{1612e}\\x{1e08f}";
constexpr std::string_view kNewerLowercase = "\\x{10fc}\\x{a7f2}-\\x{a7f4}\\x{ab69}\\x{1e030}-\\x{1e06d}";

// Code points of scripts that are newer than PCRE2's tables.
std::string_view newer_of_script(std::string_view name) {
  if (name == "han") return "\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}";
  if (name == "latin") return "\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{1df25}-\\x{1df2a}";
  if (name == "cyrillic") return "\\x{1c89}\\x{1c8a}\\x{1e030}-\\x{1e06d}\\x{1e08f}";
  if (name == "arabic") return "\\x{897}\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}";
  if (name == "hiragana") return "\\x{1b132}";
  return "";
}

// All assigned code points but controls.
std::string visible() {
  std::string items;
  for (const char* name : {"L", "M", "N", "P", "S", "Z"}) items += of_category(name);
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
  const std::string alpha = "\\p{Alphabetic}" + of_category("L") + std::string(kNewerAlphabetic);
  if (name == "alpha") return {alpha};
  if (name == "alnum") return {alpha + of_category("Nd")};
  if (name == "upper") return {"\\p{Uppercase}" + of_category("Lu"), false, true};
  if (name == "lower")
    return {"\\p{Lowercase}" + of_category("Ll") + std::string(kNewerLowercase), false, true};
  if (name == "punct") return {of_category("P") + of_category("S")};
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
  } else if (wanted == "c" || wanted == "other") {
    items = {visible(), true};
  } else if (wanted == "cn" || wanted == "unassigned" || wanted == "assigned") {
    items = {visible() + "\\p{Cc}\\p{Cf}\\p{Co}\\p{Cs}", wanted != "assigned"};
  } else if (wanted.size() <= 2 && !wanted.empty()) {
    std::string category = wanted;
    category[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(category[0])));
    if (category == "Lc") category = "L&";
    items = {of_category(category)};
  } else {
    try {
      items = posix_class(wanted == "alphabetic"   ? "alpha"
                          : wanted == "uppercase"  ? "upper"
                          : wanted == "lowercase"  ? "lower"
                          : wanted == "whitespace" ? "space"
                                                   : std::string_view(wanted));
    } catch (const std::invalid_argument&) {
      if (!std::all_of(wanted.begin(), wanted.end(), [](unsigned char c) { return std::isalnum(c); })) throw;
      items = {fmt::format("\\p{{sc:{}}}{}", wanted, newer_of_script(wanted))};
    }
  }
  items.negated = items.negated != negated;
  for (const char* category : {"Lu", "Ll", "Lt"})
    items.one_case = items.one_case || items.text.starts_with(of_category(category));
  return items;
}

std::string word_class(bool rust) {
  // Outside classes, Oniguruma's \\w has the numbers of Latin-1.
  if (!rust) return fmt::format("[{}\\xb2\\xb3\\xb9\\xbc-\\xbe]", words());
  std::string items = "\\p{Alphabetic}\\x{200c}\\x{200d}";
  for (const char* name : {"L", "M", "Nd", "Nl", "Pc"}) items += of_category(name);
  return fmt::format("[{}]", items);
}

}  // namespace mantissa::tokenizer
