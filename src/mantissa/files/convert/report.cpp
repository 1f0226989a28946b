#include "mantissa/files/convert/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/quantities.h"
#include "mantissa/core/base/words.h"
#include "mantissa/files/convert/block_rows.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::convert {
namespace {

nlohmann::json json_of(const ErrorStats& e) {
  return {{"count", e.count},
          {"max_error", e.max_abs},
          {"rms_error", e.rms()},
          {"relative_error", e.relative()},
          {"max_relative_error", e.max_relative},
          {"overflows", e.overflows},
          {"vanished", e.vanished},
          {"nonfinite", e.nonfinite}};
}

std::string row_text(const std::string& name, std::size_t width, const std::string& dtype,
                     const ErrorStats& e) {
  return fmt::format("{:<{}}  {:<18}{:>11.3g}{:>11.3g}{:>11.3g}{:>10}{:>10}\n", name, width, dtype, e.max_abs,
                     e.rms(), e.relative(), e.overflows, e.vanished);
}

std::string dtype_text(const RewrittenTensor& t) {
  const std::string_view from = t.type_before(), to = t.type_after();
  return from == to ? std::string(from) : fmt::format("{} to {}", from, to);
}

/// A row of the table: a tensor, or several without errors.
struct Row {
  std::string name, dtype;
  ErrorStats errors;
};

bool is_exact(const RewrittenTensor& t) {
  return t.errors.max_abs == 0 && t.errors.overflows == 0 && t.errors.vanished == 0 && t.lost() == 0;
}

/// Returns the tensors with errors, then the others of each pair of dtypes as one row.
std::vector<Row> rows_of(const std::vector<RewrittenTensor>& tensors) {
  std::vector<Row> rows;
  std::map<std::string, std::vector<const RewrittenTensor*>> exact;
  for (const RewrittenTensor& t : tensors) {
    if (is_exact(t)) {
      exact[dtype_text(t)].push_back(&t);
    } else {
      rows.push_back({printable(t.name), dtype_text(t), t.errors});
    }
  }
  for (const auto& [dtype, all] : exact) {
    rows.push_back(
        {all.size() == 1 ? printable(all.front()->name) : fmt::format("{} exact tensors", all.size()),
         dtype,
         {}});
  }
  return rows;
}

}  // namespace

const char* rounding_name(Rounding rounding) {
  return rounding == Rounding::nearest      ? "nearest"
         : rounding == Rounding::stochastic ? "stochastic"
                                            : "toward-zero";
}

std::string to_text(const Report& c) {
  const std::vector<Row> rows = rows_of(c.result.tensors);
  std::size_t width = 6;
  for (const Row& row : rows) width = std::max(width, width_of(row.name));
  std::string text = fmt::format("{:<{}}  {:<18}{:>11}{:>11}{:>11}{:>10}{:>10}\n", "tensor", width, "dtype",
                                 "max error", "rms error", "relative", "overflow", "vanish");
  for (const Row& row : rows) text += row_text(row.name, width, row.dtype, row.errors);
  text += row_text("all", width, "", c.total);
  text += fmt::format("\n{}: {}, {} from {} in {}\n", printable(c.out.string()),
                      counted(c.result.tensors.size(), "tensor"),
                      human_bytes(static_cast<double>(c.result.bytes_out)),
                      human_bytes(static_cast<double>(c.result.bytes_in)), human_seconds(c.seconds));
  if (!c.result.left_out.empty()) text += fmt::format("left    {}\n", printable(list_of(c.result.left_out)));
  for (const std::string& note : c.notes) text += fmt::format("note    {}\n", printable(note));
  if (c.effect) {
    const Effect& e = *c.effect;
    text += fmt::format(
        "loss    {:.6f} before, {:.6f} after ({:+.3g}) over {}; KL divergence {:.3g}, at most {:.3g}\n",
        e.loss, e.converted_loss, e.converted_loss - e.loss, counted(e.tokens, "token"), e.kl, e.max_kl);
  }
  text.pop_back();
  return text;
}

std::string to_json(const Report& c) {
  nlohmann::json json = {{"in", c.in.string()},
                         {"out", c.out.string()},
                         {"dtype", nullptr},
                         {"stored_as", nullptr},
                         {"rounding", rounding_name(c.change.rounding)},
                         {"seed", c.change.seed},
                         {"saturate", c.change.saturate},
                         {"tensors", nlohmann::json::array()},
                         {"total", json_of(c.total)},
                         {"copied", c.result.copied},
                         {"left_out", c.result.left_out},
                         {"notes", c.notes},
                         {"warnings", c.warnings},
                         {"bytes_in", c.result.bytes_in},
                         {"bytes_out", c.result.bytes_out},
                         {"seconds", c.seconds}};
  if (const std::optional<Scalar> format = c.change.format) {
    json["dtype"] = rounded_to(c.change);
    json["stored_as"] = io::safetensors_name(io::dtype_of(*format));
  }
  for (const RewrittenTensor& t : c.result.tensors) {
    nlohmann::json row = json_of(t.errors);
    row["name"] = t.name;
    row["shape"] = t.shape;
    row["from"] = t.type_before();
    row["to"] = t.type_after();
    json["tensors"].push_back(std::move(row));
  }
  if (c.effect) {
    const Effect& e = *c.effect;
    json["tokens"] = e.tokens;
    json["loss"] = e.loss;
    json["converted_loss"] = e.converted_loss;
    json["loss_change"] = e.converted_loss - e.loss;
    json["kl"] = e.kl;
    json["max_kl"] = e.max_kl;
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace mantissa::convert
