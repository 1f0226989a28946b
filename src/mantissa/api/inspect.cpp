// What lies in a checkpoint: tensors, their ranges, where they come from, and what a cast would lose.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/convert/origin.h"
#include "mantissa/convert/source.h"
#include "mantissa/convert/survey.h"
#include "mantissa/io/checkpoint.h"

namespace mantissa::api {
namespace {

namespace fs = std::filesystem;
using convert::Survey;

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

/// What the values and the metadata say of the past.
std::string origin_of(const io::WeightFiles& files, const Survey& all) {
  std::vector<std::string> said;
  const auto& metadata = files.metadata();
  const auto say = [&](const char* key, const char* words) {
    if (const auto it = metadata.find(key); it != metadata.end())
      said.push_back(fmt::format("{} {}", words, it->second));
  };
  say(convert::kPolicyKey, "written by mantissa under");
  say(convert::kHistoryKey, "converted:");
  say(convert::kRoundedToKey, "last rounded to");
  if (const std::optional<Scalar> format = all.lies_in(); format && *format != Scalar::f32) {
    said.push_back(fmt::format("every value is {} {}: the weights come from {} bits",
                               *format == Scalar::bf16 || *format == Scalar::tf32 ? "a" : "an", name(*format),
                               *format == Scalar::tf32 ? 19 : 8 * bytes_of(*format)));
  }
  return said.empty() ? "not said by the file" : fmt::format("{}", fmt::join(said, "; "));
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// "0.31 %", and nothing where nothing is lost.
std::string share_text(std::uint64_t part, std::uint64_t all) {
  return part == 0 ? "" : fmt::format("{:.2g} %", 100 * share(part, all));
}

/// Shares of values that are lost: a line for each tensor that loses some, a column for each format that some
/// are lost in.
class LossTable {
 public:
  /// `what` heads the names; `part` says which loss of a tensor's values is meant.
  LossTable(std::string what, std::uint64_t ErrorStats::*part) : what_(std::move(what)), part_(part) {}

  void add(const std::string& tensor, const Survey& seen) {
    std::map<std::string_view, std::string> shares;
    seen.for_losses([&](std::string_view format, const ErrorStats& e) {
      if (e.*part_ > 0) shares[format] = share_text(e.*part_, e.count);
    });
    if (!shares.empty()) lines_.emplace_back(tensor, std::move(shares));
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

class Inspector {
 public:
  Inspector(const fs::path& path, const kernels::Context& ctx)
      : path_(convert::find_source(path).weights), files_(path_), ctx_(ctx) {
    for (const io::TensorInfo& t : files_.tensors()) width_ = std::max(width_, t.name.size());
  }

  Inspection run() {
    text_ = fmt::format("{:<{}}  {:<8}{:<16}{:>11}{:>11}{:>11}  {}\n", "tensor", width_, "dtype", "shape",
                        "min", "max", "rms", "");
    for (const io::TensorInfo& t : files_.tensors()) add(t);
    const std::string origin = origin_of(files_, all_);
    const std::string head =
        fmt::format("{}: {} tensors, {} values, {}\norigin  {}\n\n", path_.string(), files_.tensors().size(),
                    values_, human_bytes(static_cast<double>(files_.bytes())), origin);
    json_["path"] = path_.string();
    json_["bytes"] = files_.bytes();
    json_["values"] = values_;
    json_["origin"] = origin;
    json_["metadata"] = files_.metadata();
    json_["casts"] = json_of(all_);
    return {head + text_ + casts_text() + overflows_.text(width_) + vanished_.text(width_),
            json_.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)};
  }

 private:
  void add(const io::TensorInfo& tensor) {
    values_ += static_cast<std::uint64_t>(tensor.count());
    nlohmann::json row = {{"name", tensor.name},
                          {"dtype", io::safetensors_name(tensor.dtype)},
                          {"shape", tensor.shape},
                          {"count", tensor.count()}};
    text_ += fmt::format("{:<{}}  {:<8}{:<16}", tensor.name, width_, io::safetensors_name(tensor.dtype),
                         shape_text(tensor.shape));
    if (io::scalar_of(tensor.dtype) && tensor.count() > 0) {
      const Survey seen = convert::survey(files_, tensor, ctx_);
      all_.merge(seen);
      const ValueStats& v = seen.values;
      const bool any = v.finite() > 0;
      row["min"] = any ? nlohmann::json(v.min) : nlohmann::json();
      row["max"] = any ? nlohmann::json(v.max) : nlohmann::json();
      row["smallest"] = v.zeros < v.finite() ? nlohmann::json(v.smallest) : nlohmann::json();
      row["rms"] = v.rms();
      row["zeros"] = v.zeros;
      row["nonfinite"] = v.nonfinite;
      row["casts"] = json_of(seen);
      text_ += fmt::format("{:>11.3g}{:>11.3g}{:>11.3g}", any ? v.min : std::nan(""),
                           any ? v.max : std::nan(""), v.rms());
      if (v.nonfinite > 0) text_ += fmt::format("  {} values are inf or nan", v.nonfinite);
      overflows_.add(tensor.name, seen);
      vanished_.add(tensor.name, seen);
    }
    text_ += "\n";
    json_["tensors"].push_back(std::move(row));
  }

  std::string casts_text() const {
    std::string text = fmt::format("\n{:<12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "a cast to", "max error",
                                   "rms error", "relative", "overflows", "vanish");
    all_.for_losses([&](std::string_view format, const ErrorStats& e) {
      text += fmt::format("{:<12}{:>12.3g}{:>12.3g}{:>12.3g}{:>12}{:>12}\n", format, e.max_abs, e.rms(),
                          e.relative(), e.overflows, e.vanished);
    });
    return text;
  }

  fs::path path_;
  io::WeightFiles files_;
  const kernels::Context& ctx_;
  std::size_t width_ = 6;
  Survey all_;
  std::uint64_t values_ = 0;
  std::string text_;
  LossTable overflows_ = {"overflow in a cast to", &ErrorStats::overflows};
  LossTable vanished_ = {"vanish in a cast to", &ErrorStats::vanished};
  nlohmann::json json_ = {{"tensors", nlohmann::json::array()}};
};

}  // namespace

Inspection inspect(const std::filesystem::path& path, const Hardware& hardware) {
  const kernels::Context ctx = context_for(hardware);
  return Inspector(path, ctx).run();
}

}  // namespace mantissa::api
