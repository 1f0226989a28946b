// State tuning: adapters that are the initial states of an RWKV-7's recurrences, in every command.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/cli/run_program.h"

namespace mantissa {
namespace {

using nlohmann::json;
using testing::has;
using testing::mantissa;
using testing::read_all;
using testing::Result;
using testing::write;

class InitialState : public ::testing::Test {
 protected:
  void SetUp() override {
    write(folder / "base.toml",
          "[run]\nsteps = 2\n[model]\nmodel_type = \"rwkv7\"\nhidden_size = 32\nhead_dim = 16\n"
          "num_hidden_layers = 2\nvocab_size = 256\n[data]\nsource = \"kk\"\nsequence_length = 32\n"
          "[batch]\nglobal_batch_size = 4\n");
    ASSERT_EQ(mantissa(folder, "train base.toml --out b --quiet").code, 0) << read_all(folder / "err");
    put_run("");
  }

  void put_run(const std::string& more, const std::string& policy = "32-true") {
    write(folder / "run.toml",
          "[run]\nsteps = 4\n[model]\npath = \"b/model\"\n[data]\nsource = \"kk\"\ntokenizer = \"byte\"\n"
          "sequence_length = 32\nvalidation = 0.05\n[batch]\nglobal_batch_size = 4\nmicro_batch_size = 2\n"
          "[optimizer]\nlr = 1e-1\n[schedule]\nwarmup_steps = 1\n[checkpoint]\ninterval = 2\nkeep = 9\n"
          "[precision]\npolicy = \"" +
              policy + "\"\n[adapter]\nkind = \"state\"\n" + more);
  }
  Result train(const std::string& out, const std::string& options = "") {
    const Result r = mantissa(folder, "train run.toml --quiet --out " + out + " " + options);
    EXPECT_EQ(r.code, 0) << r.err;
    return r;
  }
  std::string weights(const std::string& run) {
    return read_all(folder / (run + "/adapter/adapter_model.safetensors"));
  }
  json generated(const std::string& model) {
    const Result r = mantissa(folder, "generate " + model + " --prompt Alice --max-new-tokens 8 --json");
    EXPECT_EQ(r.code, 0) << r.err;
    return json::parse(r.out)["log_probs"];
  }
  double loss(const std::string& model) {
    const Result r = mantissa(folder, "eval " + model + " --data t.txt --sequence-length 16 --json");
    EXPECT_EQ(r.code, 0) << r.err;
    return json::parse(r.out)["loss"].get<double>();
  }
  std::string refusal(const std::string& arguments) {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    return r.err;
  }

