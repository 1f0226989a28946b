// Help, manual and completion from one table.
#include "mantissa/app/cli/help.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "app/cli/run_program.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/app/cli/arguments.h"
#include "mantissa/app/cli/key_help.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

using mantissa::testing::has;
using mantissa::testing::Result;
using mantissa::testing::shell;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;
using mantissa::testing::write;

void expect_80_columns(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(width_of(line), 80U) << line;
}

TEST(Help, OfACommandListsTheOptionsThatItTakesInEightyColumns) {
  expect_80_columns(help());
  for (const Command& command : commands()) {
    const std::string text = help(command);
    expect_80_columns(text);
    const std::string name = "\n  " + std::string(command.name);
    EXPECT_EQ(has(help(), name + " ") + has(help(), name + "\n"), 1) << command.name;
    for (const Command& other : commands()) {
      for (const Option* option : options_of(other)) {
        const bool there =
            has(text, "\n  " + written(*option) + "\n") || has(text, "\n  " + written(*option) + " ");
        const Option* own = find_option(command, option->name);
        EXPECT_EQ(there, own != nullptr && written(*own) == written(*option))
            << command.name << " " << option->name << "\n"
            << text;
      }
    }
  }
}

TEST(Help, OverviewNamesFiveCommandsThatExist) {
  const std::string text = overview();
  expect_80_columns(text);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 15);
  for (const char* command : {"init", "explain", "train", "audit", "chat"}) {
    EXPECT_TRUE(has(text, std::string("\n  mantissa ") + command + " ")) << text;
    EXPECT_NE(find_command(command), nullptr);
  }
}

TEST(Help, OfTrainHasEveryKeyOnceUnderATask) {
  const std::string text = help(*find_command("train"));
  const std::string keys = text.substr(text.find("config keys by task"));
  for (const api::ConfigKeyHelp& key : api::config_keys()) {
    std::size_t found = 0;
    for (std::size_t at = keys.find(key.name()); at != std::string::npos;
         at = keys.find(key.name(), at + 1)) {
      const char before = keys[at - 1], after = keys[at + key.name().size()];
      found += (before == ' ' && (after == ' ' || after == ',' || after == '\n')) ? 1 : 0;
    }
    EXPECT_EQ(found, 1U) << key.name();
  }
  EXPECT_TRUE(has(keys, "\n  train an adapter\n    adapter.kind = \"none\", adapter.rank = 8,")) << keys;
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 150);
}

TEST(Help, OfAnAliasNamesAllOfItsKeys) {
  EXPECT_TRUE(help_on_key("clip_eps")->starts_with("clip_eps is rl.clip_low and rl.clip_high here.\n\n"));
  EXPECT_TRUE(help_on_key("all-linear")->starts_with("all-linear is a value of adapter.target: "));
  EXPECT_TRUE(has(*help_on_key("all-linear"), "\nadapter.target = "));
}

TEST(Help, OfAKeyHasItsTypeDefaultsValuesAndCommands) {
  for (const api::ConfigKeyHelp& key : api::config_keys()) {
    const std::optional<std::string> text = help_on_key(key.name());
    ASSERT_TRUE(text) << key.name();
    expect_80_columns(*text);
    EXPECT_TRUE(has(*text, sentence(key.description).substr(0, 20))) << *text;
    EXPECT_TRUE(has(*text, "\ntype        " + key.type)) << *text;
  }
  const std::string lr = *help_on_key("optimizer.lr");
  EXPECT_TRUE(has(lr, "values      greater than 0\n")) << lr;
  EXPECT_TRUE(has(
      lr,
      "default     0.0003; 5e-06 under sft; 9e-06 under reward; 5e-07 under dpo; 5e-07\n            under kto\n"))
      << lr;
  EXPECT_TRUE(has(lr, "commands    train, rl, eval, explain, audit, compare, data inspect\n")) << lr;
  EXPECT_TRUE(has(lr, "elsewhere   learning_rate, max_lr\n")) << lr;
  EXPECT_EQ(help_on_key("lr"), lr);
  EXPECT_EQ(help_on_key("learning_rate"), "learning_rate is optimizer.lr here.\n\n" + lr);
  EXPECT_TRUE(has(*help_on_key("run.on_nonfinite"), "values      stop, skip, continue\n"));
  EXPECT_TRUE(
      has(*help_on_key("rl.kl"), "commands    rl, eval, explain, audit, compare, objective, data inspect"))
      << *help_on_key("rl.kl");
  EXPECT_TRUE(has(*help_on_key("rl.reward"), "default     \"kk\"\n")) << *help_on_key("rl.reward");
  EXPECT_TRUE(has(*help_on_key("model.rope_theta"), "type        number or \"lwm\"\n"));
  EXPECT_EQ(help_on_key("[adapter]"), api::config_help(80, "adapter"));
  EXPECT_EQ(help_on_key("optimizer"), api::config_help(80, "optimizer"));
  EXPECT_EQ(help_on_key("keys"), api::config_help(80));
  EXPECT_EQ(help_on_key("nothing"), std::nullopt);
}

