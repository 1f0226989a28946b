// A trained RWKV-7 model as a run, a directory, a .pth and a GGUF file: its states, its narrow layers, and
// what may lie beside it.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "app/cli/run_program.h"

namespace mantissa::testing {
namespace {

using nlohmann::json;

class RwkvFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    write(folder_ / "run.toml",
          "[run]\nsteps = 2\n[model]\nmodel_type = \"rwkv7\"\nhidden_size = 128\nintermediate_size = 128\n"
          "num_hidden_layers = 2\nhead_dim = 64\nvocab_size = 256\n[data]\nsource = \"kk\"\n"
          "sequence_length = 32\nvalidation = 0.05\n[batch]\nglobal_batch_size = 2\n");
    run("train run.toml --out r --precision 32-true --quiet");
    run("convert r/model m.pth");
    run("convert r/model m.gguf");
    write_ids(folder_);
  }

  Result tried(const std::string& arguments) { return mantissa(folder_, arguments); }
  Result run(const std::string& arguments) {
    Result r = tried(arguments);
    EXPECT_EQ(r.code, 0) << arguments << "\n" << r.err;
    return r;
  }
  std::string refusal(const std::string& arguments) {
    const Result r = tried(arguments);
    EXPECT_EQ(r.code, 2) << arguments << "\n" << r.out;
    return r.err;
  }
  json made(const std::string& arguments) {
    return json::parse(run("generate " + arguments + " --json --max-new-tokens 4").out);
  }

  TemporaryFolder folder_;
};

TEST_F(RwkvFiles, OfEveryKindContinueEachOthersStates) {
  const json whole = made("r --prompt 'To be or' --save-state a.state");
  for (const char* model : {"r", "r/model", "m.pth", "m.gguf"}) {
    SCOPED_TRACE(model);
    EXPECT_EQ(made(std::string(model) + " --state a.state --prompt x")["log_probs"],
              made("r --state a.state --prompt x")["log_probs"]);
  }
  run("convert r/model b --dtype bf16");
  EXPECT_TRUE(has(refusal("generate b --state a.state --prompt x"),
                  "the states are of other weights, sizes, adapter or base than this model's"));
  run("convert b b.pth --dtype f32");
  EXPECT_EQ(made("b --prompt x --precision 32-true --save-state b.state")["log_probs"],
            made("b.pth --prompt x --precision 32-true")["log_probs"]);
  made("b.pth --prompt y --precision 32-true --state b.state");  // the same values in another dtype
}

TEST_F(RwkvFiles, OfDecodingThePlanTellsResultsFromStates) {
  for (const auto& [policy, result, state] :
       {std::tuple{"bf16-mixed", "bf16", "f32"}, std::tuple{"'32-true state=bf16'", "f32", "bf16"}}) {
    SCOPED_TRACE(policy);
    const json plan = json::parse(run(std::string("explain r/model --json --precision ") + policy).out);
    int seen = 0;
    for (const json& op : plan["ops"]) {
      if (op["op"] != "recurrence" && op["op"] != "state") continue;
      EXPECT_EQ(op["formats"]["output"], op["op"] == "state" ? state : result) << op;
      ++seen;
    }
    EXPECT_EQ(seen, 4);  // of two layers
  }
}

/// A GGUF file does not keep the magnitudes from which a model's scales begin.
TEST_F(RwkvFiles, StatesUnderScalesBelongToTheirHistories) {
  run("train run.toml --out r8 --precision fp8-hybrid --quiet");
  run("convert r8/model m8.pth");
  run("convert r8/model m8.gguf");
  made("r8 --prompt a --save-state plain.state --precision 32-true");
  made("m8.gguf --prompt x --state plain.state --precision 32-true");
  made("r8 --prompt a --save-state scaled.state --precision fp8-hybrid");
  made("m8.pth --prompt x --state scaled.state --precision fp8-hybrid");
  EXPECT_TRUE(has(refusal("generate m8.gguf --prompt x --state scaled.state --precision fp8-hybrid"),
                  "the states are of other weights, sizes"));
}

