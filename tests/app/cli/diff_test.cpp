// mantissa diff: exit codes, and the first difference between runs, states, models and traces.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/cli/run_program.h"
#include "mantissa/core/base/words.h"
#include "mantissa/files/io/checkpoint.h"

namespace mantissa::testing {
namespace {

namespace fs = std::filesystem;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// Rewrites the file with element `index` of tensor `name`, of f32, changed in its last place.
void flip_last_bit(const fs::path& file, const std::string& name, std::uint64_t index) {
  std::uint64_t header = 0;
  const io::WeightFiles files(file);
  std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
  f.read(reinterpret_cast<char*>(&header), sizeof header);
  const auto at = static_cast<std::streamoff>(8 + header + files.find(name)->begin + index * 4);
  f.seekg(at);
  const int byte = f.get();
  f.seekp(at);
  f.put(static_cast<char>(byte ^ 1));
}

/// Trains the run `name` for four steps, with a state after every second.
void train_run(const TemporaryFolder& folder, const std::string& name, const std::string& options = "") {
  write(folder / "run.toml", tiny_config(4, "32-true"));
  const Result r =
      mantissa(folder, "train run.toml --quiet --set checkpoint.interval=2 --out " + name + " " + options);
  ASSERT_EQ(r.code, 0) << r.err;
}

void copy(const TemporaryFolder& folder, const std::string& from, const std::string& to) {
  fs::remove_all(folder / to);
  fs::copy(folder / from, folder / to, fs::copy_options::recursive);
}

nlohmann::json difference(const TemporaryFolder& folder, const std::string& arguments) {
  const Result r = mantissa(folder, "diff --json " + arguments);
  EXPECT_EQ(r.code, 1) << arguments << "\n" << r.out << r.err;
  return nlohmann::json::parse(r.out);
}

void expect_screen(const std::string& text) {
  std::istringstream lines(text);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(width_of(line), 80U) << line;
  EXPECT_LE(count, 32U) << text;
}

TEST(Diff, OfEqualRunsIsZeroForAnyThreadsAndInstructions) {
  const TemporaryFolder folder;
  train_run(folder, "a");
  train_run(folder, "b", "--threads 3 --simd avx2 --set batch.micro_batch_size=4");
  for (const char* options : {"", "--bitwise", "--json"}) {
    const Result r = mantissa(folder, std::string("diff a b ") + options);
    EXPECT_EQ(r.code, 0) << r.out << r.err;
  }
  EXPECT_EQ(mantissa(folder, "diff a/model b --bitwise").code, 0) << "the model of a run";
  EXPECT_EQ(mantissa(folder, "diff a/state/step-00000002 b --bitwise").code, 0)
      << "the state of the same step";
  EXPECT_EQ(mantissa(folder, "diff a/state/step-00000004 b/model").code, 0)
      << "masters against a model in f32";
}

TEST(Diff, NamesTheFirstStepThatDiffers) {
  const TemporaryFolder folder;
  train_run(folder, "a");
  copy(folder, "a", "b");
  const std::string metrics = read_all(folder / "a/metrics.jsonl");
  write(folder / "b/metrics.jsonl", replaced(metrics, "{\"step\":3,\"loss\":", "{\"step\":3,\"loss\":1"));
  const Result r = mantissa(folder, "diff a b");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.out, "different: the first step that differs is 3: loss 5.")) << r.out;
  expect_screen(r.out);
  const nlohmann::json json = difference(folder, "a b");
  EXPECT_EQ(json["metrics"]["last_equal"], 2);
  EXPECT_EQ(json["metrics"]["different"], 1);
  EXPECT_EQ(json["states"]["equal"], nlohmann::json({2, 4}));
}