TEST(Help, OfTheFirstWordOfCommandsListsThemAll) {
  for (const Command& command : commands()) {
    const std::string group(command.name.substr(0, command.name.find(' ')));
    if (group == command.name) continue;
    expect_80_columns(help_on_group(group));
    EXPECT_TRUE(has(help_on_group(group), "\n  " + std::string(command.name) + " ")) << help_on_group(group);
  }
  EXPECT_EQ(help_on_group("train"), "");
}

TEST(Help, OptionsAndCommandsOfTheTableAreWellFormed) {
  for (const Command& command : commands()) {
    EXPECT_NE(command.run, nullptr) << command.name;
    std::vector<std::string_view> names;
    for (const Option* option : options_of(command)) {
      EXPECT_TRUE(option->name.starts_with("--")) << option->name;
      EXPECT_EQ(option->takes == Takes::nothing, option->argument.empty()) << option->name;
      EXPECT_FALSE(option->description.empty() || option->description.ends_with('.')) << option->name;
      names.push_back(option->name);
    }
    std::ranges::sort(names);
    EXPECT_EQ(std::ranges::adjacent_find(names), names.end()) << command.name;
  }
}

TEST(Help, IsRequestedInSeveralWays) {
  const TemporaryFolder folder;
  const Result none = mantissa::testing::mantissa(folder, "");
  EXPECT_EQ(none.code, 0);
  EXPECT_EQ(none.out, overview());
  EXPECT_EQ(none.err, "");
  for (const char* arguments : {"--color never", "--color=auto"})
    EXPECT_EQ(mantissa::testing::mantissa(folder, arguments).out, overview()) << arguments;
  for (const char* arguments : {"help", "--help", "-h", "--color never help", "--color never --help"}) {
    const Result r = mantissa::testing::mantissa(folder, arguments);
    EXPECT_EQ(r.code, 0) << arguments;
    EXPECT_EQ(r.out, help()) << arguments;
  }
  for (const char* arguments : {"help train", "train --help", "train -h", "train nowhere.toml --help",
                                "--help train", "--color never --set run.steps=3 train --help"})
    EXPECT_EQ(mantissa::testing::mantissa(folder, arguments).out, help(*find_command("train"))) << arguments;
  for (const char* arguments : {"help data kk", "data kk --help"})
    EXPECT_EQ(mantissa::testing::mantissa(folder, arguments).out, help(*find_command("data kk")))
        << arguments;
  for (const char* arguments :
       {"help data", "data", "--color never data", "data --help", "data -h", "--help data"})
    EXPECT_EQ(mantissa::testing::mantissa(folder, arguments).out, help_on_group("data")) << arguments;
  EXPECT_EQ(mantissa::testing::mantissa(folder, "help optimizer.lr").out, *help_on_key("optimizer.lr"));
  const Result no_key = mantissa::testing::mantissa(folder, "help optimizer.lrr");
  EXPECT_EQ(no_key.code, 2);
  EXPECT_TRUE(has(no_key.err, "did you mean optimizer.lr?")) << no_key.err;
  EXPECT_EQ(mantissa::testing::mantissa(folder, "version").out,
            mantissa::testing::mantissa(folder, "--version").out);
  EXPECT_EQ(mantissa::testing::mantissa(folder, "version").out.find("mantissa "), 0U);
  const Result unknown = mantissa::testing::mantissa(folder, "help trian");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(has(unknown.err, "did you mean train?")) << unknown.err;
}