TEST_F(RwkvFiles, StatesWithValuesThatAreNotFiniteAreRefusedByName) {
  made("m.pth --prompt a --save-state nan.state");
  const io::SafetensorsReader file(folder_ / "nan.state");
  const io::TensorInfo& state = *file.find("model.layers.1.attn.state");
  const std::string bytes = read_all(folder_ / "nan.state");
  std::string changed = bytes;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&changed[bytes.size() - file.tensors().back().end + state.begin + 5 * sizeof(nan)], &nan,
              sizeof(nan));
  write(folder_ / "nan.state", changed);
  EXPECT_TRUE(
      has(refusal("generate m.pth --state nan.state --prompt x"),
          "nan.state: expected finite values, got nan at element 5 of \"model.layers.1.attn.state\" [8192]"));
}

TEST_F(RwkvFiles, RowsThatHoldNoBlockOfNf4KeepTheirFormat) {
  const std::string narrow =
      "note: 5 weights keep the policy's formats, because nf4 needs rows of a multiple of 64 elements: "
      "model.layers.*.attn.w_lora.lora.2, model.layers.*.attn.a_lora.lora.2, model.layers.*.attn.v_lora.lora.2";
  const Result r = run("generate m.pth --prompt a --max-new-tokens 3 --base nf4");
  EXPECT_TRUE(has(r.err, narrow)) << r.err;
  const Result wide = run("generate m.pth --prompt a --max-new-tokens 3 --base int8");
  EXPECT_FALSE(has(wide.err, "keep the policy's formats")) << wide.err;

  write(
      folder_ / "lora.toml",
      "[run]\nsteps = 1\n[model]\npath = \"r/model\"\n[data]\nsource = \"kk\"\ntokenizer = \"byte\"\n"
      "sequence_length = 32\n[batch]\nglobal_batch_size = 2\n[adapter]\nkind = \"lora\"\nrank = 2\ntarget = \"*\"\nbase = \"nf4\"\n");
  const Result plan = run("explain lora.toml --precision 32-true");
  EXPECT_TRUE(has(plan.out, "keep the policy's formats, because nf4 needs rows of a multiple of 64"))
      << plan.out;
  const Result train = run("train lora.toml --out l --precision 32-true");
  EXPECT_TRUE(has(train.out + train.err, "keep the policy's formats")) << train.out;
  const Result merge = run("merge r/model l merged");
  EXPECT_TRUE(has(merge.out, "keep the policy's formats")) << merge.out;
  // The merged model is the trained one: only narrow weights have the values of the base.
  const json trained = made("l --prompt abc --precision 32-true"),
             merged = made("merged --prompt abc --precision 32-true");
  ASSERT_EQ(trained["ids"], merged["ids"]);
  for (std::size_t i = 0; i < trained["ids"].size(); ++i)
    EXPECT_NEAR(trained["log_probs"][i].get<double>(), merged["log_probs"][i].get<double>(), 1e-4);
}

TEST_F(RwkvFiles, TheRoundingOfAPolicyAppliesToItsStates) {
  const auto state = [&](const std::string& policy, const std::string& rule) {
    made("m.pth --prompt 'To be or not to be' --precision '" + policy + "' --rule '" + rule +
         "' --save-state s.state");
    const io::SafetensorsReader file(folder_ / "s.state");
    const io::TensorInfo& t = *file.find("model.layers.0.attn.state");
    std::vector<std::byte> bytes(t.end - t.begin);
    file.read(t, bytes);
    return bytes;
  };
  const std::vector<std::byte> line = state("32-true state=bf16 rounding=stochastic", "*: compute=f32");
  EXPECT_TRUE(line == state("32-true",
                            R"({match = "*", op = "recurrence", state = "bf16", rounding = "stochastic"})"));
  EXPECT_FALSE(line == state("32-true state=bf16", "*: compute=f32"));
  const std::string other =
      refusal(R"(generate m.pth --prompt a --rule '{match = "*.attn", op = "state", compute = "bf16"}')");
  EXPECT_TRUE(has(other, "expected the field state for the states of recurrences. Fix: *.attn: state=bf16"))
      << other;
}

