// mantissa objective: what it writes and prints, and what it refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "app/cli/run_program.h"

namespace mantissa::testing {
namespace {

using nlohmann::json;

/// Tensors to write, f32 unless they are groups.
class Batch {
 public:
  Batch& set(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> values) {
    floats_[name] = {std::move(shape), std::move(values)};
    return *this;
  }
  Batch& set_groups(std::vector<std::int64_t> groups) {
    groups_ = std::move(groups);
    return *this;
  }
  Batch& remove(const std::string& name) {
    floats_.erase(name);
    return *this;
  }
  Batch& rename(const std::string& from, const std::string& to) {
    floats_[to] = floats_.at(from);
    return remove(from);
  }
  void write(const std::filesystem::path& path) const {
    std::vector<io::TensorToWrite> out;
    for (const auto& [name, tensor] : floats_)
      out.push_back({name, io::Dtype::f32, tensor.first, std::as_bytes(std::span(tensor.second)), nullptr});
    if (!groups_.empty()) {
      out.push_back({"groups",
                     io::Dtype::i64,
                     {static_cast<std::int64_t>(groups_.size())},
                     std::as_bytes(std::span(groups_)),
                     nullptr});
    }
    io::write_safetensors(path, out);
  }

 private:
  std::map<std::string, std::pair<std::vector<std::int64_t>, std::vector<float>>> floats_;
  std::vector<std::int64_t> groups_;
};

/// Two samples of one prompt, of two tokens and one; on-policy, and equal to the reference.
Batch example() {
  Batch b;
  const std::vector<float> log_probs = {-1, -2, -3, NAN};
  for (const char* name : {"log_probs", "old_log_probs", "ref_log_probs"}) b.set(name, {2, 2}, log_probs);
  b.set("mask", {2, 2}, {1, 1, 1, 0});
  b.set("rewards", {2}, {1, 0});
  b.set_groups({4, 4});
  return b;
}

class ObjectiveCommand : public ::testing::Test {
 protected:
  Result run(const Batch& batch, const std::string& name, const std::string& options = "") {
    batch.write(folder / "in.safetensors");
    return mantissa(folder, "objective " + name + " --in in.safetensors --out out.safetensors " + options);
  }
  /// Expects exit code 2, one line that contains each of `parts`, and no output file.
  void refused(const Batch& batch, const std::string& name, const std::string& options,
               const std::vector<std::string>& parts) {
    const Result r = run(batch, name, options);
    EXPECT_EQ(r.code, 2) << r.out << r.err;
    EXPECT_TRUE(r.err.starts_with("mantissa: ")) << r.err;
    for (const std::string& part : parts) EXPECT_NE(r.err.find(part), std::string::npos) << r.err << part;
    EXPECT_FALSE(std::filesystem::exists(folder / "out.safetensors"));
  }
  std::vector<float> output(const std::string& name) {
    const io::SafetensorsReader file(folder / "out.safetensors");
    std::vector<float> values(static_cast<std::size_t>(file.find(name)->count()));
    file.read(*file.find(name), std::as_writable_bytes(std::span(values)));
    return values;
  }

