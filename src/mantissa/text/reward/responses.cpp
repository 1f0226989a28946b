#include "mantissa/text/reward/responses.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/text/rows/row_reader.h"

namespace mantissa::reward {
namespace {

constexpr std::size_t kTogether = 256;  // as the samples of a rollout

/// Returns a text of the row. Throws FileError if it has another type, or is absent without a `fallback`.
std::string_view text_of(const nlohmann::ordered_json& row, const char* field, const std::string& where,
                         std::optional<std::string_view> fallback = {}) {
  const auto found = row.find(field);
  if (found == row.end() && fallback) return *fallback;
  if (found == row.end()) throw FileError(fmt::format("{}: no \"{}\"; expected a string", where, field));
  if (found->is_string()) return found->get_ref<const std::string&>();
  throw FileError(
      fmt::format("{}: \"{}\" is of type {}; expected a string", where, field, found->type_name()));
}

}  // namespace

void check_responses(const std::string& path) {
  text::read_rows(path, [&](const nlohmann::ordered_json& row, const text::FilePlace& place) {
    const std::string where = place.in(path);
    text_of(row, "prompt", where, "");
    text_of(row, "response", where);
    return true;
  });
}

std::optional<std::vector<Score>> score_file(Rule& rule, const std::string& path,
                                             const std::stop_token& stop) {
  std::vector<Score> scores;
  std::vector<nlohmann::ordered_json> rows;
  std::vector<std::string> places;
  const auto score = [&] {
    std::vector<Sample> samples;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      samples.push_back(
          {text_of(rows[i], "prompt", places[i], ""), text_of(rows[i], "response", places[i]), &rows[i]});
      rule.check_row(rows[i], places[i]);
    }
    std::vector<Score> some = rule.score(samples, stop);
    const bool whole = some.size() == samples.size();
    std::ranges::move(some, std::back_inserter(scores));
    rows.clear();
    places.clear();
    return whole;
  };
  bool whole = true;
  text::read_rows(path, [&](nlohmann::ordered_json row, const text::FilePlace& place) {
    rows.push_back(std::move(row));
    places.push_back(place.in(path));
    if (rows.size() == kTogether) whole = score();
    return whole;
  });
  if (!whole || !score()) return std::nullopt;
  rule.finish();
  return scores;
}

}  // namespace mantissa::reward