  testing::TemporaryFolder folder;
};

TEST_F(InitialState, IsUsedByEveryCommandThatReadsAnAdapter) {
  train("r");
  write(folder / "t.txt", std::string(400, 'a') + "A line of forty characters, or so it seems.\n");
  const json base = generated("b/model"), tuned = generated("b/model --adapter r");
  EXPECT_NE(tuned, base);
  EXPECT_EQ(generated("r"), tuned);
  EXPECT_EQ(generated("r/state/step-00000004"), tuned);
  EXPECT_NE(loss("r"), loss("b/model"));
  EXPECT_EQ(loss("r"), loss("b/model --adapter r/adapter"));
  const Result chat = mantissa(folder, "chat r --max-new-tokens 1 --template chatml < t.txt");
  EXPECT_EQ(chat.code, 0) << chat.err;
  const json plan = json::parse(mantissa(folder, "explain run.toml --json").out);
  EXPECT_EQ(plan["adapter"]["kind"], "state");
  EXPECT_EQ(plan["adapter"]["parameters"], 2 * 2 * 16 * 16);
  EXPECT_TRUE(
      has(mantissa(folder, "explain run.toml").out, "adapter of the initial states of 2 recurrences"));
}

TEST_F(InitialState, HasOneHashForMicroBatchesThreadsAndResumes) {
  for (const std::string policy : {"32-true", "bf16-mixed", "bf16-true", "bf16-mixed state=bf16"}) {
    put_run("", policy);
    train("a", "--overwrite");
    const std::string whole = weights("a");
    EXPECT_FALSE(whole.empty());
    train("a", "--resume=2");
    EXPECT_TRUE(weights("a") == whole) << policy;
    train("c", "--overwrite --set run.threads=1 --set batch.micro_batch_size=4 --set batch.recompute=block");
    EXPECT_TRUE(weights("c") == whole) << policy;
  }
}

TEST_F(InitialState, BeginsAsTheBaseAndContinuesFromAnAdapter) {
  train("zero", "--set run.steps=1 --set schedule.warmup_steps=0 --set optimizer.lr=1e-30");
  EXPECT_EQ(generated("zero"), generated("b/model"));
  train("r");
  put_run("path = \"r/adapter\"\n");
  train("more", "--set run.steps=1 --set schedule.warmup_steps=0 --set optimizer.lr=1e-30");
  EXPECT_EQ(generated("more"), generated("r"));
}

/// RWKV-PEFT's file has the value channels first.
TEST_F(InitialState, BecomesAFileOfRwkvPeftAndBack) {
  train("r");
  const Result converted = mantissa(folder, "convert r states.pth");
  ASSERT_EQ(converted.code, 0) << converted.err;
  const json inspected = json::parse(mantissa(folder, "inspect states.pth --json").out);
  EXPECT_TRUE(has(inspected.dump(), "blocks.0.att.time_state")) << inspected.dump();
  EXPECT_TRUE(has(inspected.dump(), "[2,16,16]")) << inspected.dump();
  EXPECT_EQ(generated("b/model --adapter states.pth"), generated("r"));
  put_run("path = \"states.pth\"\n");
  train("more", "--set run.steps=1 --set schedule.warmup_steps=0 --set optimizer.lr=1e-30");
  EXPECT_EQ(generated("more"), generated("r"));
  ASSERT_EQ(mantissa(folder, "convert more again.pth").code, 0);
  const auto values = [&](const std::string& file) {
    return json::parse(mantissa(folder, "inspect " + file + " --json").out)["tensors"].dump();
  };
  EXPECT_EQ(values("again.pth"), values("states.pth"));
}

TEST_F(InitialState, IsRefusedWhereItDoesNotFit) {
  train("r");
  EXPECT_TRUE(has(
      refusal("merge b/model r m"),
      "expected an adapter of linear layers, got initial states of recurrences, which no weight can hold. "
      "Fix: use them beside the model with --adapter, or write RWKV-PEFT's file: mantissa convert r "
      "STATES.pth"));
  EXPECT_TRUE(has(refusal("convert r x.gguf"), "mantissa convert r STATES.pth"));
  put_run("rank = 4\n");
  EXPECT_TRUE(has(refusal("train run.toml --out x"), "trains the initial states of all recurrences"));
  put_run("");
  EXPECT_EQ(mantissa(folder,
                     "train run.toml --quiet --out y --set model.path=b/model --set adapter.kind=lora "
                     "--set 'adapter.target=[\"*.r_proj\"]'")
                .code,
            0);
  put_run("path = \"y/adapter\"\n");
  EXPECT_TRUE(has(refusal("train run.toml --out x"), "Fix: set adapter.kind = \"lora\""));
  write(folder / "llama.toml",
        "[run]\nsteps = 1\n[model]\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 1\n"
        "num_attention_heads = 2\nvocab_size = 256\n[data]\nsource = \"kk\"\nsequence_length = 32\n");
  ASSERT_EQ(mantissa(folder, "train llama.toml --quiet --out l").code, 0);
  put_run("");
  EXPECT_TRUE(has(refusal("train run.toml --out x --set model.path=l/model"),
                  "adapter.kind = \"state\": expected a model with recurrences, such as rwkv7"));
  EXPECT_TRUE(has(refusal("generate l/model --adapter r --prompt a"), "and this llama model has none"));
  ASSERT_EQ(mantissa(folder, "convert r states.pth").code, 0);
  EXPECT_TRUE(
      has(refusal("generate l/model --adapter states.pth --prompt a"), "and this llama model has none"));
  const std::string narrow = " --set model.hidden_size=16";
  ASSERT_EQ(mantissa(folder, "train base.toml --quiet --out n" + narrow).code, 0);
  EXPECT_TRUE(has(refusal("generate n/model --adapter states.pth --prompt a"),
                  "tensor \"blocks.0.att.time_state\": expected [1, 16, 16]"));
  ASSERT_EQ(mantissa(folder, "convert states.pth wide.pth --dtype f64").code, 0);
  EXPECT_TRUE(has(refusal("generate b/model --adapter wide.pth --prompt a"),
                  "expected F32, BF16 or F16, got F64. Fix: save the states in f32 or bf16"));
}

}  // namespace
}  // namespace mantissa