  TemporaryFolder folder;
};

TEST_F(ObjectiveCommand, WritesLossGradientsAndAdvantages) {
  const Result r = run(example(), "dr-grpo", "--json");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(output("loss"), (std::vector<float>{-0.5F / 3}));  // advantages ½, ½, −½
  EXPECT_EQ(output("advantages"), (std::vector<float>{0.5F, 0.5F, -0.5F, 0}));
  EXPECT_EQ(output("grad.log_probs"), (std::vector<float>{-0.5F / 3, -0.5F / 3, 0.5F / 3, 0}));
  EXPECT_EQ(output("kl"), (std::vector<float>{0, 0, 0, 0}));
  const json out = json::parse(r.out);
  EXPECT_EQ(out["objective"], "dr-grpo");
  EXPECT_EQ(out["tokens"], 3);
  EXPECT_EQ(out["groups"], 1);
  EXPECT_EQ(out["ratio"]["min"], 1);
  EXPECT_EQ(out["settings"]["rl.kl"], "k3");
  EXPECT_EQ(static_cast<float>(out["loss"].get<double>()), -0.5F / 3);
}

TEST_F(ObjectiveCommand, NamesAMissingTensor) {
  refused(example().remove("mask"), "grpo", "", {"in.safetensors: the tensor mask is missing"});
  refused(example().remove("rewards"), "grpo", "", {"the tensor rewards is missing"});
  refused(example().remove("log_probs"), "grpo", "", {"the tensor log_probs is missing"});
  refused(example().set_groups({}), "grpo", "", {"the tensor groups is missing", "one prompt"});
  refused(example(), "ppo", "", {"the tensor values is missing"});
  refused(example(), "reward", "", {"the tensor scores is missing"});
}

TEST_F(ObjectiveCommand, OffersToDropWhatAMissingTensorIsFor) {
  const Batch b = example().remove("ref_log_probs");
  refused(b, "grpo", "",
          {"the tensor ref_log_probs is missing, which is needed for rl.kl = k3",
           "objective grpo --in in.safetensors --out out.safetensors --set rl.kl=none"});
  refused(example(), "grpo", "--set rl.importance_cap=2",
          {"rollout_log_probs is missing", "rl.importance_cap=0"});
  refused(example(), "grpo", "--set rl.entropy_coef=0.1", {"entropy is missing", "rl.entropy_coef=0"});
  EXPECT_EQ(run(b, "grpo", "--set rl.kl=none").code, 0);
  EXPECT_EQ(run(b, "grpo", "--set rl.kl_coef=0").code, 0);
}

TEST_F(ObjectiveCommand, NamesATensorOfAnotherShapeOrType) {
  refused(example().set("mask", {4}, {1, 1, 1, 0}), "grpo", "", {"mask is [4]; it must be [N, T] = [2, 2]"});
  refused(example().set("rewards", {3}, {1, 1, 1}), "grpo", "", {"rewards is [3]; it must be [N] = [2]"});
  refused(example().set("rewards", {2, 1}, {1, 1}), "grpo", "",
          {"rewards is [2, 1]; it must be [N, T] = [2, 2]"});
  refused(example().set_groups({1, 1, 1}), "grpo", "", {"groups is [3]; it must be [N] = [2]"});
  refused(example().set_groups({}).set("groups", {2}, {1, 1}), "grpo", "",
          {"groups is F32; it must be I32 or I64"});
  refused(example().set("log_probs", {2}, {1, 1}), "grpo", "", {"log_probs is [2]; it must be [N, T]"});
  refused(Batch().set("scores", {3}, {1, 2, 3}), "reward", "", {"scores has 3 rows", "even"});
  refused(Batch().set("scores", {2}, {1, 2}).set("margin", {2}, {1, 2}), "reward", "",
          {"margin is [2]", "[1]"});
}

TEST_F(ObjectiveCommand, SuggestsTheNameOfAMisspeltTensor) {
  refused(example().rename("old_log_probs", "old_logprobs"), "grpo", "",
          {"old_logprobs", "did you mean old_log_probs?"});
  refused(Batch().set("scores", {2}, {1, 2}).set("margins", {1}, {1}), "reward", "",
          {"did you mean margin?"});
  const Result r = run(example().set("temperature", {1}, {1}), "grpo");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("not used: temperature"), std::string::npos) << r.err;
}

TEST_F(ObjectiveCommand, NamesAValueThatCannotBeUsed) {
  refused(example().set("log_probs", {2, 2}, {-1, NAN, -3, -4}), "grpo", "",
          {"log_probs [0, 1] is nan", "its mask is 1"});
  refused(example().set("rewards", {2}, {1, INFINITY}), "grpo", "",
          {"rewards [1] is inf", "its row has a mask of 1"});
  refused(Batch().set("scores", {2}, {1, NAN}), "reward", "", {"scores [1] is nan; correct the value"});
  refused(example().set("mask", {2, 2}, {1, 0.5, 1, 0}), "grpo", "", {"mask [0, 1] is 0.5"});
  refused(example().set("mask", {2, 2}, {0, 0, 0, 0}), "grpo", "", {"mask is 0 everywhere"});
}

TEST_F(ObjectiveCommand, HasNoOptionsOfPasses) {
  for (const char* option : {"--precision bf16-mixed", "--threads 2", "--simd avx2"})
    refused(example(), "grpo", option, {"it computes in f64 on one thread"});
  refused(example(), "grpo", "--clip-low 0.1", {"--set rl.clip_low=0.1"});
  const Result r = mantissa(folder, "objective grpo --in a --out b --lr 1");
  EXPECT_EQ(r.err.find("optimizer.lr"), std::string::npos) << r.err;
}

TEST_F(ObjectiveCommand, SuggestsTheNameOfAMisspeltObjectiveOrKey) {
  refused(example(), "gpro", "", {"did you mean grpo?"});
  refused(example(), "dr_grpo", "", {"did you mean dr-grpo?"});
  refused(example(), "ipo", "", {"did you mean dpo --set dpo.loss=ipo?"});
  refused(example(), "nothing_like_it", "", {"choices: ppo, grpo"});
  refused(example(), "grpo", "--set rl.klcoef=1", {"unknown key", "kl_coef"});
  refused(example(), "grpo", "--set rl.kl=k4", {"rl.kl = \"k4\"", "k3"});
  refused(example(), "grpo", "--set rl.dual_clip=0.5", {"rl.dual_clip", "above 1"});
  refused(example(), "grpo", "--set dpo.beta=1", {"dpo.beta", "uses only the keys of [rl]"});
  refused(example(), "grpo", "--set rl.algorithm=rloo",
          {"rl.algorithm=rloo", "the command names the objective grpo"});
  refused(example(), "grpo", "--set optimizer.lr=1", {"optimizer.lr"});
  refused(Batch().set("scores", {2}, {1, 2}), "reward", "--set rl.kl=none", {"has no keys"});
}

TEST_F(ObjectiveCommand, ReplacesOnlyItsOwnResults) {
  ASSERT_EQ(run(example(), "grpo").code, 0);
  EXPECT_EQ(run(example(), "rloo").code, 0);
  write(folder / "out.safetensors", "precious");
  const Result r = run(example(), "grpo");
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("--overwrite"), std::string::npos) << r.err;
  EXPECT_EQ(read_all(folder / "out.safetensors"), "precious");
  EXPECT_EQ(run(example(), "grpo", "--overwrite").code, 0);
  EXPECT_EQ(mantissa(folder, "objective grpo --in in.safetensors --out in.safetensors --overwrite").code, 2);
  EXPECT_EQ(mantissa(folder, "objective grpo --in in.safetensors").code, 2);
  EXPECT_EQ(mantissa(folder, "objective").code, 2);
}

TEST_F(ObjectiveCommand, StopsForAResultThatOverflows) {
  Batch b = example().set("log_probs", {2, 2}, {-1, -2, 700, 0});  // the advantage is negative: not clipped
  const Result r = run(b, "grpo", "--set rl.kl=none");
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_NE(r.err.find("loss is not finite"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("703, at [1, 0]"), std::string::npos) << r.err;
  EXPECT_EQ(run(b, "grpo", "--set rl.kl=none --set rl.dual_clip=3").code, 0);
}

}  // namespace
}  // namespace mantissa::testing
