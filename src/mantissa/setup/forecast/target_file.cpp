// Targets described in a file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/numeric/format.h"
#include "mantissa/precision/policy/toml.h"
#include "mantissa/setup/config/entries.h"
#include "mantissa/setup/forecast/target.h"

namespace mantissa::forecast {
namespace {

/// A number of a target: its destination and its largest value.
struct Number {
  std::string_view key;
  double Target::*member;
  double most;
  bool required = false;
};
constexpr double kMost = 1e24;
constexpr std::array kNumbers = {
    Number{"memory_bytes", &Target::memory_bytes, kMost, true},
    Number{"bytes_per_second", &Target::bytes_per_second, kMost, true},
    Number{"memory_share", &Target::memory_share, 1},
    Number{"product_share", &Target::product_share, 1},
    Number{"attention_share", &Target::attention_share, 1},
    Number{"stream_share", &Target::stream_share, 1},
    Number{"seconds_per_kernel", &Target::seconds_per_kernel, 1},
};
constexpr std::string_view kRates = "flops_per_second";

class Reader {
 public:
  Reader(const toml::table& table, const std::filesystem::path& file) : table_(table), file_(file.string()) {
    target_.name = file.stem().string();
  }

  Target operator()() {
    for (const auto& [key, node] : table_) read(std::string(key.str()), node);
    for (const Number& n : kNumbers) {
      if (n.required && !table_.contains(n.key)) missing(fmt::format("{} = 80e9", n.key));
    }
    if (target_.rates.empty()) missing("a table [flops_per_second] with dense rates, such as bf16 = 312e12");
    if (target_.description.empty()) target_.description = file_;
    return target_;
  }

 private:
  [[noreturn]] void refuse(const toml::node& node, std::string_view key, std::string_view why) const {
    throw ConfigError("{}:{}: {}: {}", file_, node.source().begin.line, key, why);
  }
  [[noreturn]] void missing(const std::string& what) const {
    throw ConfigError("{}: a target needs {}; see the machine's data sheet", file_, what);
  }

  double number(const toml::node& node, std::string_view key, double most) const {
    const std::optional<double> value = node.is_number() ? node.value<double>() : std::nullopt;
    if (!value || !std::isfinite(*value) || *value <= 0 || *value > most)
      refuse(node, key, fmt::format("must be a number above 0 and at most {:g}", most));
    return *value;
  }

  void read(const std::string& key, const toml::node& node) {
    if (key == "name" || key == "description") {
      const std::optional<std::string> text = node.value<std::string>();
      if (!node.is_string() || text->empty()) refuse(node, key, "must be a non-empty string");
      (key == "name" ? target_.name : target_.description) = *text;
      return;
    }
    if (key == kRates) return read_rates(node);
    const auto* row = std::ranges::find(kNumbers, key, &Number::key);
    if (row != kNumbers.end()) {
      target_.*(row->member) = number(node, key, row->most);
      return;
    }
    std::vector<std::string> keys = {"name", "description", std::string(kRates)};
    for (const Number& n : kNumbers) keys.emplace_back(n.key);
    refuse(node, in_quotes(key),
           fmt::format("unknown key of a target{} (keys: {})", did_you_mean(key, keys), list_of(keys)));
  }

  void read_rates(const toml::node& node) {
    const toml::table* table = node.as_table();
    if (table == nullptr)
      refuse(node, kRates, "must be a table, such as [flops_per_second] with bf16 = 312e12");
    for (const auto& [key, value] : *table) {
      const std::string text(key.str());
      const std::optional<Scalar> scalar = parse_scalar(text);
      const std::string format = scalar ? std::string(mantissa::name(*scalar)) : text;
      const std::vector<std::string>& known = target_formats();
      if (std::ranges::find(known, format) == known.end()) {
        refuse(
            value, in_quotes(text),
            fmt::format("unknown number format{} (formats: {})", did_you_mean(text, known), list_of(known)));
      }
      if (std::ranges::find(target_.rates, format, &FormatRate::format) != target_.rates.end())
        refuse(value, format, "its rate is given twice; keep one");
      target_.rates.push_back({format, number(value, text, kMost)});
    }
  }

  const toml::table& table_;
  std::string file_;
  Target target_;
};

}  // namespace

Target parse_target(std::string_view text, const std::filesystem::path& file) {
  config::check_toml_text(text, file.string());
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& e) {
    const toml::source_position at = e.source().begin;
    throw ConfigError("{}:{}: not valid TOML at column {}: {}", file.string(), at.line, at.column,
                      e.description());
  }
  return Reader(table, file)();
}

}  // namespace mantissa::forecast