TEST(Help, OfAPresetHasItsPolicyLine) {
  const std::string list = list_of_presets();
  expect_80_columns(list);
  for (const api::Preset& preset : api::presets()) {
    EXPECT_TRUE(has(list, "\n  " + preset.name + " ")) << list;
    const std::string text = *help_on_preset(preset.name);
    expect_80_columns(text);
    EXPECT_TRUE(text.starts_with(preset.name + ": ")) << text;
    std::string line;  // of text, without breaks
    for (const std::string_view word : split_words(text, " \n")) line += std::string(word) + " ";
    EXPECT_TRUE(has(line, "policy " + preset.line + " ")) << text << preset.line;
    for (const std::string& alias : preset.aliases) EXPECT_EQ(*help_on_preset(alias), text) << alias;
  }
  EXPECT_EQ(help_on_preset("optimizer.lr"), std::nullopt);
  const TemporaryFolder folder;
  EXPECT_EQ(mantissa::testing::mantissa(folder, "help bf16-mixed").out, *help_on_preset("bf16-mixed"));
  EXPECT_EQ(mantissa::testing::mantissa(folder, "help presets").out, list);
  EXPECT_EQ(mantissa::testing::mantissa(folder, "help precision").out,
            api::config_help(80, "precision") + "\n" + list);
}

TEST(Manual, HasEveryCommandAndOption) {
  const std::string text = manual();
  const auto escaped = [](std::string_view words) {
    std::string out;
    for (const char c : words) out += c == '-' ? std::string("\\-") : std::string(1, c);
    return out;
  };
  for (const Command& command : commands()) {
    const std::size_t begin = text.find(".SS mantissa " + escaped(command.name));
    ASSERT_NE(begin, std::string::npos) << command.name;
    const std::string section = text.substr(begin, text.find("\n.S", begin) - begin);
    for (const Option* option : options_of(command)) {
      if (option->name == "--help") continue;
      EXPECT_TRUE(has(section, "\n.B " + escaped(written(*option)) + "\n"))
          << command.name << " " << option->name;
    }
  }
  for (const char* option : {".B \\-\\-max\\-new\\-tokens N", ".B \\-\\-resume[=STEP]", ".B 130"})
    EXPECT_TRUE(has(text, option)) << option;
}

TEST(Manual, IsRoff) {
  const TemporaryFolder folder;
  if (shell(folder, "command -v groff").code != 0) GTEST_SKIP() << "groff is not installed";
  write(folder / "mantissa.1", manual());
  const Result r = shell(folder, "groff -man -Tutf8 -ww -Kutf8 -P-cbou mantissa.1");
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.err, "");
  EXPECT_TRUE(has(r.out, "SYNOPSIS"));
}

TEST(Completion, OfEveryShellHasEveryOption) {
  for (const char* shell_name : {"bash", "zsh", "fish"}) {
    const std::string text = completion(shell_name);
    for (const Command& command : commands()) {
      for (const Option* option : options_of(command)) {
        const std::string name(option->name);
        EXPECT_TRUE(has(text, std::string(shell_name) == "fish" ? "-l " + name.substr(2) : name))
            << shell_name << " " << name;
      }
    }
  }
  EXPECT_THROW(completion("tcsh"), ConfigError);
}

class CompletionOf : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Shells, CompletionOf, ::testing::Values("bash", "zsh", "fish"),
                         [](const auto& info) { return info.param; });

TEST_P(CompletionOf, IsSyntaxThatItsShellReads) {
  const TemporaryFolder folder;
  write(folder / "script", completion(GetParam()));
  if (shell(folder, "command -v " + GetParam()).code != 0) GTEST_SKIP() << GetParam() << " is not installed";
  const Result r = shell(folder, GetParam() + " -n script");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err, "");
}

