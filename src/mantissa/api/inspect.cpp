// What lies in a checkpoint: tensors, their ranges, where they come from, and what a cast would lose.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/io/checkpoint.h"
#include "mantissa/io/state.h"
#include "mantissa/numeric/convert.h"
#include "mantissa/numeric/error_stats.h"

namespace mantissa::api {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTargets = {Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3};
using Losses = std::array<ErrorStats, kTargets.size()>;

/// The weights' file or directory that `path` means: itself, a run's model, or its newest state.
fs::path weights_of(const fs::path& path) {
  if (!fs::exists(path)) {
    throw FileError(fmt::format(
        "{}: there is no such file; give a safetensors file, a model directory or a run", path.string()));
  }
  if (!fs::is_directory(path)) return path;
  if (fs::exists(path / "state.safetensors")) return path / "state.safetensors";
  if (fs::is_directory(path / "model")) return path / "model";
  const std::vector<io::FoundState> states = io::find_states(path);
  return states.empty() ? path : states.back().path / "state.safetensors";
}

std::optional<Scalar> scalar_of(io::Dtype dtype) {
  switch (dtype) {
    case io::Dtype::f64:
      return Scalar::f64;
    case io::Dtype::f32:
      return Scalar::f32;
    case io::Dtype::bf16:
      return Scalar::bf16;
    case io::Dtype::f16:
      return Scalar::f16;
    case io::Dtype::e4m3:
      return Scalar::e4m3;
    case io::Dtype::e5m2:
      return Scalar::e5m2;
    default:
      return std::nullopt;
  }
}

struct Range {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double smallest = std::numeric_limits<double>::infinity();  // |x| that is not 0
  double sum_squares = 0;
  std::uint64_t measured = 0, zeros = 0, nonfinite = 0;

  void see(double x) {
    if (!std::isfinite(x)) {
      ++nonfinite;
      return;
    }
    ++measured;
    min = std::min(min, x);
    max = std::max(max, x);
    sum_squares += x * x;
    if (x == 0) {
      ++zeros;
    } else {
      smallest = std::min(smallest, std::abs(x));
    }
  }
  double rms() const { return measured == 0 ? 0 : std::sqrt(sum_squares / static_cast<double>(measured)); }
};

struct Seen {
  Range range;
  Losses losses;
};

/// Reads a floating tensor piece by piece.
Seen look_at(const io::WeightFiles& files, const io::TensorInfo& tensor, Scalar type) {
  constexpr std::size_t kPiece = std::size_t{1} << 18U;
  Seen seen;
  const auto count = static_cast<std::size_t>(tensor.count());
  std::vector<std::byte> stored;
  std::vector<double> before, after;
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const std::size_t n = std::min(kPiece, count - begin);
    stored.resize(n * bytes_of(type));
    before.resize(n);
    files.read(tensor.name, stored, begin * bytes_of(type));
    load_row(stored.data(), type, 0, n, before.data());
    for (const double x : before) seen.range.see(x);
    for (std::size_t t = 0; t < kTargets.size(); ++t) {
      after = before;
      round_row(after.data(), n, kTargets[t]);
      for (std::size_t i = 0; i < n; ++i) seen.losses[t].add(before[i], after[i], kTargets[t]);
    }
  }
  return seen;
}

nlohmann::json json_of(const Losses& losses) {
  nlohmann::json json = nlohmann::json::object();
  for (std::size_t t = 0; t < kTargets.size(); ++t) {
    const ErrorStats& e = losses[t];
    json[std::string(name(kTargets[t]))] = {{"max_error", e.max_abs},
                                            {"rms_error", e.rms()},
                                            {"overflows", e.overflows},
                                            {"vanished", e.vanished}};
  }
  return json;
}

