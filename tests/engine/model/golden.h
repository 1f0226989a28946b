// Traces of model directories in the form of the golden files (tools/golden_trace.py,
// tools/golden_families.py).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "engine/runtime/program.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/expert_tensors.h"

namespace mantissa::testing {

/// By name: logits, log_probs, loss, and kSamples elements of each "grad.<weight>".
using Trace = std::map<std::string, std::vector<double>>;

inline constexpr std::size_t kSamples = 32;  // of each gradient: element floor(i · size / 32)

inline const std::filesystem::path kGolden = std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/golden";

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

inline std::vector<double> read_tensor(const io::WeightFiles& files, std::string_view name) {
  std::vector<double> v(static_cast<std::size_t>(files.find(name)->count()));
  files.read_f64(name, v);
  return v;
}

/// Reads a parameter, of experts from their tensors.
inline std::vector<double> read_parameter(const io::WeightFiles& files, const std::string& name) {
  if (files.find(name) != nullptr) return read_tensor(files, name);
  std::vector<double> all;
  for (std::int64_t e = 0; files.find(io::expert_tensor(name, e)) != nullptr; ++e) {
    const std::vector<double> values = read_tensor(files, io::expert_tensor(name, e));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// Rows of equal length with their labels; −100 is ignored.
struct GoldenTokens {
  std::vector<std::int64_t> ids, labels;
  std::int64_t rows = 0, length = 0;

  explicit GoldenTokens(const std::filesystem::path& path) {
    const io::WeightFiles files(path);
    rows = files.find("input_ids")->shape.at(0);
    length = files.find("input_ids")->shape.at(1);
    for (const auto& [name, values] : {std::pair{"input_ids", &ids}, std::pair{"labels", &labels}}) {
      values->resize(static_cast<std::size_t>(rows * length));
      files.read(name, std::as_writable_bytes(std::span(*values)));
    }
  }
  /// Returns true if the label after token `t` counts.
  bool asks(std::size_t t) const { return !is_last(t) && labels[t + 1] >= 0; }
  bool is_last(std::size_t t) const { return static_cast<std::int64_t>(t + 1) % length == 0; }
};

inline void load_masters(Compiled& c, const std::filesystem::path& directory) {
  const io::WeightFiles weights(directory);
  for (std::size_t s = 0; s < c.program.slots.size(); ++s) {
    const std::vector<double> values = read_parameter(weights, c.program.slots[s].name);
    ASSERT_EQ(values.size(), c.count(s)) << c.program.slots[s].name;
    const Matrix master = c.weights.master(s);
    store_row(values.data(), values.size(), master.data, master.type, 0);
  }
  c.refresh_copies();
}

/// Computes the results of `mantissa trace --grads` for the model of a directory.
inline Trace trace(const std::filesystem::path& directory, const char* policy, const GoldenTokens& tokens) {
  const model::ModelConfig config =
      model::parse_model_config(read_json(directory / "config.json"), "config.json");
  const Segments rows(std::vector<std::int64_t>(static_cast<std::size_t>(tokens.rows), tokens.length));
  Compiled c(model::build_logits(config, rows.tokens, tokens.length, true), precision::Policy::parse(policy),
             options_for(rows));
  load_masters(c, directory);
  const std::size_t count = tokens.ids.size();
  double asked = 0;
  for (std::size_t t = 0; t < count; ++t) asked += tokens.asks(t) ? 1 : 0;
  const plan::BufferId seed = c.program.find("dlog_prob");
  for (std::size_t t = 0; t < count; ++t) {
    c.integers("ids")[t] = static_cast<std::int32_t>(tokens.ids[t]);
    c.integers("targets")[t] = tokens.is_last(t) ? -1 : static_cast<std::int32_t>(tokens.ids[t + 1]);
    c.set(seed, t, tokens.asks(t) ? -1 / asked : 0);
  }
  train_step(c, rows.extent());

  Trace out;
  out["logits"] = c.values("logits", count * static_cast<std::size_t>(config.vocab_size));
  const std::vector<double> log_prob = c.values("log_prob", count);
  out["loss"] = {0};
  for (std::size_t t = 0; t < count; ++t) {
    if (!tokens.is_last(t)) out["log_probs"].push_back(log_prob[t]);
    if (tokens.asks(t)) out["loss"][0] -= log_prob[t] / asked;
  }
  for (std::size_t s = 0; s < c.program.slots.size(); ++s) {
    const std::vector<double> all = c.values(c.program.slots[s].gradient, c.count(s));
    std::vector<double>& sampled = out["grad." + c.program.slots[s].name];
    const std::size_t n = std::min(kSamples, all.size());
    for (std::size_t i = 0; i < n; ++i) sampled.push_back(all[i * all.size() / n]);
  }
  return out;
}

/// Compares each tensor of the golden file with ours, within tolerance(name, largest).
template <class F>
void expect_golden(const std::filesystem::path& file, const Trace& ours, F tolerance) {
  const io::WeightFiles golden(file);
  EXPECT_EQ(golden.tensors().size(), ours.size());
  EXPECT_GT(ours.size(), 10U) << "results and a gradient of each weight";
  for (const io::TensorInfo& info : golden.tensors()) {
    ASSERT_TRUE(ours.contains(info.name)) << info.name;
    const std::vector<double> want = read_tensor(golden, info.name);
    const std::vector<double>& got = ours.at(info.name);
    ASSERT_EQ(got.size(), want.size()) << info.name;
    double largest = 0, distance = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(std::isfinite(got[i]) && std::isfinite(want[i]))
          << info.name << ' ' << i;  // max() drops NaN
      largest = std::max(largest, std::abs(want[i]));
      distance = std::max(distance, std::abs(got[i] - want[i]));
    }
    EXPECT_LE(distance, tolerance(info.name, largest)) << info.name << " of " << file;
  }
}

}  // namespace mantissa::testing