TEST(Completion, OfBashCompletes) {
  const TemporaryFolder folder;
  write(folder / "words", completion("bash"));
  const auto completed = [&](const std::string& words, int at) {
    return shell(folder, "bash -c 'source words; compopt() { :; }; COMP_WORDS=(" + words +
                             "); COMP_CWORD=" + std::to_string(at) + "; _mantissa; echo ${COMPREPLY[@]}'")
        .out;
  };
  const auto list = [](const auto& words) {
    std::string text;
    for (const auto& word : words) text += (text.empty() ? "" : " ") + word.name;
    return text + "\n";
  };
  EXPECT_EQ(completed("mantissa tra", 1), "train trace\n");
  EXPECT_EQ(completed("mantissa generate r --top", 3), "--top-k --top-p\n");
  EXPECT_EQ(completed("mantissa train run.toml --simd av", 4), "avx2 avx512 avx512_bf16\n");
  EXPECT_EQ(completed("mantissa data kk --split te", 4), "test\n");
  EXPECT_EQ(completed("mantissa completion z", 2), "zsh\n");
  EXPECT_EQ(completed("mantissa init lo", 2), "lora long-context\n");
  EXPECT_EQ(completed("mantissa explain r --color ne", 4), "never\n");
  EXPECT_EQ(completed("mantissa help optimizer.we", 2), "optimizer.weight_decay\n");
  EXPECT_EQ(completed("mantissa help bf16-matmul-", 2), "bf16-matmul-x3 bf16-matmul-x6\n");
  EXPECT_EQ(completed("mantissa help data \"\"", 3), "kk inspect shard\n");
  EXPECT_EQ(completed("mantissa train run.toml --precision \"\"", 4), list(api::presets()));
  EXPECT_EQ(completed("mantissa train run.toml --set optimizer.we", 4), "optimizer.weight_decay=\n");
  EXPECT_EQ(completed("mantissa explain run.toml --target a100", 4), "a100 a100-40gb\n");
  EXPECT_EQ(completed("mantissa explain run.toml --rule lm", 4), "lm_head:\n");
  // Bash takes "=" and ":" as words.
  EXPECT_EQ(completed("mantissa explain run.toml --rule lm_head : com", 6), "compute=\n");
  EXPECT_EQ(completed("mantissa explain run.toml --color = ne", 5), "never\n");
  EXPECT_EQ(completed("mantissa train run.toml --set run.steps =", 5), "\n");
  EXPECT_EQ(completed("mantissa --color ne", 2), "never\n");
  EXPECT_EQ(completed("mantissa --color never --quiet tra", 4), "train trace\n");
  EXPECT_EQ(completed("mantissa --quiet data kk --split te", 5), "test\n");
  EXPECT_EQ(completed("mantissa train run.toml --threads \"\"", 4), "\n");
  std::filesystem::create_directories(folder / "some_run");
  EXPECT_EQ(completed("mantissa generate some", 2), "some_run\n");
}

TEST(Completion, OfFishCompletes) {
  const TemporaryFolder folder;
  if (shell(folder, "command -v fish").code != 0) GTEST_SKIP() << "fish is not installed";
  write(folder / "words", completion("fish"));
  const auto completed = [&](const std::string& line) {
    const Result r = shell(folder, "HOME=. fish -c 'source words; complete -C \"" + line + "\"' | cut -f 1");
    return r.out + r.err;
  };
  EXPECT_EQ(completed("mantissa tra"), "trace\ntrain\n");
  EXPECT_EQ(completed("mantissa --color never tra"), "trace\ntrain\n");
  EXPECT_EQ(completed("mantissa train r --precision fp"), "fp8-hybrid\n");
  EXPECT_EQ(completed("mantissa train r --set optimizer.we"), "optimizer.weight_decay=\n");
  EXPECT_EQ(completed("mantissa explain r --rule model.layers.*.m"), "model.layers.*.mlp:\n");
  EXPECT_EQ(completed("mantissa explain r --target a100"), "a100\na100-40gb\n");
  EXPECT_EQ(completed("mantissa help bf16-mi"), "bf16-mixed\n");
  EXPECT_EQ(completed("mantissa help data "), "inspect\nkk\nshard\n");
}

TEST(Completion, OfZshCompletes) {
  const TemporaryFolder folder;
  if (shell(folder, "command -v zsh").code != 0) GTEST_SKIP() << "zsh is not installed";
  write(folder / "words", completion("zsh"));
  // Types the line, a tab and Return into a shell that prints its arguments.
  write(
      folder / "type",
      "zmodload zsh/zpty\nzpty z env TERM=dumb HOME=. zsh -f -i\n"
      "zpty -w z 'autoload -Uz compinit; compinit -u -D; source ./words; mantissa() { print -r -- \"<$*>\" }; "
      "print rea\"\"dy'\nzpty -r z reply '*ready*'\n"
      "zpty -w z \"$1\"$'\\t'\nzpty -r z reply '*<*>*'\nprint -r -- $reply\n");
  const std::pair<const char*, const char*> cases[] = {
      {"mantissa --color never expl", "<--color never explain>"},
      {"mantissa train r --precision fp", "<train r --precision fp8-hybrid>"},
      {"mantissa train r --set optimizer.we", "<train r --set optimizer.weight_decay=>"},
      {"mantissa explain r --rule lm_head:com", "<explain r --rule lm_head:compute=>"},
      {"mantissa explain r --target tp", "<explain r --target tpu-v5e>"},
      {"mantissa help bf16-mi", "<help bf16-mixed>"},
      {"mantissa help data ins", "<help data inspect>"}};
  for (const auto& [line, expected] : cases) {
    const Result r = shell(folder, "timeout 60 zsh -f type '" + std::string(line) + "'");
    EXPECT_TRUE(has(r.out, expected)) << line << "\n" << r.out << r.err;
  }
}

