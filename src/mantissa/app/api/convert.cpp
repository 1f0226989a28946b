#include "mantissa/app/api/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "mantissa/app/api/internal.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/base/suggest.h"
#include "mantissa/files/convert/block_rows.h"
#include "mantissa/files/convert/gguf_adapter.h"
#include "mantissa/files/convert/refuse_adapter.h"
#include "mantissa/files/convert/rwkv.h"
#include "mantissa/files/gguf/quants.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/generate/eval/effect.h"

namespace mantissa::api {
namespace {

/// Returns true for the quantized types that only GGUF files have.
bool is_only_gguf(gguf::TensorType type) {
  return type != gguf::TensorType::mxfp4;
}

/// Returns the quantized type called `text`, in capitals too, as llama.cpp writes them, or null.
std::optional<gguf::TensorType> type_named(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const gguf::TensorType type : gguf::kWrittenTypes) {
    if (gguf::lower_name(gguf::traits(type)) == text) return type;
  }
  return std::nullopt;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::optional<std::string> near = nearest(word, known);
  return near ? fmt::format(", did you mean {}?", *near) : "";
}

}  // namespace

Scalar format_named(const std::string& text) {
  if (const std::optional<Scalar> format = parse_scalar(text)) return *format;
  std::vector<std::string> names;
  for (const Scalar s : kScalars) names.emplace_back(name(s));
  for (const BlockFormat f : kBlockFormats) names.emplace_back(traits(f).name);
  for (const gguf::TensorType type : gguf::kWrittenTypes) {
    if (is_only_gguf(type)) names.push_back(gguf::lower_name(gguf::traits(type)));
  }
  if (const std::string_view several = formats_of_width(text); !several.empty())
    throw ConfigError(fmt::format("--dtype {}: ambiguous; write one of {}", text, several));
  throw ConfigError(fmt::format("--dtype {}: unknown number format{} (formats: {})", text,
                                did_you_mean(text, names), fmt::join(names, ", ")));
}

