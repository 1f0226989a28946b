#include "mantissa/text/reward/reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::reward {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(std::string_view line, const std::string& fault) {
  throw ConfigError("{}: {}", fault, in_quotes(line));
}

/// Returns a number of the reply. `name` is that of the field.
double number_of(const Json& value, const std::string& name, std::string_view line) {
  if (!value.is_number())
    refuse(line, fmt::format("has {} of type {}, and a number is expected", name, value.type_name()));
  const double number = value.get<double>();
  if (!(std::abs(number) <= double{std::numeric_limits<float>::max()}))
    refuse(line, fmt::format("has {} beyond the range of f32", name));
  return number;
}

Json parse(std::string_view line) {
  if (std::ranges::all_of(line, [](char c) { return c == ' ' || c == '\t' || c == '\r'; }))
    refuse(line, "is blank, and an object with \"reward\" is expected");
  if (const std::size_t zero = line.find('\0'); zero != line.npos)  // the parser would stop there
    refuse(line, fmt::format("is not JSON at byte {}", zero + 1));
  try {
    std::vector<std::set<std::string>> keys;  // of the objects that are open
    const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
      if (depth > kMostNested) refuse(line, fmt::format("is nested more than {} deep", kMostNested));
      if (event == Json::parse_event_t::object_start) keys.emplace_back();
      if (event == Json::parse_event_t::object_end) keys.pop_back();
      if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
        refuse(line, fmt::format("has two values of {}", in_quotes(value.get<std::string>())));
      return true;
    };
    return Json::parse(line, check);
  } catch (const nlohmann::json::parse_error& e) {
    const bool infinite = line.find("NaN") != line.npos || line.find("Infinity") != line.npos;
    refuse(line, infinite ? "has NaN or Infinity, which JSON does not have and no reward may be"
                          : fmt::format("is not JSON at byte {}", e.byte));
  } catch (const nlohmann::json::exception&) {
    refuse(line, "has a number that is out of range");
  }
}

}  // namespace

Score parse_reply(std::string_view line) {
  const Json reply = parse(line);
  if (!reply.is_object())
    refuse(line, fmt::format("is of type {}, and an object with \"reward\" is expected", reply.type_name()));
  const auto reward = reply.find("reward");
  if (reward == reply.end()) refuse(line, "has no \"reward\"");
  Score score{number_of(*reward, "\"reward\"", line)};
  const auto parts = reply.find("parts");
  if (parts == reply.end() || parts->is_null()) return score;
  if (!parts->is_object())
    refuse(line,
           fmt::format("has \"parts\" of type {}, and an object of numbers is expected", parts->type_name()));
  for (const auto& [name, value] : parts->items())
    score.parts.emplace_back(name, number_of(value, fmt::format("the part {}", in_quotes(name)), line));
  return score;
}

}  // namespace mantissa::reward
