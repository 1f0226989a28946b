// mantissa convert: options to a conversion, and what it did as text and JSON.
#include "mantissa/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mantissa/api/conversion_effect.h"
#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/base/suggest.h"
#include "mantissa/convert/block_rows.h"

namespace mantissa::api {
namespace {

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::optional<std::string> near = nearest(word, known);
  return near ? fmt::format(", did you mean {}?", *near) : "";
}

Scalar format_named(const std::string& text) {
  if (const std::optional<Scalar> format = parse_scalar(text)) return *format;
  std::vector<std::string> names;
  for (const Scalar s : kScalars) names.emplace_back(name(s));
  for (const BlockFormat f : kBlockFormats) names.emplace_back(traits(f).name);
  if (const std::string_view several = formats_of_width(text); !several.empty())
    throw ConfigError(fmt::format("--dtype {}: may be several formats; say {}", text, several));
  throw ConfigError(fmt::format("--dtype {}: no number format has this name{} (formats: {})", text,
                                did_you_mean(text, names), fmt::join(names, ", ")));
}

Rounding rounding_named(const std::string& text) {
  if (text == "nearest") return Rounding::nearest;
  if (text == "stochastic") return Rounding::stochastic;
  if (text == "toward-zero") return Rounding::toward_zero;
  throw ConfigError(
      fmt::format("--rounding {}: no way of rounding has this name{} (nearest, stochastic, toward-zero)",
                  text, did_you_mean(text, {"nearest", "stochastic", "toward-zero"})));
}

void check_layout(const std::string& text) {
  if (text == "hf") return;
  if (text == "pth" || text == "gguf") {
    throw ConfigError(
        fmt::format("--format {}: this version writes safetensors files and Hugging Face directories only; "
                    "leave --format "
                    "out, or convert the result with that format's own tools",
                    text));
  }
  throw ConfigError(fmt::format("--format {}: no layout has this name{} (hf)", text,
                                did_you_mean(text, {"hf", "pth", "gguf"})));
}

convert::Change change_of(const ConvertOptions& o) {
  check_layout(o.format);
  convert::Change change;
  change.blocks = parse_block_format(o.dtype);
  if (change.blocks) {
    change.format = convert::stored_as(*change.blocks);
  } else if (!o.dtype.empty()) {
    change.format = format_named(o.dtype);
  }
  change.rounding = rounding_named(o.rounding);
  if (change.blocks && change.rounding != Rounding::nearest) {
    throw ConfigError(
        fmt::format("--rounding {}: elements of blocks are rounded to nearest; leave --rounding out, or "
                    "choose another --dtype",
                    o.rounding));
  }
  change.saturate = o.saturate;
  change.seed = o.seed;
  if (!change.format && (change.rounding != Rounding::nearest || change.saturate || o.allow_overflow)) {
    throw ConfigError(
        "--rounding, --saturate and --allow-overflow: without --dtype every tensor stays as it is; give "
        "--dtype, or leave them out");
  }
  if (change.saturate && o.allow_overflow) {
    throw ConfigError(
        "--saturate and --allow-overflow: values beyond the range become the largest of the format, or "
        "infinities; give one of them");
  }
  return change;
}

/// Options that are set and can have no effect.
std::vector<std::string> idle_options(const convert::Change& change) {
  std::vector<std::string> idle;
  if (change.seed != convert::Change().seed && change.rounding != Rounding::stochastic)
    idle.push_back(
        fmt::format("--seed {} has no effect: only --rounding stochastic draws numbers", change.seed));
  if (change.saturate && change.blocks)
    idle.push_back(fmt::format("--saturate has no effect: elements of {} saturate without it",
                               convert::rounded_to(change)));
  return idle;
}

ConvertedTensor row_of(const ErrorStats& e) {
  ConvertedTensor t;
  t.count = e.count;
  t.max_error = e.max_abs;
  t.rms_error = e.rms();
  t.relative_error = e.relative();
  t.max_relative_error = e.max_relative;
  t.overflows = e.overflows;
  t.vanished = e.vanished;
  t.nonfinite = e.nonfinite;
  return t;
}

nlohmann::json json_of(const ConvertedTensor& t) {
  return {{"count", t.count},
          {"max_error", t.max_error},
          {"rms_error", t.rms_error},
          {"relative_error", t.relative_error},
          {"max_relative_error", t.max_relative_error},
          {"overflows", t.overflows},
          {"vanished", t.vanished},
          {"nonfinite", t.nonfinite}};
}

std::string row_text(const ConvertedTensor& t, std::size_t width) {
  return fmt::format("{:<{}}  {:<18}{:>11.3g}{:>11.3g}{:>11.3g}{:>10}{:>10}\n", t.name, width,
                     t.from == t.to ? t.from : t.from + " to " + t.to, t.max_error, t.rms_error,
                     t.relative_error, t.overflows, t.vanished);
}

std::string text_of(const Conversion& c, const convert::Result& r, const ConvertOptions& o, double seconds) {
  std::size_t width = 6;
  for (const ConvertedTensor& t : c.tensors) width = std::max(width, t.name.size());
  std::string text = fmt::format("{:<{}}  {:<18}{:>11}{:>11}{:>11}{:>10}{:>10}\n", "tensor", width, "dtype",
                                 "max error", "rms error", "relative", "overflow", "vanish");
  for (const ConvertedTensor& t : c.tensors) text += row_text(t, width);
  ConvertedTensor total = c.total;
  total.name = "all";
  total.from = total.to = "";
  text += row_text(total, width);
  text += fmt::format("\n{}: {} tensors, {} from {} in {}\n", o.out.string(), c.tensors.size(),
                      human_bytes(static_cast<double>(r.bytes_out)),
                      human_bytes(static_cast<double>(r.bytes_in)), human_seconds(seconds));
  if (!r.left_out.empty()) text += fmt::format("left    {}\n", fmt::join(r.left_out, ", "));
  for (const std::string& note : c.notes) text += fmt::format("note    {}\n", note);
  if (c.effect) {
    const ConversionEffect& e = *c.effect;
    text += fmt::format(
        "loss    {:.6f} before, {:.6f} after ({:+.3g}) over {} tokens; KL divergence {:.3g}, at most "
        "{:.3g}\n",
        e.loss, e.converted_loss, e.converted_loss - e.loss, e.tokens, e.kl, e.max_kl);
  }
  if (!text.empty()) text.pop_back();
  return text;
}

std::string json_text_of(const Conversion& c, const convert::Result& r, const ConvertOptions& o,
                         const convert::Request& request, double seconds) {
  nlohmann::json json = {{"in", request.in.path.string()},
                         {"out", o.out.string()},
                         {"dtype", nullptr},
                         {"stored_as", nullptr},
                         {"rounding", o.rounding},
                         {"seed", o.seed},
                         {"saturate", o.saturate},
                         {"tensors", nlohmann::json::array()},
                         {"total", json_of(c.total)},
                         {"copied", r.copied},
                         {"left_out", r.left_out},
                         {"notes", c.notes},
                         {"warnings", c.warnings},
                         {"bytes_in", r.bytes_in},
                         {"bytes_out", r.bytes_out},
                         {"seconds", seconds}};
  if (const std::optional<Scalar> format = request.change.format) {
    json["dtype"] = convert::rounded_to(request.change);
    json["stored_as"] = io::safetensors_name(io::dtype_of(*format));
  }
  for (const ConvertedTensor& t : c.tensors) {
    nlohmann::json row = json_of(t);
    row["name"] = t.name;
    row["shape"] = t.shape;
    row["from"] = t.from;
    row["to"] = t.to;
    json["tensors"].push_back(std::move(row));
  }
  if (c.effect) {
    const ConversionEffect& e = *c.effect;
    json["tokens"] = e.tokens;
    json["loss"] = e.loss;
    json["converted_loss"] = e.converted_loss;
    json["loss_change"] = e.converted_loss - e.loss;
    json["kl"] = e.kl;
    json["max_kl"] = e.max_kl;
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Conversion convert(const ConvertOptions& o, std::stop_token stop) {
  convert::Request request;
  request.change = change_of(o);
  request.in = convert::find_source(o.in);
  request.out = o.out.has_filename() || !o.out.has_parent_path() ? o.out : o.out.parent_path();
  request.overwrite = o.overwrite;
  const kernels::Context ctx = context_for(o.hardware);
  // Everything that may be wrong with the data is said before anything is written.
  std::optional<EffectRows> rows;
  if (!o.data.empty()) rows.emplace(request.in, o);
  Conversion c;
  const auto start = std::chrono::steady_clock::now();
  const std::optional<convert::Result> result = convert::convert(request, ctx, stop);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!result) {
    c.interrupted = true;
    return c;
  }
  ErrorStats all;
  for (const convert::RewrittenTensor& t : result->tensors) {
    ConvertedTensor row = row_of(t.errors);
    row.name = t.name;
    row.shape = t.shape;
    row.from = io::safetensors_name(t.from);
    row.to = io::safetensors_name(t.to);
    all.merge(t.errors);
    c.tensors.push_back(std::move(row));
  }
  c.total = row_of(all);
  c.notes = result->notes;
  for (std::string& idle : idle_options(request.change)) c.notes.push_back(std::move(idle));
  if (!o.allow_overflow) c.warnings = result->warnings;
  if (rows) c.effect = rows->compare(request.out, ctx, stop);
  c.interrupted = rows && !c.effect;
  c.text = text_of(c, *result, o, seconds);
  c.json = json_text_of(c, *result, o, request, seconds);
  return c;
}

}  // namespace mantissa::api
