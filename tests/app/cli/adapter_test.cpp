// Runs that train an adapter.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "app/cli/adapter_run.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa {
namespace {

using testing::Adapter;
using testing::has;
using testing::mantissa;
using testing::read_all;
using testing::Result;
using testing::timeless;
using testing::write;

TEST_F(Adapter, ARunWritesItAsAPeftDirectoryInsteadOfAModel) {
  ASSERT_EQ(train("r").code, 0) << read_all(folder / "err");
  EXPECT_FALSE(std::filesystem::exists(folder / "r/model"));
  const auto config = nlohmann::json::parse(read_all(folder / "r/adapter/adapter_config.json"));
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["target_modules"], nlohmann::json({"q_proj", "v_proj"}));
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["lora_alpha"], 6);
  EXPECT_EQ(config["base_model_name_or_path"], (folder / "b/model").string());
  const io::SafetensorsReader file(folder / "r/adapter/adapter_model.safetensors");
  ASSERT_EQ(file.tensors().size(), 8U) << "A and B of two projections of two layers";
  const io::TensorInfo* b = file.find("base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::vector<std::int64_t>{16, 4}));
}

TEST_F(Adapter, AStateHoldsNothingOfTheFrozenWeights) {
  ASSERT_EQ(train("r").code, 0);
  const io::SafetensorsReader state(folder / "r/state/step-00000004/state.safetensors");
  std::size_t masters = 0;
  for (const io::TensorInfo& t : state.tensors()) {
    EXPECT_TRUE(has(t.name, ".lora_")) << t.name;
    masters += t.name.starts_with("master.") ? 1 : 0;
  }
  EXPECT_EQ(masters, 8U);
  EXPECT_EQ(state.tensors().size(), 3 * masters) << "a master and two moments of each";
}

/// The file of the weights before training refers to the base.
TEST_F(Adapter, TheStartOfARunHoldsOnlyWhatIsTrained) {
  for (const std::string base : {"params", "int8"}) {
    put_run("base = \"" + base + "\"\n");
    ASSERT_EQ(train("r", "--overwrite --set log.health_interval=1").code, 0) << read_all(folder / "err");
    const io::SafetensorsReader start(folder / "r/start.safetensors");
    EXPECT_EQ(start.tensors().size(), 8U);
    for (const io::TensorInfo& t : start.tensors()) EXPECT_TRUE(has(t.name, ".lora_")) << t.name;
    EXPECT_EQ(start.metadata().at("mantissa.base"), (folder / "b/model").string());
    EXPECT_EQ(start.metadata().at("mantissa.fixed_xxh64").size(), 16U);
    EXPECT_EQ(start.metadata().contains("mantissa.frozen_xxh64"), base == "int8");
    std::istringstream lines(read_all(folder / "r/health.jsonl"));
    std::string line;
    std::getline(lines, line);
    for (const auto& [name, health] : nlohmann::json::parse(line)["health"].items())
      EXPECT_TRUE(health.contains("never_moved")) << name;
  }
  ASSERT_EQ(mantissa(folder, "audit r --steps 2 --no-cures").code, 0) << read_all(folder / "err");
}

