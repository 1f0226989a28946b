// Wrong command lines: each is one message that names the nearest right word, and the spellings of other
// programs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "app/cli/run_program.h"

namespace mantissa::cli {
namespace {

using mantissa::testing::has;
using mantissa::testing::Result;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;
using mantissa::testing::write;

TEST(Hints, NameTheRightSpelling) {
  const std::pair<const char*, const char*> cases[] = {
      {"help data sharrd",
       "data: expected one of kk, inspect, shard, got \"sharrd\"; did you mean \"shard\"?"},
      {"help tokenizer inof", "got \"inof\"; did you mean \"info\"?"},
      {"help data shard x", "help: unexpected argument \"x\""},
      {"train run.toml --step 3", "did you mean --set run.steps=3?"},
      {"rl run.toml --setps 3", "did you mean --set run.steps=3?"},
      {"audit run.toml --step 3", "did you mean --steps?"},
      {"train run.toml --sett run.steps=3", "did you mean --set?"},
      {"train run.toml --preset bf16-mixed", "did you mean --precision?"},
      {"explain --preset bf16-mixed run.toml", "did you mean --precision?"},
      {"init --preset rl", "the first argument: mantissa init rl"},
      {"tokenizer info nope", "tokenizer \"nope\": expected \"byte\", or a file or directory that exists"},
      {"tokenizer info bytes", "did you mean \"byte\"?"},
      {"completion", "completion: the shell is missing: one of bash, zsh, fish"},
      {"completion bsh", "did you mean \"bash\"?"},
      {"presets", "did you mean help presets?"},
      {"explain run.toml --simd", "--simd: a value is missing: one of avx2, avx512,"},
      {"explain run.toml --set model.model_type=lama", "did you mean \"llama\"?"},
      {"-v", "-v: unknown option; did you mean --version?"},
      {"train ''", "train: CONFIG is an empty word"},
      {"train run.toml ''", "train: an argument is an empty word"},
      {"generate r --max-tokens 3", "did you mean --max-new-tokens?"},
      {"generate r --max_tokens=3", "did you mean --max-new-tokens?"},
      {"generate r --max_new_tokens 3", "did you mean --max-new-tokens?"},
      {"generate r --max-length 3", "did you mean --max-new-tokens?"},
      {"generate r -n 3", "did you mean --max-new-tokens?"},
      {"generate r --temp 1", "did you mean --temperature?"},
      {"generate r --tempreature 1", "did you mean --temperature?"},
      {"generate r --topk 1", "did you mean --top-k?"},
      {"generate r --top_p 1", "did you mean --top-p?"},
      {"generate r --ctx-size 512", "--max-new-tokens"},
      {"generate r --batch-size 4", "did you mean --streams?"},
      {"generate r --dtype bf16", "did you mean --precision?"},
      {"generate r --bf16", "did you mean --precision bf16-mixed?"},
      {"generate --model r", "the first argument: mantissa generate r"},
      {"doctor --device cuda", "this build runs on the CPU"},
      {"data kk --count 1 --out ''", "--out: FILE is an empty word"},
      {"data shard run.toml --tokenizer '' --out x", "--tokenizer: TOKENIZER is an empty word"},
      {"generate r --gpu 0", "did you mean --device?"},
      {"train run.toml --learning_rate 1e-3", "write --set optimizer.lr=1e-3"},
      {"train run.toml --lr=1e-3", "write --set optimizer.lr=1e-3"},
      {"train run.toml --gradient_clipping 1", "--set optimizer.max_grad_norm"},
      {"train run.toml --save_steps 5", "write --set checkpoint.interval=5"},
      {"train run.toml --per_device_train_batch_size 5", "write --set batch.micro_batch_size=5"},
      {"train run.toml --num_train_epochs 5", "run.epochs"},
      {"train run.toml --max-tokens 5", "--set run.steps"},
      {"train run.toml --batch-size 5", "--set batch.global_batch_size=N"},
      {"train run.toml --output_dir x", "did you mean --out?"},
      {"train run.toml --seed 3", "write --set run.seed=3"},
      {"train run.toml --samples 3", "it is an option of generate, data inspect;"},
      {"doctor --out x", "it is an option of init, train, rl, trace, audit, compare, objective, data kk"},
      {"init pretain", "did you mean \"pretrain\"?"},
      {"init lora --out a", "ends in .toml"},
      {"init lora --out run.toml", "run.toml: exists already"},
      {"init pretrain --model r", "begins with a new model"},
      {"init --data kk", "TASK is missing"},
      {"new lora", "did you mean init?"},
      {"version --color=purple", "--color: expected one of auto, always, never, got \"purple\""},
      {"help --color nver", "got \"nver\"; did you mean \"never\"?"},
      {"train run.toml --simd avx5", "got \"avx5\"; did you mean \"avx2\"?"},
      {"train a.toml run.steps=3",
       "train: unexpected argument \"run.steps=3\"; did you mean --set run.steps=3?"},
      {"explain a.toml run.steps 3",
       "explain: unexpected argument \"run.steps\"; did you mean --set run.steps=…?"},
      {"train run.steps=3", "train: unexpected argument \"run.steps=3\"; did you mean --set run.steps=3?"},
      {"train a.toml b.toml", "train: unexpected argument \"b.toml\"; see mantissa train --help"},
      {"data kkk", "data: expected one of kk, inspect, shard, got \"kkk\"; did you mean \"kk\"?"},
      {"tokenizer encod", "got \"encod\"; did you mean \"encode\"?"},
      {"completion zhs", "completion: expected one of bash, zsh, fish, got \"zhs\"; did you mean \"zsh\"?"},
      {"explain run.toml --precision bf16-mxed", "did you mean \"bf16-mixed\"?"},
      {"explain run.toml --rule 'lm_head: compte=f32'", "did you mean \"compute\"?"},
      {"explain run.toml --rule 'lm_head: compute=f23'", "did you mean \"f32\"?"},
      {"train run.toml --rule 'lm_haed: compute=f32'", "did you mean \"lm_head\"?"},
      {"explain run.toml --target a10", "did you mean \"a100\"?"},
      {"explain run.toml --set optimizer.lrr=1", "did you mean \"lr\"?"},
      {"explain run.toml --set optimzer.lr=1", "did you mean \"optimizer\"?"},
      {"help bf16-mxed", "did you mean bf16-mixed?"},
      {"''", "expected a command, got an empty word"},
      {"--quiet", "--quiet: a command is missing"},
      {"--hepl", "--hepl: unknown option; did you mean \"--help\"?"},
      {"--quiet trian run.toml", "trian: unknown command; did you mean train?"},
      {"help --json", "all commands take it but help, version, completion, manual"},
      {"train --config run.toml", "the first argument: mantissa train run.toml"},
      {"train run.toml --set learning_rate=1", "write optimizer.lr"},
      {"train run.toml --set optimizer.gradient_clipping=1", "write optimizer.max_grad_norm"},
      {"train run.toml --out", "--out: DIR is missing"},
      {"train run.toml --json=yes", "--json: does not take a value, got \"yes\""},
      {"compare r", "expected a config, or at least two runs, got one run. Fix: mantissa compare RUN RUN"},
      {"compare run.toml --vary optimizer.lr",
       "expected a key and its values. Fix: --vary optimizer.lr=1e-3,3e-4"},
      {"compare run.toml --vary optimizer.lr=1,", "a value is empty. Fix: section.key=A,B"},
      {"loss-scale --overflows 01 --min-scale 0", "--min-scale 0: must be above 0"},
      {"eval r --needle --lengths 256.5",
       "--lengths 256.5: expected whole numbers of tokens up to 16777216, got 256.5"},
      {"eval r --data kk --people-min 3 --people-max 2",
       "--people-min 3: must be at most --people-max, which is 2"},
      {"train binary.toml",
       "expected a config, a TOML text, got binary data; give the path of a config file"},
      {"explain run.toml --set run.skip_batches=9-7", "write the smaller step first"},
      {"generate r --prompt x --seed -1", "at most 19 digits"},
      {"generate r --prompt x --max-new-tokens many", "--max-new-tokens many: must be a whole number"},
      {"generate r --prompt x --temperature hot", "--temperature hot: must be a number"},
      {"generate r --prompt-ids 1,x", "\"x\" is not a token id"},
      {"generate r --prompt-ids 1,,2", "a token id is missing"},
      {"inspect r --precision bf16", "inspect does not take this option"},
      {"convert a b --dtype fp4", "nvfp4 or mxfp4"},
      {"explain run.toml --precision fp4", "write for example \"bf16-mixed compute=nvfp4\""},
      {"explain run.toml --precision MXFP4", "write for example \"bf16-mixed compute=mxfp4\""},
      {"explain run.toml --precision nvfp4", "write for example \"bf16-mixed compute=nvfp4\""},
      {"explain run.toml --precision mxfp8", "write for example \"bf16-mixed compute=mxfp8\""},
      {"explain run.toml --precision mxfp8-e5m2", "write for example \"bf16-mixed compute=mxfp8-e5m2\""},
      {"explain run.toml --precision e4m3", "write for example \"bf16-mixed compute=e4m3\""},
      {"explain run.toml --set run.seed=18446744073709551616",
       "must be a whole number from 0 to 9223372036854775807"},
      {"explain run.toml --set run.steps=99999999999999999999", "must be a whole number from 1 to "},
      {"explain run.toml --set run.seed=x", "run.seed = \"x\": must be a whole number"},
      {"explain folder.toml", "folder.toml: is a directory; give the path of a config file"},
      {"explain loop.toml", "loop.toml: cannot be read: Too many levels of symbolic links;"},
      {"train nowhere.toml", "nowhere.toml: there is no such file; check the path"},
      {"evaluate r", "did you mean eval?"},
      {"train a.toml lr=1e-3", "did you mean --set optimizer.lr=1e-3?"}};
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(2, "32-true"));
  write(folder / "a", "x");
  write(folder / "binary.toml", std::string("\0", 1));
  std::filesystem::create_directory(folder / "folder.toml");
  std::filesystem::create_symlink("loop.toml", folder / "loop.toml");
  for (const auto& [arguments, expected] : cases) {
    const Result r = mantissa::testing::mantissa(folder, arguments);
    EXPECT_EQ(r.code, 2) << arguments << r.err;
    EXPECT_TRUE(has(r.err, expected)) << arguments << "\n" << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << arguments << "\n" << r.err;
  }
}

/// A script of another shell would not run in ksh, though the names are alike.
TEST(Hints, SuggestNoShellInPlaceOfAnotherOne) {
  const TemporaryFolder folder;
  for (const char* shell : {"ksh", "tcsh", "powershell"}) {
    const Result r = mantissa::testing::mantissa(folder, std::string("completion ") + shell);
    EXPECT_EQ(r.err,
              fmt::format("mantissa: completion: expected one of bash, zsh, fish, got \"{}\"\n", shell));
    EXPECT_EQ(r.code, 2);
  }
}

}  // namespace
}  // namespace mantissa::cli