TEST(Diff, NamesTheStepsBetweenTheLastEqualStateAndTheFirstThatDiffers) {
  const TemporaryFolder folder;
  train_run(folder, "a");
  copy(folder, "a", "b");
  const std::string master = "master.model.layers.0.mlp.up_proj.weight";
  flip_last_bit(folder / "b/state/step-00000004/state.safetensors", master, 16 * 3 + 5);
  const Result r = mantissa(folder, "diff a b");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.out, "the difference arose in steps 3–4")) << r.out;
  expect_screen(r.out);
  const nlohmann::json state = difference(folder, "a b")["states"]["first_different"];
  const nlohmann::json tensor = state["tensors"]["list"].at(0);
  EXPECT_EQ(tensor["name"], master);
  EXPECT_EQ(tensor["first"]["index"], nlohmann::json({3, 5}));
  EXPECT_EQ(tensor["max_ulp"], 1.0);
  EXPECT_EQ(tensor["unit"], "f32");
  EXPECT_EQ(mantissa(folder, "diff a/state/step-00000004 b --bitwise").out,
            "different: the first tensor that differs is " + master + ": 1 of 384 values\n");
}

TEST(Diff, FindsAKeyOfAConfigEvenIfNoResultDiffers) {
  const TemporaryFolder folder;
  train_run(folder, "a");
  copy(folder, "a", "b");
  write(folder / "b/config.toml",
        replaced(read_all(folder / "a/config.toml"), "max_grad_norm = 1.0", "max_grad_norm = 9.0"));
  const Result r = mantissa(folder, "diff a b --quiet");
  EXPECT_EQ(r.code, 1);
  EXPECT_EQ(r.out, "different: the configs differ: optimizer.max_grad_norm 1.0 → 9.0\n");
}

TEST(Diff, ComparesModelsTensorByTensor) {
  const TemporaryFolder folder;
  train_run(folder, "a");
  copy(folder, "a", "b");
  flip_last_bit(folder / "b/model/model.safetensors", "model.norm.weight", 2);
  EXPECT_EQ(mantissa(folder, "diff a b --quiet").out,
            "different: the models: the first tensor that differs is model.norm.weight: 1 of 16 values, at "
            "most 1 ulp of f32\n");
  ASSERT_EQ(mantissa(folder, "convert a c --dtype bf16").code, 0);
  const nlohmann::json json = difference(folder, "a c");
  EXPECT_EQ(json["a"]["kind"], "checkpoint");
  const nlohmann::json tensor = json["tensors"]["list"].at(0);
  EXPECT_EQ(tensor["dtype"], nlohmann::json({"F32", "BF16"}));
  EXPECT_EQ(tensor["unit"], "bf16");
  EXPECT_LE(tensor["max_ulp"].get<double>(), 0.5);
  fs::remove_all(folder / "b/model");
  EXPECT_TRUE(has(mantissa(folder, "diff a b").out, "different: only A has a model"));
  EXPECT_EQ(mantissa(folder, "diff b/state/step-00000004 b").code, 0);
}

TEST(Diff, NamesTheFirstOpOfTracesUnderTwoPolicies) {
  const TemporaryFolder folder;
  train_run(folder, "a");
  write_ids(folder);
  const auto trace = [&](const std::string& out, const std::string& options) {
    ASSERT_EQ(mantissa(folder, "trace a --tokens ids --grads --values '*' --out " + out + " " + options).code,
              0);
  };
  trace("t1", "");
  trace("t2", "--threads 3 --simd avx2");
  trace("t3", "--precision bf16-mixed");
  trace("t4", "--rule '*.mlp.up_proj: compute=bf16'");
  EXPECT_EQ(mantissa(folder, "diff t1 t2 --bitwise").code, 0);
  const nlohmann::json mixed = difference(folder, "t1 t3");
  EXPECT_EQ(mixed["first_op"]["op"], "rmsnorm");
  EXPECT_EQ(mixed["tensors"]["list"].at(0)["unit"], "bf16");
  EXPECT_LE(mixed["tensors"]["list"].at(0)["max_ulp"].get<double>(), 0.5);
  const Result ruled = mantissa(folder, "diff t1 t4");
  EXPECT_EQ(ruled.code, 1);
  EXPECT_TRUE(has(ruled.out, "the first op that differs is model.layers.0.mlp.up_proj matmul:")) << ruled.out;
  expect_screen(ruled.out);
  trace("t5", "--unconverted 'value.*'");
  EXPECT_EQ(mantissa(folder, "diff t1 t5").code, 0);
}