/// What the values and the metadata say of the past.
std::string origin_of(const io::WeightFiles& files, const Losses& all) {
  std::string text;
  const auto& metadata = files.metadata();
  if (const auto it = metadata.find("mantissa.policy"); it != metadata.end())
    text = fmt::format("written by mantissa under {}", it->second);
  if (const auto it = metadata.find("mantissa.rounded_to"); it != metadata.end())
    text += fmt::format("{}last rounded to {}", text.empty() ? "" : "; ", it->second);
  for (std::size_t t = 0; t < kTargets.size(); ++t) {
    const ErrorStats& e = all[t];
    if (e.count == 0 || e.max_abs != 0 || e.overflows != 0) continue;
    text += fmt::format("{}every value is a {}: the weights come from {} bits", text.empty() ? "" : "; ",
                        name(kTargets[t]), 8 * bytes_of(kTargets[t]));
    break;
  }
  return text.empty() ? "not said by the file" : text;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

class Inspector {
 public:
  explicit Inspector(const fs::path& path) : path_(weights_of(path)), files_(path_) {}

  Inspection run() {
    std::size_t width = 6;
    for (const io::TensorInfo& t : files_.tensors()) width = std::max(width, t.name.size());
    text_ = fmt::format("{:<{}}  {:<8}{:<16}{:>11}{:>11}{:>11}  {}\n", "tensor", width, "dtype", "shape",
                        "min", "max", "rms", "");
    for (const io::TensorInfo& t : files_.tensors()) add(t, width);
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
    return {head + text_ + casts_text(), json_.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)};
  }

 private:
  void add(const io::TensorInfo& tensor, std::size_t width) {
    values_ += static_cast<std::uint64_t>(tensor.count());
    nlohmann::json row = {{"name", tensor.name},
                          {"dtype", io::safetensors_name(tensor.dtype)},
                          {"shape", tensor.shape},
                          {"count", tensor.count()}};
    text_ += fmt::format("{:<{}}  {:<8}{:<16}", tensor.name, width, io::safetensors_name(tensor.dtype),
                         shape_text(tensor.shape));
    if (const std::optional<Scalar> type = scalar_of(tensor.dtype); type && tensor.count() > 0) {
      const Seen seen = look_at(files_, tensor, *type);
      for (std::size_t t = 0; t < kTargets.size(); ++t) all_[t].merge(seen.losses[t]);
      const Range& r = seen.range;
      const bool any = r.measured > 0;
      row["min"] = any ? nlohmann::json(r.min) : nlohmann::json();
      row["max"] = any ? nlohmann::json(r.max) : nlohmann::json();
      row["smallest"] = r.zeros < r.measured ? nlohmann::json(r.smallest) : nlohmann::json();
      row["rms"] = r.rms();
      row["zeros"] = r.zeros;
      row["nonfinite"] = r.nonfinite;
      row["casts"] = json_of(seen.losses);
      text_ += fmt::format("{:>11.3g}{:>11.3g}{:>11.3g}", any ? r.min : std::nan(""),
                           any ? r.max : std::nan(""), r.rms());
      if (r.nonfinite > 0) text_ += fmt::format("  {} values are inf or nan", r.nonfinite);
    }
    text_ += "\n";
    json_["tensors"].push_back(std::move(row));
  }

  std::string casts_text() const {
    std::string text = fmt::format("\n{:<12}{:>12}{:>12}{:>12}{:>12}\n", "a cast to", "max error",
                                   "rms error", "overflows", "vanish");
    for (std::size_t t = 0; t < kTargets.size(); ++t) {
      const ErrorStats& e = all_[t];
      text += fmt::format("{:<12}{:>12.3g}{:>12.3g}{:>12}{:>12}\n", name(kTargets[t]), e.max_abs, e.rms(),
                          e.overflows, e.vanished);
    }
    return text;
  }

  fs::path path_;
  io::WeightFiles files_;
  Losses all_;
  std::uint64_t values_ = 0;
  std::string text_;
  nlohmann::json json_ = {{"tensors", nlohmann::json::array()}};
};

}  // namespace

Inspection inspect(const std::filesystem::path& path) {
  return Inspector(path).run();
}

}  // namespace mantissa::api