namespace {

Rounding rounding_named(const std::string& text) {
  if (text == "nearest") return Rounding::nearest;
  if (text == "stochastic") return Rounding::stochastic;
  if (text == "toward-zero") return Rounding::toward_zero;
  throw ConfigError(fmt::format("--rounding {}: unknown rounding{} (nearest, stochastic, toward-zero)", text,
                                did_you_mean(text, {"nearest", "stochastic", "toward-zero"})));
}

/// Returns the layout called `text` or, without a name, the one that the end of `out` stands for.
convert::Layout layout_of(const std::string& text, const std::filesystem::path& out) {
  if (text.empty()) {
    if (convert::is_gguf_name(out)) return convert::Layout::gguf;
    return convert::is_torch_name(out) ? convert::Layout::pth : convert::Layout::hugging_face;
  }
  if (text == "hf") return convert::Layout::hugging_face;
  if (text == "gguf") return convert::Layout::gguf;
  if (text == "pth") return convert::Layout::pth;
  throw ConfigError(fmt::format("--format {}: unknown layout{} (hf, pth, gguf)", text,
                                did_you_mean(text, {"hf", "pth", "gguf"})));
}

/// Checks the options of GGUF files.
void check_gguf(const ConvertOptions& o, const convert::Request& request) {
  const bool gguf = request.layout == convert::Layout::gguf;
  if (request.quantized && !gguf)
    throw ConfigError(fmt::format(
        "--dtype {}: is a type of GGUF files only. Fix: give an OUT that ends in .gguf, or choose "
        "another --dtype",
        o.dtype));
  if (!gguf && convert::is_gguf_name(request.out))
    throw ConfigError(
        fmt::format("{}: --format {} does not write GGUF files. Fix: remove --format, or "
                    "choose another OUT",
                    o.out.string(), o.format));
  if (!gguf) return;
  const std::optional<Scalar> format = request.change.format;
  const bool written = !format || *format == Scalar::f32 || *format == Scalar::bf16 || *format == Scalar::f16;
  if (!written || request.change.blocks) {
    throw ConfigError(fmt::format("--dtype {}: is not written to GGUF files; choose f32, bf16, f16 or {}",
                                  o.dtype, gguf::written_types()));
  }
  if (request.quantized && (request.change.rounding != Rounding::nearest || o.saturate || o.allow_overflow)) {
    throw ConfigError(
        fmt::format("--dtype {}: rounds to nearest and refuses values beyond its range; remove --rounding, "
                    "--saturate and --allow-overflow",
                    o.dtype));
  }
}

/// Checks the options of checkpoints of PyTorch.
void check_pth(const ConvertOptions& o, const convert::Request& request) {
  if (!convert::is_torch_name(request.out)) return;
  if (request.layout == convert::Layout::hugging_face)
    throw ConfigError(
        fmt::format("{}: --format {} does not write checkpoints of PyTorch. Fix: remove "
                    "--format, or choose another OUT",
                    o.out.string(), o.format));
  if (request.layout == convert::Layout::pth && !o.data.empty()) {
    throw ConfigError(fmt::format(
        "--data: the model needs its config.json, and {} is one file; choose a directory", o.out.string()));
  }
}

/// Refuses a directory whose name is that of a file of weights.
void check_directory(const ConvertOptions& o, const convert::Request& request) {
  if (!request.writes_directory() || !convert::is_weights_name(request.out)) return;
  throw ConfigError(fmt::format(
      "{}: expected the name of a directory, got one that ends in {}: {} is written as a model "
      "directory. Fix: another OUT, such as {}, or for one file an OUT that ends in .gguf or .pth",
      o.out.string(), request.out.extension().string(), o.in.string(),
      std::filesystem::path(request.out).replace_extension().string()));
}

convert::Change change_of(const ConvertOptions& o, std::optional<gguf::TensorType> quantized) {
  convert::Change change;
  if (!quantized) change.blocks = parse_block_format(o.dtype);
  if (change.blocks) {
    change.format = convert::stored_as(*change.blocks);
  } else if (!o.dtype.empty() && !quantized) {
    change.format = format_named(o.dtype);
  }
  change.rounding = rounding_named(o.rounding);
  if (change.blocks && change.rounding != Rounding::nearest) {
    throw ConfigError(fmt::format(
        "--rounding {}: block formats round to nearest; remove --rounding, or choose another --dtype",
        o.rounding));
  }
  change.saturate = o.saturate;
  change.seed = o.seed;
  if (!change.format && !quantized &&
      (change.rounding != Rounding::nearest || change.saturate || o.allow_overflow)) {
    throw ConfigError(
        "--rounding, --saturate and --allow-overflow: without --dtype every tensor keeps its format; give "
        "--dtype, or remove them");
  }
  if (change.saturate && o.allow_overflow) {
    throw ConfigError(
        "--saturate and --allow-overflow: overflow gives either the largest value of the format, or "
        "infinity; give one of them");
  }
  return change;
}

/// Returns notes on options that are set but have no effect.
std::vector<std::string> idle_options(const convert::Change& change) {
  std::vector<std::string> idle;
  if (change.seed != convert::Change().seed && change.rounding != Rounding::stochastic)
    idle.push_back(
        fmt::format("--seed {} has no effect: only --rounding stochastic uses random numbers", change.seed));
  if (change.saturate && change.blocks)
    idle.push_back(
        fmt::format("--saturate has no effect: elements of {} always saturate", convert::rounded_to(change)));
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

Conversion from_report(const convert::Report& r) {
  Conversion c;
  for (const convert::RewrittenTensor& t : r.result.tensors) {
    ConvertedTensor& row = c.tensors.emplace_back(row_of(t.errors));
    row.name = t.name;
    row.shape = t.shape;
    row.from = t.type_before();
    row.to = t.type_after();
  }
  c.total = row_of(r.total);
  if (r.effect) {
    const convert::Effect& e = *r.effect;
    c.effect = {e.tokens, e.loss, e.converted_loss, e.kl, e.max_kl};
  }
  c.notes = r.notes;
  c.warnings = r.warnings;
  c.interrupted = r.interrupted;
  c.text = convert::to_text(r);
  c.json = convert::to_json(r);
  return c;
}

}  // namespace

Conversion convert(const ConvertOptions& o, std::stop_token stop) {
  convert::Request request;
  request.out = o.out.has_filename() || !o.out.has_parent_path() ? o.out : o.out.parent_path();
  request.layout = layout_of(o.format, request.out);
  const bool gguf = request.layout == convert::Layout::gguf;
  request.quantized = type_named(o.dtype);
  if (!gguf && request.quantized && !is_only_gguf(*request.quantized)) request.quantized.reset();
  request.change = change_of(o, request.quantized);
  check_gguf(o, request);
  check_pth(o, request);
  request.in = io::open_model(o.in);
  if (!convert::becomes_states_file(request) && !convert::becomes_gguf_adapter(request))
    convert::refuse_adapter(request.in, o.in);
  convert::look_at_names(request);
  check_directory(o, request);
  request.overwrite = o.overwrite;
  convert::check_place(request);
  const auto device = device_for(o.hardware);
  // Report faults of the data before anything is written.
  std::optional<eval::EffectRows> rows;
  if (!o.data.empty())
    rows.emplace(request.in, policy_for(o.precision), eval::Files{o.data, o.data_format, o.sequence_length});
  std::optional<convert::Report> report = eval::convert_and_compare(request, rows, *device, stop);
  if (!report) {
    Conversion nothing;
    nothing.interrupted = true;
    return nothing;
  }
  report->out = o.out;
  for (std::string& idle : idle_options(request.change)) report->notes.push_back(std::move(idle));
  if (o.allow_overflow) report->warnings.clear();
  return from_report(*report);
}

}  // namespace mantissa::api
