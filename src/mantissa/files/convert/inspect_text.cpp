#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/quantities.h"
#include "mantissa/core/base/words.h"
#include "mantissa/files/convert/inspect.h"
#include "mantissa/files/convert/shared_storages.h"

namespace mantissa::convert {
namespace {

double share(std::uint64_t part, std::uint64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

nlohmann::json json_of(const Survey& seen) {
  nlohmann::json json = nlohmann::json::object();
  seen.for_losses([&](std::string_view format, const ErrorStats& e) {
    json[std::string(format)] = {
        {"max_error", e.max_abs},         {"rms_error", e.rms()},
        {"relative_error", e.relative()}, {"max_relative_error", e.max_relative},
        {"overflows", e.overflows},       {"overflow_share", share(e.overflows, e.count)},
        {"vanished", e.vanished},         {"vanished_share", share(e.vanished, e.count)}};
  });
  return json;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Returns for example "0.31 %", or "" without a loss.
std::string share_text(std::uint64_t part, std::uint64_t all) {
  return part == 0 ? "" : fmt::format("{:.2g} %", 100 * share(part, all));
}

/// A table of the shares of lost values: a line per tensor with a loss, a column per format with a loss.
class LossTable {
 public:
  /// `what` is the header of the names; `part` selects the kind of loss.
  LossTable(std::string what, std::uint64_t ErrorStats::*part) : what_(std::move(what)), part_(part) {}

  void add(const std::string& tensor, const Survey& seen) {
    std::map<std::string_view, std::string> shares;
    seen.for_losses([&](std::string_view format, const ErrorStats& e) {
      if (e.*part_ > 0) shares[format] = share_text(e.*part_, e.count);
    });
    if (!shares.empty()) lines_.emplace_back(printable(tensor), std::move(shares));
  }

  std::string text(std::size_t width) const {
    if (lines_.empty()) return {};
    width = std::max(width, what_.size());
    std::vector<std::string_view> formats;
    Survey().for_losses([&](std::string_view format, const ErrorStats&) {
      const auto lost = [&](const auto& line) { return line.second.contains(format); };
      if (std::any_of(lines_.begin(), lines_.end(), lost)) formats.push_back(format);
    });
    std::string text = fmt::format("\n{:<{}}", what_, width);
    for (const std::string_view format : formats) text += fmt::format("{:>{}}", format, column(format));
    for (const auto& [tensor, shares] : lines_) {
      text += fmt::format("\n{:<{}}", tensor, width);
      for (const std::string_view format : formats) {
        const auto it = shares.find(format);
        text += fmt::format("{:>{}}", it == shares.end() ? "" : it->second, column(format));
      }
      text.erase(text.find_last_not_of(' ') + 1);
    }
    return text + "\n";
  }

 private:
  static std::size_t column(std::string_view format) { return std::max<std::size_t>(11, format.size() + 2); }

  std::string what_;
  std::uint64_t ErrorStats::*part_;
  std::vector<std::pair<std::string, std::map<std::string_view, std::string>>> lines_;
};

std::string row_text(const InspectedTensor& row, std::size_t width) {
  std::string text = fmt::format("{:<{}}  {:<8}{:<16}", printable(row.tensor.name), width, row.type(),
                                 shape_text(row.tensor.shape));
  const std::string place = place_text(row.place);
  const auto add = [&](const std::string& note) {
    if (!note.empty()) text += "  " + note;
  };
  if (!row.seen) {
    add(place);
    return text;
  }
  const ValueStats& v = row.seen->values;
  const bool any = v.finite() > 0;
  text += fmt::format("{:>11.3g}{:>11.3g}{:>11.3g}", any ? v.min : std::nan(""), any ? v.max : std::nan(""),
                      v.rms());
  if (v.nonfinite > 0) add(fmt::format("{} inf or nan", counted(v.nonfinite, "value", "is", "are")));
  add(place);
  return text;
}

nlohmann::json row_json(const InspectedTensor& row) {
  nlohmann::json json = {{"name", row.tensor.name},
                         {"dtype", row.type()},
                         {"shape", row.tensor.shape},
                         {"count", row.tensor.count()}};
  if (!row.place.shares_with.empty()) {
    json["shares_storage_with"] = row.place.shares_with;
    json["same_elements"] = row.place.same_elements;
  }
  if (!row.place.strides.empty()) json["strides"] = row.place.strides;
  if (!row.seen) return json;
  const ValueStats& v = row.seen->values;
  const bool any = v.finite() > 0;
  json["min"] = any ? nlohmann::json(v.min) : nlohmann::json();
  json["max"] = any ? nlohmann::json(v.max) : nlohmann::json();
  json["smallest"] = v.zeros < v.finite() ? nlohmann::json(v.smallest) : nlohmann::json();
  json["rms"] = v.rms();
  json["zeros"] = v.zeros;
  json["nonfinite"] = v.nonfinite;
  json["casts"] = json_of(*row.seen);
  return json;
}

std::string_view against_text(Outlier::Against against) {
  switch (against) {
    case Outlier::Against::rows:
      return "rows";
    case Outlier::Against::columns:
      return "columns";
    case Outlier::Against::elements:
      return "elements";
    case Outlier::Against::layers:
      return "layers";
  }
  return "";
}

/// Returns a magnitude as a share of the range of `format`.
std::string range_text(double magnitude, Scalar format) {
  const double part = magnitude / traits(format).max_finite;
  return part > 1 ? fmt::format("overflows {}", name(format))
                  : fmt::format("{:.2g} % of {}", 100 * part, name(format));
}

/// Returns what has the index, as in "row", or "" for a tensor compared with other layers'.
std::string_view axis_text(Outlier::Against against) {
  switch (against) {
    case Outlier::Against::rows:
      return "row";
    case Outlier::Against::columns:
      return "column";
    case Outlier::Against::elements:
      return "element";
    case Outlier::Against::layers:
      return "";
  }
  return "";
}

/// True for a row or a column, whose products with inputs may be large.
bool makes_products(const Outlier& o) {
  return o.against == Outlier::Against::rows || o.against == Outlier::Against::columns;
}

std::string outlier_text(const Outlier& o) {
  const std::string_view axis = axis_text(o.against);
  std::string text = printable(o.tensor);
  if (o.index) text += fmt::format(" {} {}", axis, *o.index);
  if (o.rms == 0) return text + ": all values are 0, and other layers' are not";
  text += fmt::format(": {} {:.4g} × the median {}'s",
                      o.index && o.of_absmax ? "magnitude"
                      : o.of_absmax          ? "largest value"
                                             : "RMS",
                      o.ratio, axis.empty() ? "other layer" : axis);
  text += fmt::format("; largest {:.3g} ({}, {})", o.absmax, range_text(o.absmax, Scalar::e4m3),
                      range_text(o.absmax, Scalar::f16));
  if (!makes_products(o)) return text;
  return text + fmt::format("; products up to {:.2g} ({})", o.large_product(),
                            range_text(o.large_product(), Scalar::f16));
}

/// Returns the outliers with the largest ratios, one a line, or "" without outliers.
std::string outliers_text(const std::vector<Outlier>& outliers) {
  constexpr std::size_t kMost = 8;
  if (outliers.empty()) return {};
  std::string text = "\noutliers\n";
  for (std::size_t i = 0; i < std::min(kMost, outliers.size()); ++i) text += outlier_text(outliers[i]) + "\n";
  if (outliers.size() > kMost) text += fmt::format("… and {} more (--json)\n", outliers.size() - kMost);
  return text;
}

nlohmann::json outlier_json(const Outlier& o) {
  const nlohmann::json none;
  nlohmann::json overflows = nlohmann::json::array();
  for (const Scalar format : {Scalar::e4m3, Scalar::e5m2, Scalar::f16}) {
    if (o.absmax > traits(format).max_finite) overflows.push_back(name(format));
  }
  return {{"tensor", o.tensor},
          {"axis", o.index ? nlohmann::json(axis_text(o.against)) : none},
          {"index", o.index ? nlohmann::json(*o.index) : none},
          {"rms", o.rms},
          {"absmax", o.absmax},
          {"ratio", o.ratio},
          {"of", o.of_absmax ? "absmax" : "rms"},
          {"against", against_text(o.against)},
          {"overflows", std::move(overflows)},
          {"large_product", makes_products(o) ? nlohmann::json(o.large_product()) : none}};
}

/// Returns a table of the types of a GGUF file, or "".
std::string type_table(const std::vector<gguf::TypeCount>& types) {
  if (types.empty()) return {};
  std::string text =
      fmt::format("{:<8}{:>10}{:>14}{:>8}{:>12}\n", "type", "tensors", "values", "bits", "bytes");
  for (const gguf::TypeCount& t : types) {
    text += fmt::format("{:<8}{:>10}{:>14}{:>8.4g}{:>12}\n", t.type->name, t.tensors, t.values,
                        t.type->bits(), human_bytes(static_cast<double>(t.bytes)));
  }
  return text + "\n";
}

nlohmann::json types_json(const std::vector<gguf::TypeCount>& types) {
  nlohmann::json json = nlohmann::json::array();
  for (const gguf::TypeCount& t : types) {
    json.push_back({{"type", t.type->name},
                    {"tensors", t.tensors},
                    {"values", t.values},
                    {"bits", t.type->bits()},
                    {"bytes", t.bytes}});
  }
  return json;
}

std::string casts_text(const Survey& all) {
  std::string text = fmt::format("\n{:<12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "a cast to", "max error",
                                 "rms error", "relative", "overflows", "vanish");
  all.for_losses([&](std::string_view format, const ErrorStats& e) {
    text += fmt::format("{:<12}{:>12.3g}{:>12.3g}{:>12.3g}{:>12}{:>12}\n", format, e.max_abs, e.rms(),
                        e.relative(), e.overflows, e.vanished);
  });
  return text;
}

}  // namespace

std::string to_text(const Inspection& i) {
  std::size_t width = 6;
  for (const InspectedTensor& t : i.tensors) width = std::max(width, width_of(printable(t.tensor.name)));
  std::string text = fmt::format("{}: {}, {}, {}\norigin  {}\n\n", printable(i.path.string()),
                                 counted(i.tensors.size(), "tensor"), counted(i.values, "value"),
                                 human_bytes(static_cast<double>(i.bytes)), printable(i.origin));
  for (const std::string& note : i.notes)
    text.insert(text.size() - 1, fmt::format("note    {}\n", printable(note)));
  text += type_table(i.types);
  text += fmt::format("{:<{}}  {:<8}{:<16}{:>11}{:>11}{:>11}  {}\n", "tensor", width, "dtype", "shape", "min",
                      "max", "rms", "");
  LossTable overflows("overflow in a cast to", &ErrorStats::overflows);
  LossTable vanished("vanish in a cast to", &ErrorStats::vanished);
  for (const InspectedTensor& t : i.tensors) {
    text += row_text(t, width) + "\n";
    if (!t.seen) continue;
    overflows.add(t.tensor.name, *t.seen);
    vanished.add(t.tensor.name, *t.seen);
  }
  return text + outliers_text(i.outliers) + casts_text(i.all) + overflows.text(width) + vanished.text(width);
}

std::string to_json(const Inspection& i) {
  nlohmann::json json = {{"path", i.path.string()},
                         {"bytes", i.bytes},
                         {"values", i.values},
                         {"origin", i.origin},
                         {"metadata", i.metadata},
                         {"casts", json_of(i.all)},
                         {"tensors", nlohmann::json::array()},
                         {"outliers", nlohmann::json::array()},
                         {"notes", i.notes}};
  if (!i.types.empty()) json["types"] = types_json(i.types);
  for (const InspectedTensor& t : i.tensors) json["tensors"].push_back(row_json(t));
  for (const Outlier& o : i.outliers) json["outliers"].push_back(outlier_json(o));
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace mantissa::convert