TEST_F(RwkvFiles, ATraceBesideTheWeightsIsNotTakenForThem) {
  std::filesystem::create_directory(folder_ / "d");
  std::filesystem::copy(folder_ / "m.pth", folder_ / "d/m.pth");
  for (const char* model : {"d/m.pth", "d"}) {
    for (int i = 0; i < 2; ++i) run(std::string("trace ") + model + " --tokens ids --out d/t.safetensors");
    for (int i = 0; i < 2; ++i) made(std::string(model) + " --prompt a --save-state d/s.safetensors");
  }
  std::filesystem::copy(folder_ / "r/model/config.json", folder_ / "d/config.json");
  std::filesystem::remove(folder_ / "d/m.pth");
  std::filesystem::copy(folder_ / "r/model/model.safetensors", folder_ / "d/weights.safetensors");
  for (int i = 0; i < 2; ++i) run("trace d --tokens ids --out d/t.safetensors");
  EXPECT_EQ(made("d --prompt a")["ids"], made("r --prompt a")["ids"]);
}

TEST_F(RwkvFiles, ADirectoryOfOneCheckpointIsItsModel) {
  std::filesystem::create_directory(folder_ / "one");
  std::filesystem::copy(folder_ / "m.pth", folder_ / "one/rwkv-0.pth");
  EXPECT_EQ(made("one --prompt a")["log_probs"], made("m.pth --prompt a")["log_probs"]);
  run("convert one converted");
  run("diff converted r/model");
  std::filesystem::copy(folder_ / "m.pth", folder_ / "one/rwkv-1.pth");
  EXPECT_TRUE(
      has(refusal("generate one --prompt a"),
          "one: expected one .pth file, got 2: rwkv-0.pth, …, rwkv-1.pth. Fix: give the path of one, such as "
          "one/rwkv-1.pth"));
}

TEST_F(RwkvFiles, ACheckpointAndItsDirectoryHaveNoDifference) {
  const Result same = run("diff m.pth r/model");
  EXPECT_TRUE(has(same.out, "equal")) << same.out;
  run("diff r/model m.pth --bitwise");
  run("convert r/model bf.pth --dtype bf16");
  const Result rounded = tried("diff bf.pth r/model");
  EXPECT_EQ(rounded.code, 1);
  EXPECT_TRUE(has(rounded.out, "model.layers.0.attn_norm.weight  BF16")) << rounded.out;
}

TEST_F(RwkvFiles, DtypesThatNoReaderOfCheckpointsAcceptsAreNotWritten) {
  for (const char* in : {"m.pth", "r/model", "m.gguf"}) {
    for (const char* dtype : {"e4m3", "e5m2", "f64"}) {
      const std::string told = refusal(std::string("convert ") + in + " x.pth --dtype " + dtype);
      EXPECT_TRUE(has(
          told, std::string("--dtype ") + dtype + ": expected f32, bf16 or f16 for a checkpoint of RWKV-LM"))
          << told;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x.pth"));
  run("convert m.pth narrow --dtype e4m3");
  made("narrow --prompt a");
}

TEST_F(RwkvFiles, AnAnswerOfGenerateEndsBeforeTheNextMessage) {
  std::string talk;
  for (int i = 0; i < 400; ++i) talk += "User: hi\n\nAssistant: yes\n\n";
  write(folder_ / "talk.txt", talk);
  write(folder_ / "talk.toml",
        "[run]\nsteps = 60\n[model]\nmodel_type = \"rwkv7\"\nhidden_size = 64\nintermediate_size = 128\n"
        "num_hidden_layers = 1\nhead_dim = 64\nvocab_size = 256\n[data]\nsource = \"talk.txt\"\n"
        "tokenizer = \"byte\"\nsequence_length = 64\nvalidation = 0.05\n[batch]\nglobal_batch_size = 4\n"
        "[optimizer]\nlr = 0.01\n");
  run("train talk.toml --out talk --precision 32-true --quiet");
  write(folder_ / "question", "User: hi\n\nAssistant:");
  write(folder_ / "sentence", "User: hi\n\nAssistant: ye");
  const auto answer = [&](const std::string& file) {
    return json::parse(
        run("generate talk --prompt-file " + file + " --max-new-tokens 30 --temperature 0 --json").out);
  };
  EXPECT_EQ(answer("question")["text"], " yes");
  EXPECT_LT(answer("question")["ids"].size(), 30U);
  EXPECT_EQ(answer("sentence")["text"], "s\n\nUser: hi\n\nAssistant: yes\n\nU") << "a text, not a turn";
}

}  // namespace
}  // namespace mantissa::testing
