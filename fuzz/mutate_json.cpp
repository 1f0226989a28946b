// Mutants of JSON values, and of lines of them.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "mutate.h"

namespace mantissa::fuzz {
namespace {

using Json = nlohmann::ordered_json;

/// Returns true for values that nest deeper than readers accept: writing them recurses.
bool is_deep(std::string_view text) {
  constexpr int kDeepest = 200;
  int depth = 0, deepest = 0;
  for (const char c : text) {
    depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    deepest = std::max(deepest, depth);
  }
  return deepest > kDeepest;
}

void collect(Json& value, std::vector<Json*>& all) {
  all.push_back(&value);
  for (Json& item : value) {
    if (value.is_structured()) collect(item, all);
  }
}

Json interesting(Random& random) {
  static const std::vector<Json> kValues = {nullptr,
                                            true,
                                            false,
                                            0,
                                            1,
                                            -1,
                                            2,
                                            255,
                                            65536,
                                            std::numeric_limits<std::int32_t>::max(),
                                            std::numeric_limits<std::int64_t>::max(),
                                            std::numeric_limits<std::int64_t>::min(),
                                            std::numeric_limits<std::uint64_t>::max(),
                                            0.5,
                                            -0.0,
                                            1e-320,
                                            1e30,
                                            1e300,
                                            "",
                                            "0",
                                            "a",
                                            "\n",
                                            "\xEF\xBF\xBD",
                                            Json::array(),
                                            Json::object(),
                                            Json::array({1, 2}),
                                            {{"a", 1}}};
  return kValues[random.below(kValues.size())];
}

/// Changes a value's kind, size or contents a little.
void change_scalar(Json& value, Random& random) {
  if (value.is_string()) {
    value = mutate_bytes(value.get<std::string>());
  } else if (value.is_number_integer()) {
    const auto number = value.get<std::uint64_t>();
    const std::uint64_t others[] = {number + 1, number - 1, number * 2, number / 2, ~number};
    value = static_cast<std::int64_t>(others[random.below(std::size(others))]);
  } else if (value.is_number_float()) {
    const double others[] = {-1.0, 0.5, 1e10, 1e-10};
    value = value.get<double>() * others[random.below(std::size(others))];
  } else {
    value = interesting(random);
  }
}

void change_members(Json& value, Random& random) {
  if (value.empty()) return;
  const auto at = [&] {
    return std::next(value.begin(), static_cast<std::ptrdiff_t>(random.below(value.size())));
  };
  const std::size_t what = random.below(4);
  if (what == 0) {
    value.erase(at());
  } else if (what == 1) {
    std::swap(*at(), *at());
  } else if (value.is_array()) {
    Json copy = *at();
    value.insert(at(), std::move(copy));
  } else {
    const auto member = at();
    const std::string key = member.key();
    Json copy = *member;
    if (what == 2) value.erase(member);
    value[mutate_bytes(key)] = std::move(copy);
  }
}

void change(Json& tree, Random& random) {
  std::vector<Json*> all;
  collect(tree, all);
  Json& value = *all[random.below(all.size())];
  switch (random.below(6)) {
    case 0:
      value = interesting(random);
      return;
    case 1:
      value = Json(*all[random.below(all.size())]);
      return;
    case 2:
      value = random.one_in(2) ? Json::array({value}) : Json{{"a", value}};
      return;
    default:
      if (value.is_structured()) {
        change_members(value, random);
      } else {
        change_scalar(value, random);
      }
  }
}

}  // namespace

std::optional<std::string> mutate_json(std::string_view input, Random& random) {
  if (is_deep(input)) return std::nullopt;
  Json tree = Json::parse(input, nullptr, false);
  if (tree.is_discarded()) return std::nullopt;
  do change(tree, random);
  while (random.one_in(3));
  return tree.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::string> mutate_json_lines(std::string_view input, Random& random) {
  std::vector<std::string> lines;
  while (!input.empty()) {
    const std::size_t end = std::min(input.find('\n'), input.size());
    lines.emplace_back(input.substr(0, end));
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  if (lines.empty()) return std::nullopt;
  mutate_list(lines, random, [&](std::string& line) {
    auto mutant = mutate_json(line, random);
    line = mutant ? std::move(*mutant) : mutate_bytes(line);
  });
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace mantissa::fuzz