TEST(Arguments, AreReadInAnyOrder) {
  const auto parsed = [](const std::vector<std::string>& words) { return Arguments("mantissa", words); };
  const Arguments a = parsed({"train", "--set", "run.steps=3", "optimizer.lr=1", "--rule=*: compute=f32",
                              "--json", "run.toml", "--threads", "2", "--threads=3"});
  EXPECT_EQ(a.at(0), "run.toml");
  EXPECT_EQ(a.texts("--set"), (std::vector<std::string>{"run.steps=3", "optimizer.lr=1"}));
  EXPECT_EQ(a.text("--rule"), "*: compute=f32");
  EXPECT_EQ(a.integer("--threads", 0, 9), 3) << "the last one counts";
  EXPECT_EQ(a.text("--device"), "cpu") << "the default of the table";
  EXPECT_FALSE(a.has("--quiet"));
  EXPECT_THROW(a.has("--prompt"), InternalError);
  // Options before the command take one value.
  const Arguments before = parsed({"--quiet", "--set", "run.steps=3", "--threads=2", "train", "run.toml"});
  EXPECT_EQ(before.command().name, "train");
  EXPECT_EQ(before.at(0), "run.toml");
  EXPECT_TRUE(before.has("--quiet"));
  EXPECT_EQ(before.texts("--set"), (std::vector<std::string>{"run.steps=3"}));
  EXPECT_EQ(before.integer("--threads", 0, 9), 2);
  EXPECT_EQ(parsed({"--count", "3", "data", "kk"}).command().name, "data kk");
  EXPECT_THROW(parsed({"--count", "3", "train", "run.toml"}), ConfigError);
  // A list leaves the words that positional arguments need.
  EXPECT_EQ(parsed({"eval", "--data", "a", "b", "model"}).at(0), "model");
  EXPECT_EQ(parsed({"train", "--set", "run.steps=3", "run.toml"}).at(0), "run.toml");
  EXPECT_EQ(parsed({"convert", "--", "-in", "-out"}).at(0), "-in");
  EXPECT_EQ(parsed({"generate", "m", "--prompt=--x"}).texts("--prompt"), (std::vector<std::string>{"--x"}));
  EXPECT_TRUE(parsed({"train", "run.toml", "--resume", "--quiet"}).text("--resume").empty());
  EXPECT_EQ(parsed({"train", "run.toml", "--resume=7"}).text("--resume"), "7");
}

TEST(Arguments, WithACureAreACommand) {
  const std::vector<std::string> words = {
      "train",          "run.toml",    "--overwrite",
      "--precision",    "16-mixed",    "--rule",
      "a: compute=f16", "--set",       "precision.loss_scale.hysteresis=1",
      "run.steps=9",    "--resume=4",  "--quiet",
      "--set",          "run.name=a b"};
  const Arguments a("./mantissa", words);
  EXPECT_EQ(a.with({{"--resume", "--precision", "32-true"}}),
            "./mantissa train run.toml --rule 'a: compute=f16' --set run.steps=9 --quiet --set 'run.name=a "
            "b' --resume --precision 32-true");
  EXPECT_EQ(a.with({{"--resume=2", "--rule", "b: compute=f32"}}),
            "./mantissa train run.toml --precision 16-mixed --rule 'a: compute=f16' --set "
            "precision.loss_scale.hysteresis=1 --set run.steps=9 --quiet --set 'run.name=a b' --resume=2 "
            "--rule 'b: compute=f32'");
}

}  // namespace
}  // namespace mantissa::cli