TEST(Diff, DistinguishesRoundingAndAFaultOfTracesByItsExitCode) {
  const TemporaryFolder folder;
  train_run(folder, "a");
  write_ids(folder);
  const auto trace = [&](const std::string& out, const std::string& options) {
    ASSERT_EQ(mantissa(folder, "trace a --tokens ids --grads --values '*' --out " + out + " " + options).code,
              0);
  };
  trace("t1", "");
  trace("t2", "--rule '*: op=rmsnorm compute=bf16'");
  const Result rounding = mantissa(folder, "diff t1 t2 --quiet");
  EXPECT_EQ(rounding.code, 1) << rounding.out;
  const std::size_t formats = rounding.out.find(
      "\nformats differ at 6 of 76 tensors, first at model.layers.0.input_layernorm rmsnorm: A is f32 and B "
      "is bf16\n");
  const std::size_t explained = rounding.out.find("\nrounding explains every difference of the forward pass");
  EXPECT_NE(formats, std::string::npos) << rounding.out;
  EXPECT_NE(explained, std::string::npos) << rounding.out;
  EXPECT_LT(formats, explained) << rounding.out;
  EXPECT_TRUE(has(rounding.out, "\ngradients: rounding explains all ")) << rounding.out;
  // A fault in one gradient, far above its rounding.
  fs::copy_file(folder / "t1", folder / "t3");
  std::uint64_t header = 0;
  const io::WeightFiles files(folder / "t3");
  std::fstream f(folder / "t3", std::ios::in | std::ios::out | std::ios::binary);
  f.read(reinterpret_cast<char*>(&header), sizeof header);
  f.seekp(static_cast<std::streamoff>(8 + header + files.find("grad.model.norm.weight")->begin));
  const float wrong = 3;
  f.write(reinterpret_cast<const char*>(&wrong), sizeof wrong);
  f.close();
  const Result fault = mantissa(folder, "diff t1 t3 --quiet");
  EXPECT_EQ(fault.code, 3) << fault.out;
  EXPECT_TRUE(has(fault.out, "gradients beyond rounding: 1 of 1 that differ; the first is model.norm.weight"))
      << fault.out;
  EXPECT_EQ(mantissa(folder, "diff t1 t3 --bitwise").code, 1);
}

TEST(Diff, OfWhatCannotBeComparedIsExitCodeTwoWithAFix) {
  const TemporaryFolder folder;
  train_run(folder, "a");
  write_ids(folder);
  ASSERT_EQ(mantissa(folder, "trace a --tokens ids --out t").code, 0);
  write(folder / "text.safetensors", "no tensors");
  copy(folder, "a", "b");
  write(folder / "b/metrics.jsonl", "{\"step\":1\n{}\n");
  copy(folder, "a", "c");
  fs::resize_file(folder / "c/model/model.safetensors", 1000);
  copy(folder, "a", "d");
  write(folder / "d/state/step-00000002/state.json", "{}");
  for (const char* arguments :
       {"a nowhere", "a t", "t a", "a text.safetensors", "run.toml a", "a/metrics.jsonl a", "a b", "a c",
        "a d", "a", "a a --limit 0", "a a > /dev/full"}) {
    const Result r =
        shell(folder, "{ " MANTISSA_BINARY_DIR "/mantissa diff " + std::string(arguments) + "; }");
    EXPECT_EQ(r.code, 2) << arguments << "\n" << r.out;
    EXPECT_FALSE(r.err.empty()) << arguments;
  }
}

}  // namespace
}  // namespace mantissa::testing