TEST_F(Adapter, ABaseThatMovedOrChangedIsAnErrorThatNamesIt) {
  ASSERT_EQ(train("r").code, 0) << read_all(folder / "err");
  std::filesystem::rename(folder / "b/model", folder / "moved");
  EXPECT_TRUE(has(refusal("train run.toml --out r --resume=2"),
                  "b/model, which does not exist. Fix: put the model there, or give its place with --set "
                  "model.path=PATH"));
  EXPECT_EQ(train("r", "--resume=2 --set model.path=moved").code, 0) << read_all(folder / "err");
  std::filesystem::rename(folder / "moved", folder / "b/model");
  EXPECT_EQ(train("r", "--resume=2").code, 0) << read_all(folder / "err");
  // Another base with the same shapes.
  ASSERT_EQ(mantissa(folder, "train base.toml --out c --quiet --set run.seed=2").code, 0);
  std::filesystem::copy(
      folder / "c/model", folder / "b/model",
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(has(refusal("train run.toml --out r --resume=2"), "the model has changed"));
  std::filesystem::remove_all(folder / "r/state");
  const std::string audit = refusal("audit r --steps 1 --no-cures");
  EXPECT_TRUE(has(audit, "r/start.safetensors: expected the frozen weights with which the run began, ") &&
              has(audit, "the base has changed. Fix: restore it, or start over with --overwrite"))
      << audit;
}

TEST_F(Adapter, AResumedRunEndsWithTheSameBytes) {
  for (const std::string settings :
       {"", "dora = true\nbase = \"bf16\"\n", "dora = true\nbase = \"int8\"\n"}) {
    put_run(settings);
    ASSERT_EQ(train("r", "--overwrite --precision bf16-mixed").code, 0) << read_all(folder / "err");
    const std::string whole = weights("r"), metrics = timeless(read_all(folder / "r/metrics.jsonl"));
    ASSERT_EQ(train("r", "--resume=2 --precision bf16-mixed").code, 0) << read_all(folder / "err");
    EXPECT_EQ(weights("r"), whole) << settings;
    EXPECT_EQ(timeless(read_all(folder / "r/metrics.jsonl")), metrics) << settings;
  }
}

TEST_F(Adapter, ThreadsSplitsRecomputationAndInstructionSetsChangeNoBitOfPackedAndPlainRows) {
  const std::string common = " --overwrite --precision bf16-mixed --set run.steps=2 --set data.packing=";
  for (const std::string packing : {"false", "true"}) {
    put_run(packing == "true" ? "target = \"*\"\ndora = true\n" : "target = \"*\"\n");
    ASSERT_EQ(train("r", "--threads 2" + common + packing).code, 0) << read_all(folder / "err");
    const std::string expected = weights("r");
    for (const std::string change :
         {"--threads 1 --set batch.micro_batch_size=1", "--set batch.micro_batch_size=4 --simd avx2",
          "--set batch.recompute=block"}) {
      ASSERT_EQ(train("s", change + common + packing).code, 0) << read_all(folder / "err");
      EXPECT_EQ(weights("s"), expected) << packing << change;
    }
  }
}

/// What stands in the way of the plan stops the run after it has written its config.
TEST_F(Adapter, ARunThatReplacesAnotherMarksTheEarlierModelBeforeItReplacesAFile) {
  std::filesystem::remove(folder / "b/plan.txt");
  std::filesystem::create_directories(folder / "b/plan.txt/in-the-way");
  EXPECT_NE(mantissa(folder, "train base.toml --out b --overwrite --set run.steps=3 --quiet").code, 0);
  EXPECT_TRUE(has(read_all(folder / "b/config.toml"), "steps = 3"));
  EXPECT_TRUE(std::filesystem::exists(folder / "b" / io::kEarlierMark));
}

TEST_F(Adapter, ARunThatReplacesAnotherLeavesNothingOfItThatTheDirectoryWouldStandFor) {
  put_run("");
  const std::string with = read_all(folder / "run.toml");
  const auto train_without = [&] {
    write(folder / "run.toml", with.substr(0, with.find("[adapter]")));
    ASSERT_EQ(train("r", "--overwrite").code, 0) << read_all(folder / "err");
  };
  train_without();
  EXPECT_TRUE(std::filesystem::exists(folder / "r/model"));
  write(folder / "run.toml", with);
  ASSERT_EQ(train("r", "--overwrite").code, 0) << read_all(folder / "err");
  EXPECT_FALSE(std::filesystem::exists(folder / "r/model")) << "generate would use it";
  EXPECT_TRUE(std::filesystem::exists(folder / "r/adapter"));
  train_without();
  EXPECT_FALSE(std::filesystem::exists(folder / "r/adapter"));
}

TEST_F(Adapter, AnotherRunContinuesIt) {
  put_run("target = [\"*.q_proj\", \"*.down_proj\"]\nrslora = true\n");
  ASSERT_EQ(train("r").code, 0);
  const auto config = nlohmann::json::parse(read_all(folder / "r/adapter/adapter_config.json"));
  write(folder / "run.toml",
        "[run]\nsteps = 1\n[model]\npath = \"b/model\"\n[data]\nsource = \"kk\"\ntokenizer = \"byte\"\n"
        "sequence_length = 32\n[batch]\nglobal_batch_size = 4\n[optimizer]\nlr = 1e-30\nweight_decay = 0.0\n"
        "[adapter]\nkind = \"lora\"\npath = \"r/adapter\"\n");
  ASSERT_EQ(train("s").code, 0) << read_all(folder / "err");
  EXPECT_EQ(nlohmann::json::parse(read_all(folder / "s/adapter/adapter_config.json")), config);
  const io::SafetensorsReader before(folder / "r/adapter/adapter_model.safetensors"),
      after(folder / "s/adapter/adapter_model.safetensors");
  for (const io::TensorInfo& t : before.tensors()) {
    std::vector<std::byte> a(t.end - t.begin), b(t.end - t.begin);
    before.read(t, a);
    after.read(*after.find(t.name), b);
    EXPECT_EQ(a, b) << t.name;
  }
  EXPECT_TRUE(has(refusal("train run.toml --out r --overwrite"), "the run would replace adapter.path"));
  EXPECT_TRUE(has(refusal("train run.toml --out t --set adapter.rank=3"), "adapter.path has its own"));
}

TEST_F(Adapter, WrongSettingsAreErrorsThatNameTheCure) {
  const std::string set = "train run.toml --out x --set adapter.";
  EXPECT_TRUE(has(refusal(set + "target=*.q_prj"), "did you mean \"*.q_proj\"?"));
  EXPECT_TRUE(has(refusal(set + "target=lm_head"), "matches no linear layer of this llama model"));
  EXPECT_TRUE(has(refusal(set + "rank=17"), "rank 17 is too large for model.layers.0.self_attn.v_proj"));
  EXPECT_TRUE(has(refusal(set + "rank=0"), "must be"));
  EXPECT_TRUE(has(refusal(set + "base=int4"), "nf4-double"));
  EXPECT_TRUE(has(refusal(set + "base=nf4"), "have 32 elements, and nf4 needs a multiple of 64"));
  EXPECT_TRUE(has(refusal(set + "base=int8 --precision 64-true"), "the policy computes in f64"));
  EXPECT_TRUE(has(refusal(set + "base=int8 --precision fp8-hybrid"), "multiplies it under scales"));
  EXPECT_TRUE(has(refusal("generate b/model --base q8 --prompt a"), "--base \"q8\": must be one of int8"));
  EXPECT_TRUE(has(refusal(set + "kind=none"), "set adapter.kind = \"lora\""));
  EXPECT_TRUE(
      has(refusal("train run.toml --out x --set 'model.path=' --set model.config=b/model/config.json"),
          "has no weights to adapt"));
  EXPECT_TRUE(has(refusal("generate b/model --adapter b --prompt a"), "is not an adapter"));
}

TEST_F(Adapter, OnlyItsOwnParametersBelongToGroupsAndRulesApplyToIt) {
  put_run("", "[[optimizer.group]]\nmatch = \"*.lora_A\"\nfreeze = true\n");
  ASSERT_EQ(train("r").code, 0) << read_all(folder / "err");
  ASSERT_EQ(train("s", "--set run.seed=1 --set optimizer.lr=1e-3").code, 0);
  const io::SafetensorsReader one(folder / "r/adapter/adapter_model.safetensors"),
      other(folder / "s/adapter/adapter_model.safetensors");
  for (const io::TensorInfo& t : one.tensors()) {
    std::vector<std::byte> a(t.end - t.begin), b(t.end - t.begin);
    one.read(t, a);
    other.read(*other.find(t.name), b);
    EXPECT_EQ(a == b, has(t.name, "lora_A")) << t.name << ": frozen at its start";
  }
  put_run("", "[[optimizer.group]]\nmatch = \"*.o_proj\"\nlr_scale = 2.0\n");
  EXPECT_TRUE(has(refusal("train run.toml --out x"), "matches only weights of the adapter's base"));
  put_run("", "[[optimizer.group]]\nmatch = \"*.x_proj\"\nlr_scale = 2.0\n");
  EXPECT_TRUE(has(refusal("train run.toml --out x"), "matches no parameter"));
  put_run("", "[[optimizer.group]]\nmatch = \"*_proj\"\nfreeze = true\nquantize = \"nf4\"\n");
  EXPECT_TRUE(has(refusal("train run.toml --out x"), "set adapter.base = \"nf4\""));
  put_run("");
  const Result r = mantissa(folder, "explain run.toml --precision bf16-mixed --rule '*.lora_A: compute=f32'");
  EXPECT_TRUE(has(r.out, "--rule 1")) << r.err;
}

}  // namespace
}  // namespace mantissa
